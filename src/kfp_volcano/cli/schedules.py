# SPDX-License-Identifier: Apache-2.0
"""The commands `kfp-volcano schedule …`: work that is repeated, by name."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.backend import pairs
from kfp_volcano.cli.keepers import keeper_options
from kfp_volcano.cli.options import confirm, dry_option, yes_option
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import NotFoundError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.cli.keepers import Keepers
    from kfp_volcano.schemas.schedule import Change, Scheduled, Schedules, When

__all__ = ["schedule"]


@click.group()
def schedule() -> None:
    """Pipelines that run again and again: recurring runs of a KFP backend, by name.

    With --kubeconfig or --context, on a cluster without KFP: a TrainingJob, by a Volcano CronJob.

    One run of a schedule at a time; what was missed while it was paused, or the backend away, is not made up for.

    \b
    Every night:      kfp-volcano schedule create nightly retrain.py --cron "30 2 * * *" --time-zone Asia/Tokyo
    Every six hours:  kfp-volcano schedule create often retrain.py --every 6h --param epochs=20
    Without KFP:      kfp-volcano schedule create nightly job.yaml --cron "30 2 * * *" --kubeconfig ~/.kube/config
    What there is:    kfp-volcano schedule list
    """


_CENTURY_S = 100 * 366 * 86400

name_argument = click.argument("name")
cron_option = click.option("--cron", metavar="FIELDS", help="minute hour day month weekday; a second may come first.")
every_option = click.option("--every", metavar="DURATION", help="Instead of a cron: 30m, 6h, 7d.")
zone_option = click.option("--time-zone", metavar="NAME", help="In which the cron is meant, e.g. Asia/Tokyo; else UTC.")
backend_zone_option = click.option(
    "--backend-time-zone",
    default="UTC",
    show_default=True,
    envvar="KFP_VOLCANO_BACKEND_TIME_ZONE",
    metavar="NAME",
    help="What the backend's administrator set as CRON_SCHEDULE_TIMEZONE.",
)
param_option = click.option(
    "--param", "params", multiple=True, callback=pairs, metavar="K=V", help="A pipeline parameter; repeat."
)
account_option = click.option("--service-account", metavar="NAME", default="", help="Of the runs' steps.")
pipeline_option = click.option("--pipeline", "which", metavar="NAME", help="Which one, where the file has several.")


@schedule.command()
@name_argument
@click.argument("pipeline", type=click.Path(path_type=Path))
@cron_option
@every_option
@zone_option
@param_option
@click.option("--paused", is_flag=True, help="Have it, but start nothing until it is resumed.")
@click.option("--catch-up", is_flag=True, help="Make up for every time that was missed, one after the other.")
@click.option("--experiment", default="Default", show_default=True, metavar="NAME", help="Made if it is not there.")
@account_option
@pipeline_option
@backend_zone_option
@dry_option
@keeper_options
def create(
    name: str,
    pipeline: Path,
    *,
    cron: str | None,
    every: str | None,
    time_zone: str | None,
    params: dict[str, str],
    paused: bool,
    catch_up: bool,
    experiment: str,
    service_account: str,
    which: str | None,
    backend_time_zone: str,
    dry_run: bool,
    keepers: Keepers,
) -> None:
    """Have a schedule of this name that runs this pipeline, exactly as said here.

    The same again changes nothing; anything else replaces what is there. PIPELINE is a Python file or compiled IR; with
    --kubeconfig a TrainingJob, whose namespace the schedule is in.

    \b
    Example: kfp-volcano schedule create nightly pipelines/scheduled_retraining.py --cron "30 2 * * *"
    """
    from kfp_volcano.schemas.schedule import Schedule  # noqa: PLC0415

    when = _when(cron, every, time_zone)
    if when is None:
        raise click.UsageError("say when: --cron or --every")
    keepers.only_a_backend_knows("experiment", "service_account", "which", "backend_time_zone")
    work = keepers.work(pipeline, which)
    keeper = keepers.keeper(
        work.namespace, experiment=experiment, service_account=service_account, backend_zone=backend_time_zone
    )
    wanted = Schedule(
        name=name,
        when=when,
        time_zone=time_zone or "UTC",
        work=work.text,
        parameters=work.arguments(params),
        enabled=not paused,
        catch_up=catch_up,
    )
    if dry_run:
        _would(keeper, name, f"be replaced: {wanted.when}", otherwise=f"be created: {wanted.when}")
    else:
        _said(name, keeper.put(wanted))


@schedule.command()
@name_argument
@click.option("--from", "pipeline", type=click.Path(path_type=Path), metavar="PIPELINE", help="Run this from now on.")
@cron_option
@every_option
@zone_option
@param_option
@click.option("--catch-up/--no-catch-up", default=None, help="Whether to make up for what was missed.")
@account_option
@pipeline_option
@backend_zone_option
@dry_option
@keeper_options
def update(
    name: str,
    *,
    pipeline: Path | None,
    cron: str | None,
    every: str | None,
    time_zone: str | None,
    params: dict[str, str],
    catch_up: bool | None,
    service_account: str,
    which: str | None,
    backend_time_zone: str,
    dry_run: bool,
    keepers: Keepers,
) -> None:
    """Change some of a schedule; what is not named stays as it is.

    \b
    Example: kfp-volcano schedule update nightly --param epochs=40 --cron "0 4 * * *"
    """
    from kfp_volcano.schemas.schedule import Changes  # noqa: PLC0415

    keepers.only_a_backend_knows("service_account", "which", "backend_time_zone")
    work = keepers.work(pipeline, which) if pipeline else None
    keeper = keepers.keeper(
        work.namespace if work else "", service_account=service_account, backend_zone=backend_time_zone
    )
    changes = Changes(
        when=_when(cron, every, time_zone),
        time_zone=time_zone,
        work=work.text if work else None,
        parameters=params or None,
        catch_up=catch_up,
    )
    if dry_run:
        given = [each.name for each in fields(changes) if getattr(changes, each.name) is not None]
        _would(keeper, name, f"have another {', '.join(given)}" if given else "stay as it is")
    else:
        _said(name, keeper.change(name, changes))


@schedule.command()
@name_argument
@dry_option
@keeper_options
def pause(name: str, *, dry_run: bool, keepers: Keepers) -> None:
    """Start no more runs of a schedule; one that runs is left alone.

    \b
    Example: kfp-volcano schedule pause nightly
    """
    keeper = keepers.keeper()
    if dry_run:
        _would(keeper, name, "be paused")
    else:
        _said(name, keeper.pause(name))


@schedule.command()
@name_argument
@backend_zone_option
@dry_option
@keeper_options
def resume(name: str, *, backend_time_zone: str, dry_run: bool, keepers: Keepers) -> None:
    """Start runs of a schedule again, when they are due.

    \b
    Example: kfp-volcano schedule resume nightly
    """
    keeper = keepers.keeper(backend_zone=backend_time_zone)
    if dry_run:
        _would(keeper, name, "be resumed")
    else:
        _said(name, keeper.resume(name))


@schedule.command()
@name_argument
@yes_option
@dry_option
@keeper_options
def delete(name: str, *, yes: bool, dry_run: bool, keepers: Keepers) -> None:
    """Have no such schedule; a run of it that runs is left alone.

    \b
    Example: kfp-volcano schedule delete nightly --yes
    """
    keeper = keepers.keeper()
    if dry_run:
        _would(keeper, name, "be deleted")
        return
    if not yes:
        confirm(f"delete the schedule {name}")
    _said(name, keeper.delete(name))


@schedule.command("list")
@output_option("table")
@keeper_options
def list_(*, output: str, keepers: Keepers) -> None:
    """List the schedules that kfp-volcano has made.

    \b
    Example: kfp-volcano schedule list -o json
    """
    found = keepers.keeper().scheduled()
    if output != "table":
        print_data([{**asdict(each), "parameters": dict(each.parameters)} for each in found], output)
    elif found:
        _show(found)
    else:
        say("no schedules")


def _when(cron: str | None, every: str | None, time_zone: str | None) -> When | None:
    from kfp_volcano.schemas.cron import Cron  # noqa: PLC0415
    from kfp_volcano.schemas.quantities import duration  # noqa: PLC0415
    from kfp_volcano.schemas.schedule import Every  # noqa: PLC0415
    from kfp_volcano.schemas.time_zones import zone  # noqa: PLC0415

    if cron and every:
        raise click.UsageError("say --cron or --every, not both")
    if every and time_zone:
        raise click.UsageError("--time-zone is a cron's: an interval has none")
    if time_zone:
        zone(time_zone, source="--time-zone")
    if cron:
        return Cron.parse(cron, source="--cron")
    if not every:
        return None
    try:
        seconds = duration(every)
    except ValueError as error:
        raise SpecError(f"{every!r} is no duration, such as 30m, 6h or 7d", source="--every") from error
    if not 1 <= seconds <= _CENTURY_S or not float(seconds).is_integer():
        raise SpecError(f"{every!r} is not a whole number of seconds, from one to a century", source="--every")
    return Every(int(seconds))


def _said(name: str, change: Change) -> None:
    click.echo(f"schedule {name}: {change.value}")


def _would(keeper: Schedules, name: str, what: str, *, otherwise: str = "") -> None:
    """Say what a dry run would do to a schedule. Raises NotFoundError where that needs one."""
    there = name in {each.name for each in keeper.scheduled()}
    if not there and not otherwise:
        raise NotFoundError(f"there is no schedule {name}: kfp-volcano schedule list")
    click.echo(f"schedule {name}: would {what if there else otherwise}")


def _show(found: Sequence[Scheduled]) -> None:
    rows = (
        (
            each.name,
            "enabled" if each.enabled else "paused",
            each.when,
            each.work,
            f"{each.last:%Y-%m-%d %H:%M} {each.state}" if each.last else "-",
            each.note,
        )
        for each in found
    )
    print_table(("SCHEDULE", "STATE", "WHEN", "RUNS", "LAST RUN", "NOTE"), rows)
