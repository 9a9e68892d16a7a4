# SPDX-License-Identifier: Apache-2.0
"""People and their Jobs: they submit, hold, resize, cancel, write nonsense, and change their minds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.names import CORE, ELASTIC, GPU, HOLD, PROGRESS, REQUEST, RESIZE
from kfp_volcano.schemas.records import Hold, ResizeRequest, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import key_of
from storms.cluster import CLASSES
from storms.followers import follow
from storms.program import Program

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["NAMESPACE", "People"]

NAMESPACE = "ml"
_OTHERS = "team"
_MOST_JOBS = 6
_MOST_GANGS = 4
_GARBAGE = (
    "",
    "{",
    "null",
    "[]",
    "[{}]",
    '{"id": 7}',
    '{"until": "tomorrow"}',
    "no JSON",
    '[{"id": "x", "phase": "Maybe"}]',
)


class People:
    """All of them."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._random = storm.random
        self._numbers = itertools.count(1)
        self._left = False
        self.programs: list[Program] = []
        """Steps of pipelines that follow Jobs."""

    def begin(self) -> None:
        """The first Jobs, and whatever comes to mind later."""
        for _ in range(self._random.randint(2, 5)):
            self._submit()
        for _ in range(self._random.randint(0, 2)):
            self._gang()
        self._storm.kubelet.report()
        self._later()

    def leave(self) -> None:
        """From now on the load is what it is; what people have set by hand runs out."""
        self._left = True

    def _later(self) -> None:
        self._storm.at(self._random.uniform(3.0, 40.0), self._act)

    def _act(self) -> None:
        if self._left:
            return
        acts = {
            self._submit: 3, self._gang: 5, self._hold: 4, self._release: 1, self._ask: 2, self._edit: 1,
            self._cancel: 1, self._end: 2, self._nonsense: 2, self._reshare: 1,
        }  # fmt: skip
        act = self._random.choices(list(acts), list(acts.values()))[0]
        try:
            act()
        except ClusterError as error:
            self._storm.say(f"a person is refused: {error}")
        self._later()

    # Jobs.
    def _submit(self) -> None:
        if len(self._elastic()) >= _MOST_JOBS:
            return
        random = self._random
        name = f"job-{next(self._numbers)}"
        low = random.randint(1, 3)
        high = low + random.randint(1, 5)
        sizes = sorted({low, high, *random.sample(range(low, high + 1), random.randint(1, high - low))})
        gpus = random.choice([1, 1, 1, 2])
        live = random.random() < 0.5
        spec = {
            "framework": "pytorch" if live else "custom",
            "image": "train",
            "command": ["train"],
            "queue": random.choice(self._storm.cluster.queues),
            "roles": {
                "worker": {
                    "replicas": {"min": low, "max": high, **({"sizes": sizes} if random.random() < 0.5 else {})},
                    "resources": {"gpu": gpus},
                }
            },
            "elasticity": {
                "strategy": "live" if live else "restart",
                "cooldown": f"{random.choice([0, 10, 30, 60, 120])}s",
                "grace": "10s",
            },
            "checkpoint": {"volume": "checkpoints"},
            **({"priority": random.choice(sorted(CLASSES))} if random.random() < 0.5 else {}),
        }
        head = {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        job = training_job({**head, "spec": spec})
        manifest = job_manifest(job, name=name, run_id=f"run-{name}", step="submit", workers=random.choice([low, high]))
        if live or random.random() < 0.5:
            manifest["metadata"]["labels"]["trains"] = "yes"
        self._storm.store.create(manifest)
        self._storm.say(f"{name} in {spec['queue']}: {low}-{high} of {gpus} GPUs {spec.get('priority', '')}")
        if random.random() < 0.4:
            self._follow(name)

    def _gang(self) -> None:
        """A Job that is not elastic comes, and goes after a while."""
        random = self._random
        if len([job for job in self._jobs() if job["metadata"]["namespace"] == _OTHERS]) >= _MOST_GANGS:
            return
        name, pods, gpus = f"gang-{next(self._numbers)}", random.randint(1, 4), random.choice([1, 1, 2])
        container = {"name": "main", "image": "x", "command": ["x"], "resources": {"limits": {GPU: str(gpus)}}}
        task = {
            "name": "main",
            "replicas": pods,
            "minAvailable": pods,
            "template": {"spec": {"containers": [container]}},
        }
        spec = {
            "queue": random.choice(self._storm.cluster.queues),
            "minAvailable": pods,
            "schedulerName": "volcano",
            "tasks": [task],
            **({"priorityClassName": random.choice(sorted(CLASSES))} if random.random() < 0.4 else {}),
        }
        head = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": _OTHERS},
        }
        self._storm.store.create({**head, "spec": spec})
        self._storm.say(f"{name} in {spec['queue']}: {pods} pods of {gpus} GPUs {spec.get('priorityClassName', '')}")
        self._storm.at(random.uniform(20.0, 200.0), lambda: self._delete(name, _OTHERS))

    def _delete(self, name: str, namespace: str) -> None:
        there = any(key_of(job) == (namespace, name) for job in self._jobs())
        if there and not self._left:
            self._storm.store.delete("Job", name, namespace)
            self._storm.say(f"{name} is deleted")

    def _cancel(self) -> None:
        job = self._some()
        if job:
            self._delete(job["metadata"]["name"], NAMESPACE)

    def _end(self) -> None:
        """A Job's training ends, well or badly."""
        job = self._some()
        if job is None or len(self._elastic()) < 3:
            return
        name, well = job["metadata"]["name"], self._random.random() < 0.6
        self._storm.say(f"{name} {'is done' if well else 'fails'}")
        for pod in self._storm.store.list("Pod", NAMESPACE)[0]:
            labels = pod["metadata"]["labels"]
            if labels.get("volcano.sh/job-name") == name and labels.get("volcano.sh/task-spec") in {CORE, ELASTIC}:
                self._storm.kubelet.end(pod, well=well)

    # By hand.
    def _hold(self) -> None:
        job = self._some()
        if job is None:
            return
        override = self._random.choice([None, None, *range(1, 9)])
        hold = Hold(until=self._storm.now + self._random.uniform(5.0, 300.0), by="ada", override=override)
        self._annotate(job, HOLD, dump(hold))
        self._storm.count("override" if override else "hold")

    def _release(self) -> None:
        job = self._some()
        if job:
            self._annotate(job, HOLD, dump(Hold(until=0.0, by="ada")))

    def _ask(self) -> None:
        """`kfp-volcano resize`, without caring for what is there already: the last word counts."""
        job = self._some()
        if job is None:
            return
        request = ResizeRequest(
            id=f"ada-{next(self._numbers)}",
            from_workers=workers(job),
            to_workers=self._random.randint(0, 9),
            reason="Person",
            explanation="ada wants it so",
            policy="person",
            by="ada",
            at=self._storm.now,
            expires=self._storm.now + self._random.uniform(5.0, 600.0),
        )
        self._annotate(job, REQUEST, dump(request))
        self._storm.count("asked by hand")

    def _edit(self) -> None:
        """`kubectl edit`: the number of workers is another, and nobody has asked."""
        job = self._some()
        tasks = [task["name"] for task in job["spec"]["tasks"]] if job else []
        if job is None or ELASTIC not in tasks:
            return
        path = f"/spec/tasks/{tasks.index(ELASTIC)}/replicas"
        size = self._random.randint(0, 4)
        self._storm.store.patch("Job", job["metadata"]["name"], NAMESPACE, [{"op": "add", "path": path, "value": size}])
        self._storm.count("edited by hand")

    def _nonsense(self) -> None:
        """Half of a record, or none."""
        job = self._some()
        if job:
            key = self._random.choice([REQUEST, RESIZE, HOLD, PROGRESS])
            text = self._random.choice(_GARBAGE)
            before = (job["metadata"].get("annotations") or {}).get(key, "")
            if before and self._random.random() < 0.5:
                text = before[: self._random.randint(1, len(before) - 1)] if len(before) > 1 else text
            self._annotate(job, key, text)
            self._storm.count("nonsense")

    def _reshare(self) -> None:
        """Another capability, where the tree allows it."""
        queue = self._random.choice(self._storm.cluster.queues)
        gpus = self._random.randint(0, self._storm.cluster.total)
        value = {GPU: str(gpus)}
        self._storm.store.patch("Queue", queue, "", [{"op": "add", "path": "/spec/capability", "value": value}])
        self._storm.say(f"{queue} may have {gpus} GPUs")
        self._storm.count("queue changed")

    # Steps of pipelines.
    def _follow(self, name: str) -> None:
        run = f"run-{name}-{next(self._numbers)}"
        program = Program(self._storm, f"train:{run}", lambda program: follow(program, NAMESPACE, name, run))
        self.programs.append(program)
        self._storm.at(self._random.uniform(0.0, 30.0), program.start)
        if self._random.random() < 0.5:
            self._storm.at(self._random.uniform(30.0, 600.0), program.kill)

    def _annotate(self, job: dict[str, Any], key: str, text: str) -> None:
        namespace, name = key_of(job)
        update_annotation(self._storm.store, "Job", name, namespace, key, lambda _: text)
        self._storm.say(f"{name}: {key.rpartition('/')[2]} by hand: {text[:120]}")

    def _jobs(self) -> list[dict[str, Any]]:
        return self._storm.store.list("Job")[0]

    def _elastic(self) -> list[dict[str, Any]]:
        ours = [job for job in self._jobs() if job["metadata"]["namespace"] == NAMESPACE]
        return [job for job in ours if not job_state(job).final and job_state(job) is not JobState.ENDING]

    def _some(self) -> dict[str, Any] | None:
        jobs = self._elastic()
        return self._random.choice(jobs) if jobs else None
