# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows of a run is what its objects say."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from kfp_volcano.schemas.records import Phase, Progress, ResizeOutcome, ResizeRequest, StepRecord, Watched
from kfp_volcano.volcano.launcher.display import PlainDisplay, picture
from kfp_volcano.volcano.launcher.follow import describe_progress
from kfp_volcano.volcano.launcher.overview import JobRow, Overview

SEEN = Overview(
    run_job="vision/digits",
    queue="research",
    gpus=8,
    rows=(
        JobRow(job="vision/digits", team="vision", state="Running", gpus=4, workers=4, waits=None),
        JobRow(job="speech/gang", team="speech", state="Pending", gpus=0, workers=0, waits="4 pods [do not] fit"),
    ),
    progress=Progress(
        step=120,
        total_steps=400,
        samples=7680,
        epoch=5,
        loss=0.25,
        throughput=1500.0,
        workers=4,
        batch=64,
        lr=0.1,
        at=0.0,
    ),
    request=ResizeRequest(
        id="b",
        from_workers=4,
        to_workers=2,
        reason="GangPending",
        explanation="gang waits for 4 GPUs",
        policy="threshold",
        by="test",
        at=0.0,
        expires=600.0,
    ),
    resizes=(
        ResizeOutcome(
            id="a",
            phase=Phase.DONE,
            from_workers=2,
            to_workers=4,
            reason="QueueIdle",
            explanation="6 GPUs are idle",
            requested_at=1.0,
            done_at=4.5,
            executed_by="test",
            pause_s=0.06,
        ),
    ),
    steps=(StepRecord(name="submit", attempt=0, outcome="Succeeded", started_at=0.0, ended_at=1.0),),
)


def drawn(width: int) -> list[str]:
    """The picture's lines on a terminal of that width."""
    console = Console(width=width, height=24, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    console.print(picture(SEEN, elapsed_s=33))
    return console.export_text().splitlines()


def test_the_picture_tells_queue_training_resizes_and_steps() -> None:
    """Every figure a person follows a run by is there, on 80 columns and on 200."""
    for width in (80, 200):
        text = "\n".join(drawn(width))
        for part in (
            "queue research",
            "4 of 8 GPUs in use",
            "vision/digits",
            "speech/gang",
            "step 120/400",
            "loss 0.2500",
            "4 workers",
            "1500 samples/s",
            "resize 2 -> 4 workers Done in 3.5 s",
            "paused 0.06 s",
            "6 GPUs are idle",
            "gang waits for 4 GPUs",
            "submit",
        ):
            assert part in text, (width, part)


def test_the_picture_stays_within_the_terminal() -> None:
    """No line is longer than the terminal is wide."""
    assert max(map(len, drawn(80))) <= 80


def test_plain_lines_say_each_change_once() -> None:
    """Without a terminal nothing is repeated, and text in brackets is no markup."""
    lines: list[str] = []
    plain = PlainDisplay(lines.append)
    plain.show(SEEN, elapsed_s=1.0)
    first = list(lines)
    plain.show(SEEN, elapsed_s=2.0)
    assert lines == first
    assert sum("4 pods [do not] fit" in line for line in lines) == 1
    assert all(line.lstrip().startswith("1.0 s") for line in lines)


def test_a_line_of_progress_says_what_the_watch_has_done():
    """And nothing where it has done nothing."""
    fields = {"step": 1, "total_steps": 9, "samples": 8, "epoch": 0, "throughput": 4.0, "workers": 2, "batch": 8}
    progress = Progress(**fields, lr=0.1, at=0.0, loss=1.0)
    assert describe_progress(progress).endswith("4 samples/s")
    watched = Watched(rollbacks=2, lr_factor=0.25, growth_stopped="a spike")
    told = describe_progress(replace(progress, watched=watched))
    assert told.endswith("4 samples/s  rolled back 2x  learning rate x 0.25  asks for no more workers")
