# SPDX-License-Identifier: Apache-2.0
"""Leaves advice on requests on Jobs, for people and for the training's next start."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, NotFoundError
from kfp_volcano.schemas.names import ADVICE
from kfp_volcano.schemas.records import Advice, dump
from kfp_volcano.volcano.cluster.annotations import update_annotation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.elastic.policies.requests import RequestAdvice
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["Adviser"]

_log = logging.getLogger(__name__)


class Adviser:
    """Writes advice where it differs from what was written last.

    Args:
        cluster: Where the Jobs are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._written: dict[str, tuple[str | None, str | None]] = {}

    def carry_out(self, advice: Iterable[RequestAdvice], now: float) -> None:
        """Write the advice, one annotation for each Job."""
        for key, each in groupby(sorted(advice, key=lambda one: (one.job, one.resource)), lambda one: one.job):
            found = list(each)
            amounts = {one.resource: one.advised for one in found}
            cpu = f"{amounts['cpu']}m" if "cpu" in amounts else None
            memory = str(amounts["memory"] // 1000) if "memory" in amounts else None
            if self._written.get(key) == (cpu, memory):
                continue
            text = dump(Advice(at=now, explanation="; ".join(one.explanation for one in found), cpu=cpu, memory=memory))
            namespace, _, name = key.partition("/")
            with suppress(ConflictError, NotFoundError):
                update_annotation(self._cluster, "Job", name, namespace, ADVICE, partial(_whatever, text=text))
                self._written[key] = (cpu, memory)
                _log.info("%s: %s", key, "; ".join(one.explanation for one in found))


def _whatever(_: str | None, text: str) -> str:
    """The text, whatever stood there: the newest advice holds."""
    return text
