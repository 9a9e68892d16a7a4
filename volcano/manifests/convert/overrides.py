# SPDX-License-Identifier: Apache-2.0
"""What a TrainJob changes in the pods of its runtime.

Source: kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go: `podSpecOverrides` of v2.0,
`podTemplateOverrides` of v2.1 and v2.2, `runtimePatches` of v2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert.draft import CONTAINER, OTHERS
from kfp_volcano.volcano.manifests.convert.environment import read_environment
from kfp_volcano.volcano.manifests.convert.pod import read_pod, read_pod_metadata, read_security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["read_overrides"]

_MAIN = ("node", "trainer", "launcher")


def read_overrides(spec: View, drafts: Mapping[str, Draft]) -> list[View]:
    """Apply the overrides to the roles, which `drafts` has by the names of the runtime's replicated jobs.

    Gives the metadata of the JobSet that `runtimePatches` change.
    """
    for key in ("podSpecOverrides", "podTemplateOverrides"):
        for override in spec.maps(key):
            targets = [name for target in override.maps("targetJobs") if (name := target.text("name", to="spec.roles"))]
            pods = override if key == "podSpecOverrides" else override.map("spec")
            # Without targets it is for all jobs.
            _apply(override.map("metadata"), pods, targets or list(drafts), drafts)
    jobsets = []
    for patch in spec.maps("runtimePatches"):
        patch.text("manager", to="spec")
        patch.any("time", to="spec")
        jobset = patch.map("trainingRuntimeSpec").map("template")
        jobsets.append(jobset.map("metadata"))
        for job in jobset.map("spec").maps("replicatedJobs"):
            template = job.map("template").map("spec").map("template")
            _apply(template.map("metadata"), template.map("spec"), [job.text("name", to="spec.roles") or ""], drafts)
    return jobsets


def _apply(metadata: View, pod: View, targets: list[str], drafts: Mapping[str, Draft]) -> None:
    known = [drafts[name] for name in targets if name in drafts]
    for draft in known:
        read_pod_metadata(metadata, draft)
        containers = pod.maps("containers")
        main = next((container for container in containers if container.peek("name") in _MAIN), None)
        if main is not None:
            main.text("name", to=draft.place())
            read_environment(main, draft, override=True)
            read_security(main, draft, "containerSecurityContext", (*CONTAINER, "securityContext"))
        others = [container for container in containers if container is not main]
        for place, group in ((OTHERS, others), (("spec", "initContainers"), pod.maps("initContainers"))):
            for container in group:
                draft.patch.join(place, {key: container.any(key) for key in container}, container.at())
        read_pod(pod, draft, container=main)
    if not known:
        for key in pod:
            pod.lost(key, f"is for {', '.join(targets)}, which has no counterpart")
