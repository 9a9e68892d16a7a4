# SPDX-License-Identifier: Apache-2.0
"""Plans for trees of queues: Volcano refuses no step, and the last one leaves the cluster as the tree says."""

from __future__ import annotations

import copy
from collections import defaultdict

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.names import QUEUE_TREE_LABEL
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.volcano.manifests.queue_plan import plan
from kfp_volcano.volcano.manifests.queue_state import Objects
from kfp_volcano.volcano.manifests.queues import targets

GPU, CPU = "nvidia.com/gpu", "cpu"


class RefusedError(Exception):
    """The webhook's answer."""


def resource(amounts):
    """NewResource (pkg/scheduler/api/resource_info.go): cpu and memory are always there, scalars where named."""
    found = {"cpu": 0.0, "memory": 0.0}
    for name, text in (amounts or {}).items():
        factor = 1 if name in {"memory", "pods"} else 1000
        found[name] = float(quantity(text) * factor)
    return found


def named(amounts):
    """ResourceNames: what is 0 is not there."""
    return {name: amount for name, amount in resource(amounts).items() if amount >= 0.1}


def less_partly(left, right):
    """LessPartly with default Zero: some dimension of `left` is less; a scalar that only `right` has counts."""
    if left["cpu"] < right["cpu"] or left["memory"] < right["memory"]:
        return True
    return any(name not in left for name in right) or any(left[name] < right.get(name, 0) for name in left)


