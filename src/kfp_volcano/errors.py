# SPDX-License-Identifier: Apache-2.0
"""The errors of kfp-volcano, and what each means for the caller.

::

    KfpVolcanoError                       exit code
    ├── SpecError                    2    the input is wrong: correct it, a retry cannot help
    ├── JobError                     1    the training failed
    │   └── JobFailedError
    ├── ResizeError                  1    a resize could not be executed
    ├── MissingExtraError            2    an optional dependency is not installed
    └── ClusterError                 3    the cluster refused or could not be reached
        ├── NotFoundError                 no such object
        ├── ConflictError                 the object is not as assumed: read it again and decide again
        ├── InvalidError                  admission refused the object
        ├── ForbiddenError                a permission is missing
        └── UnavailableError              no answer: try again later

The class says whether to retry: `retryable` is true where the same call may succeed later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ClusterError",
    "ConflictError",
    "ForbiddenError",
    "InvalidError",
    "JobError",
    "JobFailedError",
    "KfpVolcanoError",
    "MissingExtraError",
    "NotFoundError",
    "Problem",
    "ResizeError",
    "SpecError",
    "TrainingStoppedError",
    "UnavailableError",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: where, what, and what would be right."""

    path: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.path}: {self.message}{remedy}"


class KfpVolcanoError(Exception):
    """The base of all errors raised on purpose."""

    exit_code = 1
    retryable = False


class SpecError(KfpVolcanoError):
    """The input is wrong; carries every problem found, each with its place."""

    exit_code = 2

    def __init__(self, problems: list[Problem] | str, *, source: str = "spec") -> None:
        self.problems = [Problem(source, problems)] if isinstance(problems, str) else list(problems)
        self.source = source
        super().__init__(self.problems, source)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            (problem,) = self.problems
            return str(problem) if self.source in ("spec", problem.path) else f"{self.source}: {problem}"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"{len(self.problems)} problems in {self.source}:\n{lines}"


class JobError(KfpVolcanoError):
    """The training did not end well."""


class JobFailedError(JobError):
    """The Job ended without success; the message names the first failing container."""


class TrainingStoppedError(JobError):
    """The watch on convergence ended the training: it would not come to anything, or the spec says so."""


class ResizeError(KfpVolcanoError):
    """A resize could not be executed; the Job runs on at the size it has."""


class MissingExtraError(KfpVolcanoError):
    """An optional dependency is not installed; the message names the extra."""

    exit_code = 2

    def __init__(self, module: str, extra: str) -> None:
        self.module = module
        self.extra = extra
        super().__init__(f"{module} is not installed: pip install 'kfp-volcano[{extra}]'")


class ClusterError(KfpVolcanoError):
    """The cluster refused a call or could not be reached."""

    exit_code = 3


class NotFoundError(ClusterError):
    """There is no such object."""


class ConflictError(ClusterError):
    """The object is not as the call assumed (a JSON Patch test failed, or it exists): read and decide again."""


class InvalidError(ClusterError):
    """Admission refused the object; the message is the admission's own.

    `fields` are the object's fields at fault, e.g. `spec.tasks[0].replicas`, where it is known which.
    """

    def __init__(self, message: str = "", *, fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class ForbiddenError(ClusterError):
    """The service account lacks a permission."""


class UnavailableError(ClusterError):
    """The cluster gave no answer, or asked to come back later."""

    retryable = True
