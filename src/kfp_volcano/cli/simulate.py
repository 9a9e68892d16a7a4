# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano simulate`: policies replayed on a trace or a scenario, side by side."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant
    from kfp_volcano.volcano.launcher.laboratory.study import Study
    from kfp_volcano.volcano.launcher.laboratory.sweep import Axis

__all__ = ["simulate"]

T = TypeVar("T")
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\.\.([0-9]+(?:\.[0-9]+)?)")


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="One that the simulator knows, or a file of kind Policy; repeat. The others are compared with the first.",
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="Where report, figures and CSV files go."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON in place of the table.")
@click.option("--format", "form", metavar="NAME", help="The trace's format, where its contents do not tell.")
@click.option("--nodes", metavar="NxG[:CLASS],…", help="The cluster, in place of the trace's: 16x8, 8x8:a100,16x4:t4.")
@click.option(
    "--gpus-per-node", type=click.IntRange(min=1), default=8, show_default=True, help="Of one that is made up."
)
@click.option("--load", type=float, default=1.0, show_default=True, help="How much faster jobs come than they did.")
@click.option("--limit", type=click.IntRange(min=1), help="The first so many jobs only.")
@click.option("--elastic", metavar="LOW..HIGH", help="Jobs may have so many times the GPUs they asked for: 0.5..2.")
@click.option("--profiles", type=click.Path(path_type=Path), help="Folder of measured profiles, for Pollux' workloads.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn by chance.")
@click.option(
    "--replications", type=click.IntRange(min=0), default=0, metavar="N", help="Also on N other loads like it."
)
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=V1,V2,…", help="Try settings of the policies; repeat.")
@click.option(
    "--best-by", default="avg_jct", show_default=True, metavar="METRIC", help="What the best setting is best in."
)
@click.option("--until-broken", is_flag=True, help="Raise the load until each policy breaks a promise.")
@click.option("--promise", "promised", multiple=True, metavar="KEY=VALUE", help="One that is kept, or not; repeat.")
def simulate(  # one parameter an option
    scenario: Path,
    *,
    policies: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    form: str | None,
    nodes: str | None,
    gpus_per_node: int,
    load: float,
    limit: int | None,
    elastic: str | None,
    profiles: Path | None,
    seed: int,
    replications: int,
    sweeps: tuple[str, ...],
    best_by: str,
    until_broken: bool,
    promised: tuple[str, ...],
) -> None:
    """Replay a trace, or a Scenario, under policies: through the code that decides in production, and compare.

    \b
    Example: kfp-volcano simulate workload-6.csv --policy tiresias --policy goodput -o compared
             kfp-volcano simulate trace.csv --elastic 0.5..2 --policy fifo --policy adaptive --replications 20
             kfp-volcano simulate trace.csv --policy threshold --sweep threshold.up.idleShare=0.1..0.9/9
             kfp-volcano simulate rush-hour.yaml --policy adaptive --until-broken --promise wait=2h -o broken
    """
    from kfp_volcano.cli.progress import own_output, progress  # noqa: PLC0415
    from kfp_volcano.cli.stress import read_promises, stress  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.source import drawn, draws  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.laboratory import running, told  # noqa: PLC0415

    wrong: list[Problem] = []
    found, swept = _policies(wrong, policies, sweeps, best_by)
    given = _Given(nodes=nodes, gpus_per_node=gpus_per_node, load=load, limit=limit, elastic=elastic)
    read = _scenario(wrong, scenario, form, profiles, given, seed)
    promises = _tried(wrong, lambda: read_promises(promised))
    if read is None or promises is None or wrong:
        raise SpecError(wrong, source="kfp-volcano simulate")
    for note in read.notes:
        say(f"note: {note}")
    if until_broken:
        stress(read, found, promises, out=out, seed=seed, as_json=as_json)
        return
    loads = running.Loads(partial(drawn, scenario), "drawn by the Scenario with other seeds")
    with progress() as shown, own_output():
        study = running.compare(
            read,
            found,
            seed=seed,
            replications=replications,
            loads=loads if draws(scenario) else None,
            axes=swept,
            best_by=best_by,
            told=shown.stage,
            watched=shown.clock,
        )
    if as_json:
        click.echo(json.dumps(study.wire(), indent=2, ensure_ascii=False))
    else:
        print_table(("", *study.outcomes), told.rows(study))
        for sentence in told.story(study):
            click.echo(sentence)
    if out is not None:
        _write(out, study)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What options say of a trace."""

    nodes: str | None = None
    gpus_per_node: int
    load: float = 1.0
    limit: int | None = None
    elastic: str | None = None


def _policies(
    wrong: list[Problem], policies: tuple[str, ...], sweeps: tuple[str, ...], best_by: str
) -> tuple[tuple[Contestant, ...], tuple[Axis, ...]]:
    """The policies and the settings to try; what is wrong with them is added to the rest."""
    from kfp_volcano.elastic.simulator.figures import METRICS  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.simulate import POLICIES  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.laboratory.contestants import contestants  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.laboratory.sweep import axes, variants  # noqa: PLC0415

    if not policies:
        wrong.append(Problem("--policy", "none is given", f"one of {', '.join(POLICIES)}, or a file; several"))
    if best_by not in METRICS:
        wrong.append(Problem("--best-by", f"{best_by} is no metric", ", ".join(METRICS)))
    found = _tried(wrong, lambda: contestants(policies)) or ()
    swept = _tried(wrong, lambda: axes(sweeps)) or ()
    if found and swept:
        _tried(wrong, lambda: variants(found, swept))
    return found, swept


def _scenario(
    wrong: list[Problem], path: Path, form: str | None, profiles: Path | None, given: _Given, seed: int
) -> Scenario | None:
    """The scenario; what is wrong with it, or with what is said of it, is added to the rest."""
    from kfp_volcano.elastic.simulator.reading.assumed import Assumed  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.reading.shape import parse_nodes  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.reading.trace import FORMATS  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.source import is_document, read_scenario  # noqa: PLC0415

    if form is not None and form not in FORMATS:
        wrong.append(Problem("--format", f"{form} is unknown", ", ".join(FORMATS)))
        form = None
    if not 0 < given.load < math.inf:
        wrong.append(Problem("--load", f"{given.load:g} is not above 0", "1 for the trace's own"))
    nodes, elastic = given.nodes, given.elastic
    assumed = Assumed(
        nodes=(_tried(wrong, lambda: parse_nodes(nodes)) or ()) if nodes else (),
        gpus_per_node=given.gpus_per_node,
        elastic=_tried(wrong, lambda: _range(elastic)) if elastic else None,
        load=given.load if 0 < given.load < math.inf else 1.0,
        limit=given.limit,
    )
    if is_document(path) and (given != _Given(gpus_per_node=given.gpus_per_node) or form or profiles):
        remedy = "say it in the document: spec.cluster, spec.trace"
        wrong.append(Problem(str(path), "is a Scenario, which says itself what options say of a trace", remedy))
    seeded = seed or None
    return _tried(wrong, lambda: read_scenario(path, form=form, assumed=assumed, profiles=profiles, seed=seeded))


def _tried(wrong: list[Problem], read: Callable[[], T]) -> T | None:
    """What is read; None where that is wrong, and what is wrong with it is added to the rest."""
    try:
        return read()
    except SpecError as error:
        for each in error.problems:
            told = each.path == error.source or each.path.startswith("--")
            wrong.append(each if told else replace(each, path=f"{error.source}: {each.path}"))
        return None


def _range(text: str) -> tuple[float, float]:
    match = _PARTS.fullmatch(text)
    low, high = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if not 0 < low <= 1 <= high:
        what = f"{text!r} is not LOW..HIGH with 1 between them"
        raise SpecError([Problem("--elastic", what, "0.5..2: half to twice what a job asked for")], source="--elastic")
    return low, high


def _write(out: Path, study: Study) -> None:
    from kfp_volcano.volcano.launcher.laboratory.files import write  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.laboratory.page import page  # noqa: PLC0415

    try:
        for path in write(out, study, page(study)):
            say(f"{path}: written")
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror or error}", source=str(out)) from error