class Webhook:
    """A port of validate_queue.go (1.15.1), function by function, and a cluster's queues behind it."""

    def __init__(self, queues=()):
        self.queues = {name: self.stored(name, {}) for name in ("root", "default")}
        self.queues |= {queue["metadata"]["name"]: queue for queue in queues}
        self.jobs = {}

    @staticmethod
    def stored(name, spec, labels=None):
        """A queue as the API server keeps it."""
        metadata = {"name": name, "uid": f"uid-{name}", **({"labels": labels} if labels else {})}
        spec = {"weight": 1, "reclaimable": True, **({} if name == "root" else {"parent": "root"}), **spec}
        return {"kind": "Queue", "metadata": metadata, "spec": spec, "status": {"state": "Open"}}

    def spec(self, name):
        return self.queues[name]["spec"]

    def below(self, name):
        return [each for each in self.queues if self.spec(each).get("parent") == name]

    def pods(self, name):
        """status.allocated.pods: what runs in a queue and below it, once the scheduler has counted."""
        return list(self.jobs.values()).count(name) + sum(map(self.pods, self.below(name)))

    def perform(self, step):
        """One step, as Volcano takes it."""
        name = step.name
        if step.kind != "Queue":
            return
        if step.action == "create":
            assert name not in self.queues
            queue = copy.deepcopy(dict(step.manifest))
            self.admit(self.stored(name, queue["spec"], queue["metadata"]["labels"]), None)
        elif step.action in {"update", "move"}:
            old = self.queues[name]
            self.admit(jsonpatch.apply_patch(old, list(step.patch)), old)
        elif step.action == "delete":
            self.admit_deletion(name)
            del self.queues[name]
        else:
            state = "Closing" if name in self.jobs.values() else "Closed"
            self.queues[name]["status"]["state"] = state if step.action == "close" else "Open"

    def end_jobs(self):
        """Every Job ends, and what closed is closed."""
        self.run_jobs({})

    def run_jobs(self, jobs):
        """These Jobs are there, by queue; a queue that closes is closed when it has none."""
        self.jobs = dict(jobs)
        for name, queue in self.queues.items():
            if queue["status"]["state"] == "Closing" and name not in self.jobs.values():
                queue["status"]["state"] = "Closed"

    def admit(self, queue, old):
        """AdmitQueues."""
        name, spec = queue["metadata"]["name"], queue["spec"]
        if queue["status"]["state"] not in {"Open", "Closed"}:  # validateStateOfQueue
            raise RefusedError("queue state must be in [Open Closed]")
        self.quantities(spec)
        if old is None or old["spec"]["parent"] != spec["parent"]:
            self.hierarchy(name, spec)
        keys = ("parent", "capability", "deserved", "guarantee")
        if old is None or any(old["spec"].get(key) != spec.get(key) for key in keys):
            self.resources(name, spec)
        self.queues[name] = queue

    def quantities(self, spec):
        """validateResourceQuantityOfQueue."""
        capability, deserved = spec.get("capability", {}), spec.get("deserved", {})
        for key, text in spec.get("guarantee", {}).get("resource", {}).items():
            if key not in deserved or quantity(deserved[key]) < quantity(text):
                raise RefusedError(f"deserved {key} must be >= guarantee")
        for key, text in deserved.items():
            if key in capability and quantity(text) > quantity(capability[key]):
                raise RefusedError(f"deserved {key} must be <= capability")

    def hierarchy(self, name, spec):
        """validateHierarchicalQueue, validateQueueDepth."""
        parent, depth = spec["parent"], 1
        if parent == "root":
            return
        if parent == name:
            raise RefusedError("itself as parent")
        above = parent
        while above != "root":
            depth += 1
            if depth > 5:
                raise RefusedError("depth")
            if above not in self.queues:
                raise RefusedError(f"no parent {above}")
            above = self.spec(above)["parent"]
        if not self.below(parent) and self.pods(parent):
            raise RefusedError(f"{parent} has allocated pods")

    def resources(self, name, spec):
        """validateHierarchicalQueueResources."""
        if spec["parent"] != "root":
            for key, most in named(spec.get("capability")).items():
                limit = self.nearest(spec["parent"], key)
                if limit is not None and most > limit:
                    raise RefusedError(f"{name} capability {key} exceeds its ancestor's")
            siblings = [self.spec(each) for each in self.below(spec["parent"]) if each != name]
            self.sums(self.spec(spec["parent"]), [*siblings, spec])
        below = self.below(name)
        if below:
            for key, most in named(spec.get("capability")).items():
                if most < max(self.largest(each, key) for each in below):
                    raise RefusedError(f"{name} capability {key} is smaller than its descendants'")
        if below:
            self.sums(spec, [self.spec(each) for each in below])

    def nearest(self, parent, key):
        """findNearestAncestorCapability."""
        while parent != "root":
            found = resource(self.spec(parent).get("capability")).get(key, 0)
            if found > 0:
                return found
            parent = self.spec(parent)["parent"]
        return None

    def largest(self, name, key):
        """findSubtreeMaxCapability."""
        found = resource(self.spec(name).get("capability")).get(key, 0)
        return found if found > 0 else max((self.largest(each, key) for each in self.below(name)), default=0)

    def sums(self, above, below):
        """validateSiblingsSum, validateChildrenConstraints."""
        for read in (lambda spec: spec.get("guarantee", {}).get("resource"), lambda spec: spec.get("deserved")):
            total = defaultdict(float, resource({}))
            for each in below:
                for key, amount in resource(read(each)).items():
                    total[key] += amount
                if less_partly(resource(read(above)), total):
                    raise RefusedError("sum of children exceeds parent")

    def admit_deletion(self, name):
        """validateQueueDeleting, and what the project promises on top."""
        if name in {"default", "root"} or self.below(name):
            raise RefusedError(f"{name} can not be deleted")
        assert name not in self.jobs.values()
        assert self.queues[name]["status"]["state"] == "Closed"

    def objects(self):
        """What a plan is made from."""
        queues = copy.deepcopy(list(self.queues.values()))
        for queue in queues:
            queue["status"]["allocated"] = {"pods": str(self.pods(queue["metadata"]["name"]))}
        jobs = [
            {"metadata": {"name": job, "namespace": "team"}, "spec": {"queue": queue}}
            for job, queue in self.jobs.items()
        ]
        return Objects(queues=queues, jobs=jobs)


def apply(webhook, tree):
    """Carry a plan out; every step is admitted."""
    found = plan(tree, webhook.objects())
    for step in found.steps:
        webhook.perform(step)
    return found


def possible(webhook, tree):
    """Whether there is a plan; there is none only where a queue would have to change while it closes."""
    try:
        plan(tree, webhook.objects())
    except SpecError as error:
        closing = {name for name, queue in webhook.queues.items() if queue["status"]["state"] == "Closing"}
        if not {problem.path for problem in error.problems} <= closing:
            raise
        return False
    return True


