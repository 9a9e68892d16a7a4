# SPDX-License-Identifier: Apache-2.0
"""The cards of a node whose GPUs are shared, and what pods hold of each.

Sources: GPUDevices and checkNodeGPUSharingPredicateAndScore (pkg/scheduler/api/devices/nvidia/vgpu) and
ExtractResourceRequest (pkg/scheduler/api/devices/util.go), Volcano 1.15.1. The scheduler's plugin deviceshare is taken
to be on (`deviceshare.VGPUEnable`) where a node has registered cards, with its default policy. MIG geometries are left
out: a node in that mode is shared as one in mode `hami-core`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kfp_volcano.schemas.names import VGPU_CORES, VGPU_MEMORY, VGPU_NUMBER
from kfp_volcano.volcano.model.objects import Key, Manifest, key_of, status_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "REGISTER",
    "Card",
    "CardRequest",
    "Cards",
    "Share",
    "Wishes",
    "assigned",
    "assignment",
    "card_requests",
    "wishes_of",
]

REGISTER = "volcano.sh/node-vgpu-register"
"""On a node, by the device plugin: `uuid,most pods,MiB,type,healthy,mode` of each card, with `:` between them."""
_IDS = "volcano.sh/vgpu-ids-new"
"""On a pod, by the scheduler: `uuid,type,MiB,percent:` of each share, with `;` between containers."""
_NODE = "volcano.sh/vgpu-node"
_TIME = "volcano.sh/vgpu-time"
_MODE = "volcano.sh/vgpu-mode"
_SPREAD = "volcano.sh/vgpu-podgroup-policy"
_GROUPS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_WANTED, _UNWANTED = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
_PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
_NVIDIA = "NVIDIA"
_ALL = 100
"""Percent of a card's cores: who asks for all of them wants the card alone."""
_REGISTERED_FIELDS = 6
_ASSIGNED_FIELDS = 4


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What one container asks of each of `number` cards."""

    number: int
    memory: int
    """MiB; 0 where `percentage` says it."""
    percentage: int | None
    """Of a card's memory."""
    cores: int
    """Percent of a card's cores."""

    def memory_of(self, card: Card) -> int:
        """MiB of this card."""
        return self.memory if self.percentage is None else card.memory * self.percentage // _ALL


@dataclass(frozen=True, slots=True)
class Share:
    """What one container holds of one card."""

    card: str
    memory: int
    """MiB."""
    cores: int
    """Percent."""


class Wishes(NamedTuple):
    """Which cards a pod wants, by its annotations."""

    mode: str
    """Empty: any."""
    wanted: str
    unwanted: str
    apart_from: str
    """The PodGroup whose cards it avoids, empty for none."""

    def admit(self, kind: str) -> bool:
        """Whether cards of this type will do."""
        if _NVIDIA not in kind:
            return False
        if self.wanted:
            return _is_among(kind, self.wanted)
        return not (self.unwanted and _is_among(kind, self.unwanted))


@dataclass(slots=True)
class Card:
    """One GPU that pods share."""

    uuid: str
    most: int
    """Shares that it may be cut into."""
    memory: int
    """MiB."""
    kind: str
    shares: int = 0
    used_memory: int = 0
    used_cores: int = 0

    @property
    def use(self) -> float:
        """How full it is, from 0 to 1, in whichever of memory, cores and shares it is fullest."""
        return max(self.used_memory / self.memory, self.used_cores / _ALL, self.shares / self.most)

    def admits(self, request: CardRequest) -> bool:
        """Whether what is left suffices for one share."""
        return not (
            self.shares >= self.most
            or self.memory - self.used_memory < request.memory_of(self)
            or self.used_cores + request.cores > _ALL
            or (request.cores == _ALL and self.shares)
            or (self.used_cores == _ALL and not request.cores)
        )

    def book(self, share: Share, times: int = 1) -> None:
        """Account for a share, or with `times=-1` take it off."""
        self.shares += times
        self.used_memory += times * share.memory
        self.used_cores += times * share.cores


