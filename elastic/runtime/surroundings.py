# SPDX-License-Identifier: Apache-2.0
"""Where this worker runs: what the Job's environment says, or a plain process outside any Job."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from kfp_volcano.errors import KfpVolcanoError, Problem, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.training_job import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["Surroundings", "cpu_share", "end_script_with_exit_code"]

_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """This process' place in its Job."""

    pod: str
    address: str
    """IP address by which the other workers reach this one."""
    node: str
    """Name of the node it is on; empty where that is not known."""
    incarnation: str
    """8 hex digits that no other process of the Job has."""
    coordinator: str | None
    """Host of the Job's coordinator; None outside a Job: the process trains alone."""
    rank: int = 0
    """This process' among those of its worker."""
    processes: int = 1
    """How many processes its worker has."""
    job_dir: Path | None
    """Where checkpoints, ledgers and the final model go; None: nowhere."""
    settings: RuntimeSettings

    @property
    def owner(self) -> str:
        """A name for files of this process alone."""
        return f"{self.pod}-{self.incarnation}"

    @classmethod
    def read(cls, environ: Mapping[str, str], *, job_dir: Path | None = None) -> Surroundings:
        """Reads the environment that the Job's manifest sets; `job_dir` is used where it names none.

        Raises SpecError with every problem: a variable missing in a Job, a job folder that cannot be written.
        """
        problems: list[Problem] = []
        coordinator = environ.get(names.ENV_COORDINATOR)
        pod = environ.get(names.ENV_POD, "local")
        address = environ.get(names.ENV_POD_IP, "127.0.0.1")
        if coordinator is not None:
            problems += [
                Problem(name, "is not set, though this process has a coordinator", "the Job's manifest sets it")
                for name in (names.ENV_POD, names.ENV_POD_IP)
                if not environ.get(name)
            ]
        folder = Path(environ[names.ENV_JOB_DIR]) if environ.get(names.ENV_JOB_DIR) else job_dir
        if folder is not None:
            problems += _unwritable(folder)
        settings = RuntimeSettings()
        try:
            settings = _settings(json.loads(environ.get(names.ENV_ELASTICITY) or "{}"))
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(Problem(names.ENV_ELASTICITY, f"is not the JSON of RuntimeSettings: {error}"))
        if problems:
            raise SpecError(problems, source="environment")
        return cls(
            pod=pod,
            address=address,
            node=environ.get(names.ENV_NODE, ""),
            incarnation=secrets.token_hex(4),
            coordinator=coordinator,
            rank=int(environ.get("LOCAL_RANK", "0")),  # torchrun's, as the next
            processes=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            job_dir=folder,
            settings=settings,
        )


def _settings(given: Mapping[str, Any]) -> RuntimeSettings:
    """What a newer version added is ignored."""
    parts: dict[str, Any] = {}
    for name, kind in get_type_hints(RuntimeSettings).items():
        if name in given:
            parts[name] = typed(cast("type[Any]", kind), given[name]) if is_dataclass(kind) else given[name]
    return RuntimeSettings(**parts)


def end_script_with_exit_code() -> None:
    """Makes an uncaught KfpVolcanoError end the script with its exit code and its message, without a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, KfpVolcanoError):
            before(kind, error, trace)
            return
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code)

    sys.excepthook = hook


def _unwritable(folder: Path) -> list[Problem]:
    probe = folder / f".writable-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        remedy = "make the checkpoint volume writable for the container's user"
        return [Problem(str(folder), f"the job folder cannot be written: {error.strerror}", remedy)]
    return []


def cpu_share(surroundings: Surroundings, environ: Mapping[str, str]) -> int | None:
    """How many threads PyTorch should use; None: as many as it thinks.

    PyTorch counts the machine's processors, not the container's quota, and workers that share a machine's processors
    with a pool of threads each stand in each other's way.
    """
    if environ.get("OMP_NUM_THREADS") or surroundings.coordinator is None:
        return None
    try:
        quota, period = _CGROUP_CPU.read_text().split()
    except (OSError, ValueError):
        quota, period = "max", "1"
    # Pods on loopback addresses are processes of one machine without quotas.
    here = 1 if surroundings.address.startswith("127.") else len(os.sched_getaffinity(0))
    pod = here if quota == "max" else int(quota) // int(period)
    return max(1, pod // surroundings.processes)