def brought_about(webhook, tree):
    """Each queue of the tree is what the tree says, by value."""
    for name, target in targets(tree).items():
        queue = webhook.queues[name]
        spec = queue["spec"]
        assert spec["parent"] == target.terms.parent
        for key, found in (
            ("capability", spec.get("capability", {})),
            ("deserved", spec.get("deserved", {})),
            ("guarantee", spec.get("guarantee", {}).get("resource", {})),
        ):
            wanted = getattr(target.terms, key)
            assert {each: quantity(text) for each, text in found.items()} == {
                each: quantity(text) for each, text in wanted.items()
            }, (name, key)
        assert spec.get("priority", 0) == target.settings["priority"]
        assert spec["reclaimable"] == target.settings["reclaimable"]
        assert queue["metadata"]["labels"][QUEUE_TREE_LABEL] == tree.name
        assert (queue["status"]["state"] == "Closed") == target.closed


NAMES = [f"q{number}" for number in range(8)]


def fill(draw, node, shares, limits):
    """Give a queue, and those below it, amounts within what is above."""
    capability = {
        key: draw(st.integers(max(shares["deserved"].get(key, 0), key == CPU), most))
        for key, most in limits.items()
        if draw(st.booleans())
    }
    node |= {what: dict(own) for what, own in shares.items()}
    node |= {"capability": capability, "priority": draw(st.integers(0, 2)), "reclaimable": draw(st.booleans())}
    left = {what: dict(own) for what, own in shares.items()}
    for child in node["queues"]:
        deserved = {key: draw(st.integers(0, most)) for key, most in left["deserved"].items()}
        guarantee = {
            key: draw(st.integers(0, min(most, deserved[key])))
            for key, most in left["guarantee"].items()
            if draw(st.booleans())
        }
        part = {"deserved": deserved, "guarantee": guarantee}
        for what, amounts in part.items():
            for key, amount in amounts.items():
                left[what][key] -= amount
        fill(draw, child, part, {**limits, **capability})
    if not node["queues"]:
        del node["queues"]


@st.composite
def trees(draw):
    """Sound trees over a few names, of any shape, with amounts that fit."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))]
    nodes = {name: {"name": name, "queues": []} for name in names}
    top, depth = [], {}
    for index, name in enumerate(names):
        above = draw(st.sampled_from([None, *names[:index]]))
        if above is None or depth[above] == 5:
            top.append(name)
            depth[name] = 1
        else:
            nodes[above]["queues"].append(nodes[name])
            depth[name] = depth[above] + 1
    for name in top:
        deserved = {key: draw(st.integers(0, 8)) for key in (CPU, GPU) if draw(st.booleans())}
        guarantee = {key: draw(st.integers(0, most)) for key, most in deserved.items() if draw(st.booleans())}
        fill(draw, nodes[name], {"deserved": deserved, "guarantee": guarantee}, {CPU: 16, GPU: 16})
    spec = {"plugin": "capacity", "queues": [nodes[name] for name in top]}
    return queue_tree({"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", "metadata": {"name": "t"}, "spec": spec})


@given(st.lists(trees(), min_size=2, max_size=4), st.data())
def test_no_step_is_refused_and_the_last_leaves_the_tree(sequence, data):
    """From any tree to any other, with Jobs in the way; a second plan is empty."""
    webhook = Webhook()
    for tree in sequence:
        if any(not target.leaf and name in webhook.jobs.values() for name, target in targets(tree).items()):
            with pytest.raises(SpecError, match="cannot get queues below it"):
                plan(tree, webhook.objects())
            webhook.end_jobs()
        if not possible(webhook, tree):
            webhook.end_jobs()
        found = apply(webhook, tree)
        brought_about(webhook, tree)
        for queue in set(webhook.jobs.values()) - set(targets(tree)) - {"default"}:
            assert webhook.queues[queue]["status"]["state"] == "Closing"
        again = plan(tree, webhook.objects())
        assert again.steps == ()
        assert again.differences == {}
        assert again.kept == found.kept
        leaves = sorted(name for name in webhook.queues if name != "root" and not webhook.below(name))
        started = {f"j{index}": data.draw(st.sampled_from(leaves)) for index in range(data.draw(st.integers(0, 2)))}
        webhook.run_jobs({**webhook.jobs, **started})
    webhook.end_jobs()
    apply(webhook, sequence[-1])
    assert set(webhook.queues) == {"root", "default", *targets(sequence[-1])}


def tree_of(*queues, **spec):
    """A tree by its queues."""
    document = {"metadata": {"name": "t"}, "spec": {"plugin": "capacity", "queues": list(queues), **spec}}
    return queue_tree({"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", **document})


def queue(name, gpu=None, *below, **more):
    """A queue that deserves GPUs."""
    return {
        "name": name,
        **({} if gpu is None else {"deserved": {"gpu": gpu}}),
        **({"queues": list(below)} if below else {}),
        **more,
    }


def actions(found):
    """What a plan does to queues, in short."""
    return [(step.action, step.name) for step in found.steps]


def test_parents_come_before_their_children():
    """A queue can only be created below one that is there and has enough."""
    found = plan(tree_of(queue("dept", 8, queue("a", 4), queue("b", 4))), Webhook().objects())
    assert actions(found) == [("create", "dept"), ("create", "a"), ("create", "b")]


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [((8, 4, 4), (12, 6, 6), ["dept", "a", "b"]), ((12, 6, 6), (8, 4, 4), ["a", "b", "dept"])],
    ids=["grow", "shrink"],
)
def test_growth_goes_down_and_shrinking_goes_up(before, after, order):
    """The queue above has the most at every time."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", before[0], queue("a", before[1]), queue("b", before[2]))))
    found = apply(webhook, tree_of(queue("dept", after[0], queue("a", after[1]), queue("b", after[2]))))
    assert [step.name for step in found.steps] == order
    assert {step.action for step in found.steps} == {"update"}


