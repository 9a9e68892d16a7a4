# SPDX-License-Identifier: Apache-2.0
"""The commands that read decision logs: `kfp-volcano autoscaler explain`, `replay` and `ab-report`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import cluster_options, reach
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import Problem, SpecError, UnavailableError

if TYPE_CHECKING:
    from kfp_volcano.elastic.autoscaler.decisions.log_turns import Difference
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.volcano.launcher.why import Why

__all__ = ["ab_report", "explain", "replay"]

_RUNS = (Path("demo-run"), Path("runs"))
"""Where runs of this machine leave their logs by default."""
_MOST_SHOWN = 20

decisions_option = click.option(
    "--decisions",
    "--run",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A run's output folder, or an autoscaler's folder of decision logs; by default ./demo-run and ./runs.",
)


@click.command()
@click.argument("job", metavar="[NAMESPACE/]JOB")
@decisions_option
@output_option("text")
@cluster_options
def explain(job: str, *, folder: Path | None, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Tell why a Job has the size it has: each change, by whom, for which reason, at what cost, and what holds it now.

    From the decision log of --decisions, else of the last run in this folder that tells of it; else, and with
    --kubeconfig, from what is written on the Job. In a log, the name of its TrainingJob does for the Job's.

    \b
    Example: kfp-volcano autoscaler explain digits --decisions demo-run
             kfp-volcano autoscaler explain vision/resnet-1a2b3c4d --kubeconfig ~/.kube/config
    """
    from kfp_volcano.volcano.launcher.why_told import told  # noqa: PLC0415

    named = kubeconfig is not None or context is not None
    why = None if folder is None and named else _recorded(job, folder)
    why = why or _on_cluster(job, kubeconfig, context)
    if output != "text":
        print_data(asdict(why), output)
        return
    for line in told(why):
        click.echo(line)


@click.command()
@click.argument("log", type=click.Path(path_type=Path, exists=True, file_okay=False))
def replay(log: Path) -> None:
    """Decide every turn of decision logs again, with the code that is installed here: all must come out the same.

    LOG is an autoscaler's folder of decision logs, or any folder above. Ends with 1 where a decision differs.

    \b
    Example: kfp-volcano autoscaler replay demo-run
    """
    from kfp_volcano.elastic.autoscaler.decisions.log_turns import log_folders  # noqa: PLC0415
    from kfp_volcano.elastic.autoscaler.decisions.log_turns import replay as decide_again  # noqa: PLC0415
    from kfp_volcano.version import __version__  # noqa: PLC0415

    found = [decide_again(folder) for folder in log_folders(log)]
    differences = [each for one in found for each in one.differences]
    others = sorted({version for one in found for version in one.versions} - {__version__, ""})
    if others:
        say(f"note: written by version {', '.join(others)}, decided again by {__version__}")
    count = sum(one.decisions for one in found)
    turns = sum(one.turns for one in found)
    if not differences:
        click.echo(f"{count} decisions in {turns} turns, all the same")
        return
    for difference in differences[:_MOST_SHOWN]:
        for line in _differing(difference):
            click.echo(line)
    if len(differences) > _MOST_SHOWN:
        click.echo(f"… and {len(differences) - _MOST_SHOWN} more")
    click.echo(f"{count} decisions in {turns} turns, {len(differences)} of them not the same")
    sys.exit(1)


@click.command("ab-report")
@click.option(
    "--decisions",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="An autoscaler's folder of decision logs, or any folder above.",
)
@output_option("text")
def ab_report(folder: Path, output: str) -> None:
    """Compare the arms of experiments: completion time, GPU hours, resizes and final loss of Jobs that have ended.

    \b
    Example: kfp-volcano autoscaler ab-report --decisions /var/log/kfp-volcano
    """
    from kfp_volcano.elastic.autoscaler.decisions.decision_log import LOG_NAME  # noqa: PLC0415
    from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_lines  # noqa: PLC0415
    from kfp_volcano.elastic.autoscaler.decisions.log_turns import legible, log_folders  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.comparison import arms_of, comparisons, ended_of  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.comparison_told import told  # noqa: PLC0415

    texts = ('"kind":"ended"', '"kind":"policy"')
    lines = [line for each in log_folders(folder) for line in log_lines(each, LOG_NAME, naming=texts)]
    with legible():
        ends = [end for line in lines if line["kind"] == "ended" and (end := ended_of(line)) is not None]
        found = comparisons(ends, arms_of(line["document"] for line in lines if line["kind"] == "policy"))
    if output != "text":
        print_data([asdict(each) for each in found], output)
        return
    if not found:
        raise SpecError("no Job of an experiment has ended yet: a Policy with arms makes one", source=str(folder))
    for number, each in enumerate(found):
        click.echo("\n".join([*([""] if number else []), *told(each)]))


def _on_cluster(job: str, kubeconfig: Path | None, context: str | None) -> Why:
    from kfp_volcano.volcano.launcher.reference import JobRef  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.why import why_on_cluster  # noqa: PLC0415

    try:
        cluster = reach(kubeconfig, context)
    except (SpecError, UnavailableError) as error:
        if kubeconfig is not None or context is not None:
            raise
        what = "no run in ./demo-run or ./runs tells of it, and there is no cluster to ask"
        raise SpecError([Problem(job, what, "say --decisions DIR, or --kubeconfig FILE")], source=job) from error
    return why_on_cluster(cluster, JobRef.parse(job if "/" in job else f"default/{job}"), time.time())


def _recorded(job: str, folder: Path | None) -> Why | None:
    """From the folder that was named, else from the last run of this folder that tells of the Job, if one does."""
    from kfp_volcano.volcano.launcher.why import why_recorded  # noqa: PLC0415

    if folder is not None:
        return why_recorded(folder, job)
    runs = [each for each in (_RUNS[0], *_RUNS[1].glob("*")) if each.is_dir()]
    for each in sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(SpecError):
            return why_recorded(each, job)
    return None


def _differing(difference: Difference) -> list[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(difference.at))
    return [
        f"{at} {difference.queue} {difference.job}",
        f"  logged   {_shown(difference.logged)}",
        f"  now      {_shown(difference.decided)}",
    ]


def _shown(decision: Decision | None) -> str:
    if decision is None:
        return "nothing"
    urgent = ", urgent" if decision.urgent else ""
    size = f"{decision.from_workers} -> {decision.to_workers}"
    return f"{size} {decision.reason.value} ({decision.policy}{urgent}): {decision.explanation}"
