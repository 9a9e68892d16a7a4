# SPDX-License-Identifier: Apache-2.0
"""The bodies of a policy test's steps: two policies compared on a scenario, and the better one put in force."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.elastic.simulator.simulate import POLICIES
from kfp_volcano.elastic.simulator.source import generate
from kfp_volcano.elastic.simulator.verdicts import sentence, verdicts
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.documents import parse
from kfp_volcano.schemas.names import ENV_OUT, MOUNT_PATH
from kfp_volcano.schemas.policy import BUILT_IN
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.schemas.scenario_validation import scenario as scenario_spec
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant, problems_of
from kfp_volcano.volcano.launcher.laboratory.running import Loads, compare
from kfp_volcano.volcano.launcher.laboratory.told import markdown
from kfp_volcano.volcano.launcher.policies_map import put_policy
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, say
from kfp_volcano.volcano.launcher.steps import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.elastic.simulator.verdicts import Verdict
    from kfp_volcano.schemas.scenario import ScenarioSpec
    from kfp_volcano.volcano.launcher.laboratory.study import Study

__all__ = ["Asked", "Tested", "accepted", "compare_step", "put_step"]

T = TypeVar("T")
_FEWEST = 2
_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be compared, as texts that a pipeline's form takes."""

    scenario: str
    """A Scenario document; a trace in it is a file on the volume that the step mounts."""
    current: str
    """A Policy document, or a policy by name."""
    candidate: str
    """Likewise, but one that an autoscaler can have."""
    metric: str
    least_gain: float
    """Per cent by which the candidate has to be better."""
    replications: int
    seed: int


@dataclass(frozen=True, slots=True)
class Tested:
    """What a test came to."""

    accepted: bool
    words: str
    study: Study


def compare_step(asked: Asked, *, page: str, summary: str) -> Tested:
    """Compare the candidate with the current policy; writes the page and the few lines that say it."""
    # The charts' library takes long to import, and no other step draws.
    from kfp_volcano.volcano.launcher.laboratory.page import page as drawn  # noqa: PLC0415

    with failing_cleanly("compare"):
        found = _tested(asked)
        say(found.words)
        html, lines = drawn(found.study), f"### {found.words}\n\n{markdown(found.study)}"
        places = {Path(page): html, Path(summary): lines}
        if kept := os.environ.get(ENV_OUT):
            places |= {Path(kept) / "policies.html": html, Path(kept) / "policies.md": lines}
        for path, text in places.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return found


def put_step(candidate: str, *, namespace: str) -> str:
    """Put a Policy in force; returns where it is: `namespace/ConfigMap/key`."""
    with failing_cleanly("put-policy"):
        _, document = _contestant(candidate, "candidate")
        written = candidate if "\n" in candidate.strip() else yaml.safe_dump(document, sort_keys=False)
        cluster = connect(patience_s=PATIENCE_S)
        pod = cluster.own_pod()
        place = namespace or (pod["metadata"]["namespace"] if pod else _NAMESPACE)
        key = put_policy(cluster, place, written)
        say(f"{key} of namespace {place} is written: autoscalers take it up when their files change")
        return f"{place}/{key}"


def accepted(verdict: Verdict, least_gain: float) -> bool:
    """Whether the candidate is better, significantly, and on average by so many per cent at least."""
    return verdict.better and verdict.change is not None and 100 * abs(verdict.change.mean) >= least_gain


def _tested(asked: Asked) -> Tested:
    wrong: list[Problem] = []
    if asked.metric not in METRICS:
        wrong.append(Problem("metric", f"{asked.metric!r} is no metric", ", ".join(METRICS)))
    if not asked.least_gain >= 0:  # nor is what is no number
        wrong.append(Problem("least_gain", f"{asked.least_gain:g} is less than 0", "per cent: 5"))
    if asked.replications < _FEWEST:
        wrong.append(Problem("replications", f"{asked.replications} of them have no interval", "2 at least; 20"))
    current = _tried(wrong, "current", lambda: _contestant(asked.current, "current"))
    candidate = _tried(wrong, "candidate", lambda: _contestant(asked.candidate, "candidate"))
    spec = _tried(wrong, "scenario", lambda: scenario_spec(parse(asked.scenario, source="scenario"), source="scenario"))
    if wrong or spec is None or current is None or candidate is None:
        raise SpecError(wrong, source="the policy test")
    study = _studied(asked, spec, [current[0], candidate[0]])
    (verdict,) = verdicts(study.replicated.figures if study.replicated else {}, [asked.metric])
    done = accepted(verdict, asked.least_gain)
    ending = f"Asked for are {asked.least_gain:g} % at least."
    words = f"{'Accepted' if done else 'Not accepted'}: {sentence(verdict)} {ending}"
    return Tested(done, words, study)


def _tried(wrong: list[Problem], role: str, read: Callable[[], T]) -> T | None:
    """What is read; None where that is wrong, and what is wrong with it is added to the rest."""
    try:
        return read()
    except SpecError as error:
        wrong += problems_of(error, role)
        return None


def _studied(asked: Asked, spec: ScenarioSpec, contestants: list[Contestant]) -> Study:
    """The comparison on the scenario, and on other loads: of its own, or of the jobs that it states."""
    folder = Path(MOUNT_PATH)
    loads = Loads(partial(_drawn, spec, folder), "drawn by the Scenario with other seeds") if spec.loads else None
    return compare(
        generate(spec, folder=folder, source="scenario"),
        contestants,
        seed=asked.seed,
        replications=asked.replications,
        loads=loads,
        best_by=asked.metric,
        told=_said(),
    )


def _drawn(spec: ScenarioSpec, folder: Path, seed: int) -> Scenario:
    return generate(spec, folder=folder, seed=seed, source="scenario")


def _said() -> Any:
    """Says what is being done, each tenth of it."""
    last = ("", -1)

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        if (now := (what, 10 * done // max(1, total))) != last:
            last = now
            say(f"{what}: {done} of {total} done")

    return tell


def _contestant(text: str, role: str) -> tuple[Contestant, dict[str, Any]]:
    """A policy under its role's name, and as a document; one that no autoscaler can have has none."""
    name = text.strip()
    if role == "current" and name in POLICIES and name not in BUILT_IN:
        return Contestant(f"current ({name})", name), {}
    if name in BUILT_IN:
        spec = {"queues": ["*"], "policy": name}
        document = {"apiVersion": "kfp-volcano/v1", "kind": "Policy", "metadata": {"name": name}, "spec": spec}
    elif "\n" not in name and ":" not in name:
        known = BUILT_IN if role == "candidate" else POLICIES
        raise SpecError([Problem(role, f"there is no policy {name!r}", f"{', '.join(known)}, or a Policy document")])
    else:
        document = dict(parse(text, source=role))
    read = policy(document, source=role, own=own_policies())
    return Contestant(f"{role} ({read.name})", read), document