def test_what_one_gives_another_gets_in_two_steps():
    """Where only one has to give way first, no queue changes twice."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", 8, queue("a", 2), queue("b", 6))))
    found = apply(webhook, tree_of(queue("dept", 8, queue("a", 6), queue("b", 2))))
    assert actions(found) == [("update", "b"), ("update", "a")]


def test_an_exchange_takes_a_step_in_between():
    """One gives GPUs for CPUs, the other the reverse: neither can be first, so both give way before they get."""
    one, other = {"gpu": 8, "cpu": 2}, {"gpu": 2, "cpu": 8}
    dept = {"name": "dept", "deserved": {"gpu": 10, "cpu": 10}}
    webhook = Webhook()
    apply(webhook, tree_of(dept | {"queues": [{"name": "a", "deserved": one}, {"name": "b", "deserved": other}]}))
    found = apply(
        webhook, tree_of(dept | {"queues": [{"name": "a", "deserved": other}, {"name": "b", "deserved": one}]})
    )
    assert sorted(step.name for step in found.steps) in (["a", "a", "b", "b"], ["a", "a", "b"], ["a", "b", "b"])
    assert "gives way first" in found.steps[0].reason


def test_a_queue_that_has_jobs_is_never_deleted():
    """It is closed, deserves nothing, and goes when it is empty."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", 8, queue("a", 4), queue("b", 4))))
    webhook.jobs["j"] = "b"
    smaller = tree_of(queue("dept", 8, queue("a", 8)))
    found = apply(webhook, smaller)
    assert ("close", "b") in actions(found)
    assert found.deletions == ()
    assert found.kept == ("b has left the tree, but has Job team/j: apply again when that has ended",)
    assert "deserved" not in webhook.spec("b")
    assert webhook.spec("b")["parent"] == "dept"
    webhook.end_jobs()
    assert actions(apply(webhook, smaller)) == [("delete", "b")]


def test_a_queue_that_stays_for_its_jobs_is_no_obstacle_to_its_department():
    """Where the department itself goes, or becomes a team, the queue waits further up."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", 8, queue("a", 4), queue("b", 4))))
    webhook.jobs["j"] = "b"
    apply(webhook, tree_of(queue("dept", 8)))
    assert webhook.spec("b")["parent"] == "root"
    assert webhook.below("dept") == []


def test_a_queue_changes_before_it_is_closed():
    """Volcano takes no change of a queue that waits for its Jobs to end."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("a", 4)))
    webhook.jobs["j"] = "a"
    found = apply(webhook, tree_of(queue("a", 2, closed=True)))
    assert actions(found) == [("update", "a"), ("close", "a")]


