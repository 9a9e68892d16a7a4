# SPDX-License-Identifier: Apache-2.0
"""From a Policy that was written to one that decides: within its guards, with its settings. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.elastic.policies.adaptive import Adaptive
from kfp_volcano.elastic.policies.arms import Arms
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.hpa.policy import Hpa
from kfp_volcano.elastic.policies.priorities import PrioritySettings
from kfp_volcano.elastic.policies.requests import RequestSettings
from kfp_volcano.elastic.policies.settings import AdaptiveSettings, GuardSettings, ThresholdSettings
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.hpa_validation import hpa_block
from kfp_volcano.schemas.policy import GUARDS, OWN_SETTINGS, PRIORITIES, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.elastic.policies.policy import Policy
    from kfp_volcano.schemas.policy import Blocks, QueuePolicy

    Factory: TypeAlias = Callable[[Mapping[str, Any]], Policy]

__all__ = ["Factory", "policy_for", "priorities_for", "requests_for"]


def policy_for(spec: QueuePolicy, own: Mapping[str, Factory] | None = None) -> Guarded:
    """What decides for the queues of a Policy.

    Args:
        spec: As `schemas.policy_validation` gives it.
        own: What makes the policies that other packages bring, by name, from their block `settings`.

    Raises:
        SpecError: A policy of another package is not there, or does not take its settings.
    """
    guards = typed(GuardSettings, spec.blocks.get(GUARDS, {}))
    if spec.arms:
        arms = tuple(_named(arm.policy, arm.blocks, own or {}) for arm in spec.arms)
        return Guarded(Arms(spec, arms), guards)
    return Guarded(_named(spec.policy, spec.blocks, own or {}), guards)


def priorities_for(spec: QueuePolicy) -> PrioritySettings | None:
    """By what classes are changed in the queues of a Policy; None where they stay as they are."""
    return typed(PrioritySettings, spec.blocks[PRIORITIES]) if PRIORITIES in spec.blocks else None


def requests_for(spec: QueuePolicy) -> RequestSettings | None:
    """When requests are advised on in the queues of a Policy; None where they are not."""
    return typed(RequestSettings, spec.blocks[REQUESTS]) if REQUESTS in spec.blocks else None


def _named(name: str, blocks: Blocks, own: Mapping[str, Factory]) -> Policy:
    """The policy of a name without guards. Raises SpecError as `policy_for` does."""
    if name in _BUILT_IN:
        return _BUILT_IN[name](blocks, own)
    if name not in own:
        raise SpecError(f"there is no policy {name!r}: is the package that brings it installed?", source="policy")
    try:
        made = own[name](blocks.get(OWN_SETTINGS, {}))
    except SpecError:
        raise
    except Exception as error:
        what = f"does not take its settings: {type(error).__name__}: {error}"
        raise SpecError(what, source=f"policy {name}") from error
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "decide", None)):
        what = f"gave a {type(made).__name__}, which lacks `name` or `decide`"
        raise SpecError(what, source=f"policy {name}")
    return made


def _adaptive(blocks: Blocks, own: Mapping[str, Factory]) -> Policy:
    """`adaptive` with the policies that it names."""
    settings = typed(AdaptiveSettings, blocks.get(Adaptive.name, {}))
    inner = {"aggressive": settings.aggressive, "careful": settings.careful}
    return Adaptive(settings=settings, **{mode: _named(name, blocks, own) for mode, name in inner.items() if name})


def _goodput(blocks: Blocks, _: Mapping[str, Factory]) -> Policy:
    """`goodput`, whose solver (scipy) is 35 MB of memory and a second that processes without it are spared."""
    from kfp_volcano.elastic.policies.goodput.policy import Goodput  # noqa: PLC0415
    from kfp_volcano.elastic.policies.goodput.programme import Bounded  # noqa: PLC0415

    return Goodput(bounded=typed(Bounded, blocks.get(Goodput.name, {})))


_BUILT_IN: dict[str, Callable[[Blocks, Mapping[str, Factory]], Policy]] = {
    Threshold.name: lambda blocks, _: Threshold(settings=typed(ThresholdSettings, blocks.get(Threshold.name, {}))),
    Adaptive.name: _adaptive,
    Hpa.name: lambda blocks, _: Hpa(spec=hpa_block(blocks[Hpa.name])) if blocks.get(Hpa.name) else Hpa(),
    "goodput": _goodput,
}
"""How each policy of `schemas.policy.BUILT_IN` is made from the blocks of settings."""