class Cards:
    """The cards of one node."""

    def __init__(self, cards: Iterable[Card], mode: str) -> None:
        self._cards = {card.uuid: card for card in cards}
        self._mode = mode
        self._held: dict[Key, tuple[str, tuple[Share, ...]]] = {}
        """PodGroup and shares of each pod."""

    @classmethod
    def of(cls, node: Manifest) -> Cards | None:
        """The cards of a node with nobody on them; None where it registered none, or has nothing of them to give."""
        text = (node["metadata"].get("annotations") or {}).get(REGISTER)
        if not text:
            return None
        room = status_of(node).get("allocatable") or {}
        if any(parse_quantity(room.get(name, 0)) <= 0 for name in (VGPU_NUMBER, VGPU_CORES, VGPU_MEMORY)):
            return None
        entries = [entry.split(",") for entry in text.split(":") if "," in entry]
        if ":" not in text or not entries or any(len(entry) < _REGISTERED_FIELDS for entry in entries):
            return None
        cards = (Card(uuid, _count(most), _count(memory), kind) for uuid, most, memory, kind, *_ in entries)
        usable = [card for card in cards if card.most and card.memory]
        return cls(usable, "mig" if entries[-1][5] == "mig" else "hami-core")

    def __len__(self) -> int:
        return len(self._cards)

    def __iter__(self) -> Iterator[Card]:
        return iter(self._cards.values())

    @property
    def pods(self) -> list[Key]:
        """Who holds shares."""
        return list(self._held)

    def room(self, pod: Manifest, requests: Sequence[CardRequest]) -> tuple[tuple[Share, ...], ...] | None:
        """The shares that a pod would get, container by container; None where there is no room for all of them.

        The last card with room is taken first; a container gets each of its shares from another card.
        """
        wishes = wishes_of(pod)
        if wishes.mode not in ("", self._mode):
            return None
        avoided = self._used_by(wishes.apart_from)
        cards = [card for card in self if card.uuid not in avoided and wishes.admit(card.kind)][::-1]
        booked: list[tuple[Card, Share]] = []
        given = []
        try:
            for request in requests:
                admitting = [card for card in cards if card.admits(request)][: request.number]
                if len(admitting) < request.number:
                    return None
                shares = tuple(Share(card.uuid, request.memory_of(card), request.cores) for card in admitting)
                for card, share in zip(admitting, shares, strict=True):
                    card.book(share)  # the next container finds less
                    booked.append((card, share))
                given.append(shares)
        finally:
            for card, share in booked:
                card.book(share, -1)
        return tuple(given)

    def hold(self, pod: Manifest, shares: Iterable[Share]) -> None:
        """Let a pod hold shares; those of cards that are not here are passed over."""
        ours = tuple(share for share in shares if share.card in self._cards)
        for share in ours:
            self._cards[share.card].book(share)
        if ours:
            self._held[key_of(pod)] = (_group(pod), ours)

    def release(self, pod: Manifest) -> None:
        """Take a pod's shares back; nothing happens if it has none."""
        _, shares = self._held.pop(key_of(pod), ("", ()))
        for share in shares:
            self._cards[share.card].book(share, -1)

    def _used_by(self, group: str) -> set[str]:
        """The cards that pods of a PodGroup use."""
        if not group:
            return set()
        held = (shares for owner, shares in self._held.values() if owner == group)
        return {share.card for shares in held for share in shares if share.memory or share.cores}


def card_requests(spec: Mapping[str, Any]) -> tuple[CardRequest, ...]:
    """What a pod asks of shared GPUs, container by container; those that ask for none are left out."""
    return tuple(filter(None, map(_request, spec.get("containers", ()))))


def _request(container: Mapping[str, Any]) -> CardRequest | None:
    stated = container.get("resources") or {}
    limits = stated.get("limits") or {}
    if VGPU_NUMBER not in limits and VGPU_MEMORY not in limits:
        return None
    asked = {**(stated.get("requests") or {}), **limits}
    memory = _whole(asked.get(VGPU_MEMORY, 0))
    percentage = _whole(asked[_PERCENTAGE]) if _PERCENTAGE in asked else None
    return CardRequest(
        number=_whole(limits.get(VGPU_NUMBER, 1)),
        memory=memory,
        percentage=_ALL if percentage is None and not memory else percentage,
        cores=_whole(asked.get(VGPU_CORES, 0)),
    )


def wishes_of(pod: Manifest) -> Wishes:
    """Which cards a pod wants."""
    notes = pod["metadata"].get("annotations") or {}
    apart_from = _group(pod) if notes.get(_SPREAD) == "spread" else ""
    return Wishes(notes.get(_MODE, ""), notes.get(_WANTED, ""), notes.get(_UNWANTED, ""), apart_from)


def assigned(pod: Manifest) -> tuple[tuple[Share, ...], ...]:
    """The shares that a pod's annotations say it was given, container by container."""
    text = (pod["metadata"].get("annotations") or {}).get(_IDS, "")
    containers = ([entry.split(",") for entry in container.split(":")] for container in text.split(";"))
    found = (tuple(_share(*entry) for entry in entries if len(entry) == _ASSIGNED_FIELDS) for entries in containers)
    return tuple(filter(None, found))


def assignment(node: str, shares: Iterable[Iterable[Share]], now: float) -> dict[str, str]:
    """The annotations that give a pod shares of a node's cards."""
    texts = (
        "".join(f"{share.card},{_NVIDIA},{share.memory},{share.cores}:" for share in container) for container in shares
    )
    return {_NODE: node, _IDS: ";".join(texts), _TIME: str(int(now))}


def _is_among(kind: str, kinds: str) -> bool:
    return any(part.upper() in kind.upper() for part in kinds.split(","))


def _share(card: str, _kind: str, memory: str, cores: str) -> Share:
    return Share(card, _count(memory), _count(cores))


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _whole(amount: Any) -> int:
    return parse_quantity(amount) // 1000


def _group(pod: Manifest) -> str:
    notes = pod["metadata"].get("annotations") or {}
    name = next((notes[key] for key in _GROUPS if notes.get(key)), "")
    return f"{pod['metadata'].get('namespace', '')}/{name}" if name else ""