def test_a_closing_queue_is_opened_before_it_changes():
    """Where the tree has it open again; otherwise the plan says what to wait for."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("a", 4)))
    webhook.jobs["j"] = "a"
    apply(webhook, tree_of(queue("a", 4, closed=True)))
    with pytest.raises(SpecError, match=r"a: is closing, .* \(wait for Job team/j to end\)"):
        plan(tree_of(queue("a", 2, closed=True)), webhook.objects())
    found = apply(webhook, tree_of(queue("a", 2)))
    assert actions(found) == [("open", "a"), ("update", "a")]


def test_queues_of_others_are_not_touched():
    """Neither changed nor deleted, whether they belong to another tree or to none."""
    others = [Webhook.stored("other", {}, {QUEUE_TREE_LABEL: "u"}), Webhook.stored("free", {"deserved": {GPU: "4"}})]
    found = plan(tree_of(queue("a", 4)), Webhook(others).objects())
    assert actions(found) == [("create", "a")]


def test_a_queue_of_no_tree_is_taken_over_and_the_plan_says_so():
    """What it has besides (weight, labels) stays."""
    webhook = Webhook([Webhook.stored("a", {"weight": 7, "deserved": {GPU: 2}}, {"team": "x"})])
    found = apply(webhook, tree_of(queue("a", 4)))
    assert actions(found) == [("update", "a")]
    assert "made by other means" in found.steps[0].reason
    assert webhook.queues["a"]["metadata"]["labels"] == {"team": "x", QUEUE_TREE_LABEL: "t"}
    assert webhook.spec("a")["weight"] == 7


def test_amounts_that_are_written_otherwise_are_the_same():
    """1Ti is 1024Gi, and a number is as good as its text."""
    webhook = Webhook()
    apply(webhook, tree_of({"name": "a", "capability": {"memory": "1Ti", "gpu": 4, "cpu": 2}}))
    webhook.spec("a")["capability"] = {"memory": "1024Gi", GPU: 4, "cpu": "2000m"}
    assert (
        plan(tree_of({"name": "a", "capability": {"memory": "1Ti", "gpu": 4, "cpu": 2}}), webhook.objects()).steps == ()
    )


def test_all_that_keeps_a_tree_from_a_cluster_is_told_at_once():
    """Another tree's queue, a team with Jobs that would become a department, a stranger below one of ours."""
    webhook = Webhook([Webhook.stored("theirs", {}, {QUEUE_TREE_LABEL: "u"})])
    apply(webhook, tree_of(queue("team"), queue("dept", None, queue("a"))))
    webhook.jobs["j"] = "team"
    webhook.queues["stranger"] = Webhook.stored("stranger", {"parent": "dept"})
    tree = tree_of(queue("theirs"), queue("team", None, queue("b")), queue("dept", None, queue("a")))
    with pytest.raises(SpecError) as caught:
        plan(tree, webhook.objects())
    assert [problem.path for problem in caught.value.problems] == ["theirs", "team", "stranger"]
    assert "Job team/j" in str(caught.value)


def test_pods_that_volcano_counts_keep_a_queue_a_leaf():
    """Also pods of no Job: Volcano would refuse the first queue below."""
    webhook = Webhook([Webhook.stored("team", {})])
    objects = webhook.objects()
    next(each for each in objects.queues if each["metadata"]["name"] == "team")["status"]["allocated"] = {"pods": "3"}
    with pytest.raises(SpecError, match="3 pods"):
        plan(tree_of(queue("team", None, queue("a"))), objects)


def test_pod_groups_of_no_job_count():
    """A PodGroup keeps its queue, whatever made it."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("a"), queue("b")))
    group = {"metadata": {"name": "g", "namespace": "n"}, "spec": {"queue": "b"}, "status": {"phase": "Completed"}}
    objects = webhook.objects()
    found = plan(tree_of(queue("a")), Objects(queues=objects.queues, pod_groups=[group]))
    assert found.deletions == ()
    assert "PodGroup n/g" in found.kept[0]


def test_jobs_that_have_ended_hold_nothing():
    """Only what may run again does."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("a"), queue("b")))
    job = {"metadata": {"name": "j", "namespace": "n"}, "spec": {"queue": "b"}}
    for phase, held in (("Completed", False), ("Failed", False), ("Aborted", True), ("Running", True)):
        ended = {**job, "status": {"state": {"phase": phase}}}
        found = plan(tree_of(queue("a")), Objects(queues=webhook.objects().queues, jobs=[ended]))
        assert (found.deletions == ()) is held, phase


def test_default_is_given_back_and_never_deleted():
    """It is Volcano's."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("default", None, capability={"gpu": 2}), queue("a")))
    assert webhook.spec("default")["capability"] == {GPU: "2"}
    found = apply(webhook, tree_of(queue("a")))
    assert actions(found) == [("update", "default")]
    assert plan(tree_of(queue("a")), webhook.objects()).steps == ()


def test_a_department_closes_and_opens_with_its_teams():
    """Below first when closing, above first when opening."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", None, queue("a"))))
    assert actions(apply(webhook, tree_of(queue("dept", None, queue("a"), closed=True)))) == [
        ("close", "a"),
        ("close", "dept"),
    ]
    assert actions(apply(webhook, tree_of(queue("dept", None, queue("a"))))) == [("open", "dept"), ("open", "a")]


def test_a_department_whose_teams_have_left_is_seen_empty_first():
    """Volcano counts pods once a cycle, and refuses a first queue below one that it believes to have pods."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("x", None, queue("a")), queue("y", None, queue("b"))))
    webhook.jobs |= {"i": "a", "j": "b"}
    found = plan(tree_of(queue("x", None, queue("b")), queue("y", None, queue("a"))), webhook.objects())
    assert [step.awaits for step in found.steps] == ["", "y"] or [step.awaits for step in found.steps] == ["", "x"]


def test_rules_broken_on_the_cluster_are_told_and_not_made_worse():
    """Where queues break Volcano's rules already there is no way that it would let pass."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("dept", 8, queue("a", 4), queue("b", 4))))
    webhook.queues["b"]["spec"]["deserved"] = {GPU: "40"}
    webhook.queues["a"]["spec"]["deserved"] = {GPU: "40"}
    with pytest.raises(SpecError, match="broken there already"):
        plan(tree_of(queue("dept", 8, queue("a", 4), queue("b", 4))), webhook.objects())


def test_a_patch_fails_where_the_queue_is_not_as_planned():
    """Every value that is replaced is tested, and the queue's uid."""
    webhook = Webhook()
    apply(webhook, tree_of(queue("a", 4)))
    (step,) = plan(tree_of(queue("a", 8)), webhook.objects()).steps
    webhook.spec("a")["deserved"] = {GPU: "6"}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        webhook.perform(step)


def quotas_of(tree):
    """The plan's steps for ResourceQuotas on a cluster with none."""
    return [step for step in plan(tree, Webhook().objects()).steps if step.kind == "ResourceQuota"]


def test_quotas_follow_the_queues():
    """Created, changed and deleted with the tree; a stranger of the same name is told."""
    tree = tree_of(queue("a", quotas={"vision": {"requests": {"gpu": 4, "pods": 20}, "jobs": 5}}))
    (step,) = quotas_of(tree)
    assert step.manifest["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "4",
        "pods": "20",
        "count/jobs.batch.volcano.sh": "5",
    }
    stored = {**step.manifest, "metadata": {**step.manifest["metadata"], "uid": "u"}}
    webhook = Webhook()
    apply(webhook, tree)

    def following(tree):
        objects = webhook.objects()
        return plan(tree, Objects(queues=objects.queues, quotas=[stored])).steps

    assert following(tree) == ()
    (step,) = following(tree_of(queue("a", quotas={"vision": {"jobs": 5, "requests": {"gpu": 4}}})))
    assert jsonpatch.apply_patch(stored, list(step.patch))["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "4",
        "count/jobs.batch.volcano.sh": "5",
    }
    assert [(each.action, each.kind) for each in following(tree_of(queue("a")))] == [("delete", "ResourceQuota")]
    stored["metadata"] = {"name": "a", "namespace": "vision", "uid": "u"}
    with pytest.raises(SpecError, match="ResourceQuota vision/a"):
        following(tree)
