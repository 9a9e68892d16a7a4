# SPDX-License-Identifier: Apache-2.0
"""The published schema of pod templates: Volcano's definition of a Job, with Kubernetes' rules for single fields.

The CustomResourceDefinition knows the types of a pod template alone. What Kubernetes asks of a field by itself, names,
numbers, choices, is added here; what it asks of fields together is `kfp_volcano.schemas.pod_template`'s. Source:
pkg/apis/core/validation/validation.go of Kubernetes 1.35, as Volcano's webhook calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["published"]

Rule = dict[str, Any]

_BOUNDS = {"int32": 2**31, "int64": 2**63}
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_PART = r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_SEGMENT = r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_CASELESS = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_HUGE = r"hugepages-[1-9][0-9]{0,8}[KMG]i"

LABEL = {"pattern": f"^{_LABEL}$", "maxLength": 63}
SUBDOMAIN = {"pattern": f"^{_SUBDOMAIN}$", "maxLength": 253}
QUALIFIED = {"pattern": f"^({_SUBDOMAIN}/)?{_PART}$", "maxLength": 253}
LABEL_VALUE = {"pattern": f"^({_PART})?$"}
ENV_NAME = {"pattern": r"^[A-Za-z_][-._A-Za-z0-9]*$"}
KEY = {"pattern": r"^(\.?[-_A-Za-z0-9])[-._A-Za-z0-9]*$", "maxLength": 253}
PORT_NAME = {"pattern": r"^(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 15}
PORT = {"minimum": 1, "maximum": 65535}
FILE = {"pattern": r"^(?!/)(?!\.\.)(?!.*/\.\.(/|$))[^\n]+$"}
"""A path in a volume: relative, not beginning with `..`, without `..` as a part."""
BELOW = {"pattern": r"^(?!/)(?!\.\.(/|$))(?!.*/\.\.(/|$))[^\n]*$"}
STAYS = {"pattern": r"^(?!\.\.(/|$))(?!.*/\.\.(/|$))[^\n]+$"}
"""A path without `..` as a part."""
SOME = {"minLength": 1}
COUNT = {"minimum": 0}
ID = {"minimum": 0, "maximum": 2**31 - 1}
MODE = {"minimum": 0, "maximum": 0o777}
AMOUNT = {
    "minimum": 0,
    "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?$",
}


def _among(*values: str) -> Rule:
    return {"enum": list(values)}


_RULES: dict[str, Rule] = {
    "metadata.labels": {"propertyNames": QUALIFIED, "additionalProperties": LABEL_VALUE},
    "metadata.annotations": {"propertyNames": QUALIFIED},
    "spec.activeDeadlineSeconds": {"minimum": 1, "maximum": 2**31 - 1},
    "spec.dnsPolicy": _among("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "spec.hostname": LABEL,
    "spec.nodeName": SUBDOMAIN,
    "spec.nodeSelector": {"propertyNames": QUALIFIED, "additionalProperties": LABEL_VALUE},
    "spec.os.name": _among("linux"),
    "spec.priorityClassName": SUBDOMAIN,
    "spec.restartPolicy": _among("Always", "OnFailure", "Never"),
    "spec.runtimeClassName": SUBDOMAIN,
    "spec.serviceAccount": SUBDOMAIN,
    "spec.serviceAccountName": SUBDOMAIN,
    "spec.subdomain": LABEL,
    "dnsConfig.nameservers": {"maxItems": 3},
    "dnsConfig.searches": {"maxItems": 32},
    "dnsConfig.searches.*": {
        "pattern": r"^(\.|[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*\.?)$"
    },
    "dnsConfig.options.name": SOME,
    "hostAliases.hostnames.*": SUBDOMAIN,
    "readinessGates.conditionType": QUALIFIED,
    "resourceClaims.name": LABEL,
    "resourceClaims.resourceClaimName": SUBDOMAIN,
    "resourceClaims.resourceClaimTemplateName": SUBDOMAIN,
    "schedulingGates.name": QUALIFIED,
    "tolerations.effect": _among("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerations.key": QUALIFIED,
    "tolerations.operator": _among("Equal", "Exists"),
    "tolerations.value": LABEL_VALUE,
    "topologySpreadConstraints.maxSkew": {"minimum": 1},
    "topologySpreadConstraints.minDomains": {"minimum": 1},
    "topologySpreadConstraints.nodeAffinityPolicy": _among("Honor", "Ignore"),
    "topologySpreadConstraints.nodeTaintsPolicy": _among("Honor", "Ignore"),
    "topologySpreadConstraints.topologyKey": QUALIFIED,
    "topologySpreadConstraints.whenUnsatisfiable": _among("DoNotSchedule", "ScheduleAnyway"),
    # affinity and selectors
    "weight": {"minimum": 1, "maximum": 100},
    "matchFields.key": _among("metadata.name"),
    "matchFields.operator": _among("In", "NotIn"),
    "matchFields.values": {"minItems": 1, "maxItems": 1},
    "matchFields.values.*": SUBDOMAIN,
    "matchExpressions.key": QUALIFIED,
    "matchExpressions.values.*": LABEL_VALUE,
    "matchLabels": {"propertyNames": QUALIFIED, "additionalProperties": LABEL_VALUE},
    "labelSelector.matchExpressions.operator": _among("In", "NotIn", "Exists", "DoesNotExist"),
    "namespaceSelector.matchExpressions.operator": _among("In", "NotIn", "Exists", "DoesNotExist"),
    "selector.matchExpressions.operator": _among("In", "NotIn", "Exists", "DoesNotExist"),
    "preference.matchExpressions.operator": _among("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "nodeSelectorTerms.matchExpressions.operator": _among("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "nodeSelectorTerms": {"minItems": 1},
    "matchLabelKeys.*": QUALIFIED,
    "mismatchLabelKeys.*": QUALIFIED,
    "namespaces.*": LABEL,
    "topologyKey": QUALIFIED,
    # containers
    "containers.name": LABEL,
    "containers.image": {"pattern": r"^\S(.*\S)?$"},
    "containers.imagePullPolicy": _among("Always", "IfNotPresent", "Never"),
    "initContainers.restartPolicy": _among("Always"),
    "containers.terminationMessagePolicy": _among("File", "FallbackToLogsOnError"),
    "env.name": ENV_NAME,
    "envFrom.prefix": ENV_NAME,
    "fieldRef.apiVersion": _among("v1"),
    "configMapKeyRef.key": KEY,
    "configMapKeyRef.name": SUBDOMAIN,
    "secretKeyRef.key": KEY,
    "secretKeyRef.name": SUBDOMAIN,
    "configMapRef.name": SUBDOMAIN,
    "secretRef.name": SUBDOMAIN,
    "resourceFieldRef.resource": {"pattern": rf"^(limits|requests)\.(cpu|memory|ephemeral-storage|{_HUGE})$"},
    "ports.containerPort": PORT,
    "ports.hostPort": {**PORT, "minimum": 0},
    "ports.name": PORT_NAME,
    "ports.protocol": _among("TCP", "UDP", "SCTP"),
    "volumeMounts.name": LABEL,
    "volumeMounts.mountPath": SOME,
    "volumeMounts.mountPropagation": _among("None", "HostToContainer", "Bidirectional"),
    "volumeMounts.recursiveReadOnly": _among("Disabled", "IfPossible", "Enabled"),
    "volumeMounts.subPath": BELOW,
    "volumeMounts.subPathExpr": BELOW,
    "volumeDevices.name": LABEL,
    "volumeDevices.devicePath": STAYS,
    "resizePolicy.resourceName": _among("cpu", "memory"),
    "resizePolicy.restartPolicy": _among("NotRequired", "RestartContainer"),
    "claims.name": LABEL,
    "claims.request": LABEL,
    "exec.command": {"minItems": 1},
    "httpGet.path": SOME,
    "httpGet.scheme": _among("HTTP", "HTTPS"),
    "httpHeaders.name": {"pattern": r"^[-A-Za-z0-9]+$"},
    "httpGet.port": {**PORT, **PORT_NAME},
    "tcpSocket.port": {**PORT, **PORT_NAME},
    "grpc.port": PORT,
    "sleep.seconds": {"minimum": 1},
    "failureThreshold": COUNT,
    "initialDelaySeconds": COUNT,
    "periodSeconds": COUNT,
    "successThreshold": COUNT,
    "timeoutSeconds": COUNT,
    "livenessProbe.successThreshold": {"minimum": 0, "maximum": 1},
    "startupProbe.successThreshold": {"minimum": 0, "maximum": 1},
    "livenessProbe.terminationGracePeriodSeconds": {"minimum": 1},
    "startupProbe.terminationGracePeriodSeconds": {"minimum": 1},
    # security contexts
    "fsGroup": ID,
    "runAsGroup": ID,
    "runAsUser": ID,
    "supplementalGroups.*": ID,
    "fsGroupChangePolicy": _among("OnRootMismatch", "Always"),
    "seLinuxChangePolicy": _among("Recursive"),  # the other behind a feature gate
    "supplementalGroupsPolicy": _among("Merge", "Strict"),
    "procMount": _among("Default", "Unmasked"),
    "seccompProfile.type": _among("Localhost", "RuntimeDefault", "Unconfined"),
    "seccompProfile.localhostProfile": BELOW,
    "appArmorProfile.type": _among("Localhost", "RuntimeDefault", "Unconfined"),
    "appArmorProfile.localhostProfile": {"pattern": r"^\S(.*\S)?$", "maxLength": 4095},
    "sysctls.name": {
        "pattern": rf"^({_SEGMENT}[./])*{_SEGMENT}$",
        "maxLength": 253,
    },
    # volumes
    "volumes.name": LABEL,
    "partition": {"minimum": 0, "maximum": 255},
    "defaultMode": MODE,
    "mode": MODE,
    "items.key": SOME,
    "items.path": FILE,
    "volumes.configMap.name": SOME,
    "volumes.secret.secretName": SOME,
    "sources.configMap.name": SOME,
    "sources.secret.name": SOME,
    "serviceAccountToken.expirationSeconds": {"minimum": 600, "maximum": 2**32},
    "serviceAccountToken.path": FILE,
    "hostPath.path": STAYS,
    "hostPath.type": _among(
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"
    ),
    "persistentVolumeClaim.claimName": SOME,
    "emptyDir.sizeLimit": AMOUNT,
    "nfs.path": {"pattern": r"^/.*$"},
    "csi.driver": {"pattern": rf"^{_CASELESS}(\.{_CASELESS})*$", "maxLength": 63},
    "nodePublishSecretRef.name": SUBDOMAIN,
    "image.pullPolicy": _among("Always", "IfNotPresent", "Never"),
    "image.reference": {"pattern": r"^\S(.*\S)?$"},
    "volumeClaimTemplate.metadata.labels": {"propertyNames": QUALIFIED, "additionalProperties": LABEL_VALUE},
    "volumeClaimTemplate.metadata.annotations": {"propertyNames": QUALIFIED},
    "accessModes": {"minItems": 1},
    "accessModes.*": _among("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
    "volumeMode": _among("Block", "Filesystem"),
    "storageClassName": {"pattern": f"^({_SUBDOMAIN})?$", "maxLength": 253},
    "volumeAttributesClassName": SUBDOMAIN,
}
"""The end of a field's path, `*` for an entry of a list, and what its value has to be besides."""

_LEFT_OUT = {
    # Kubernetes refuses them in a template, or fills them in itself
    *("spec.ephemeralContainers", "spec.overhead", "spec.preemptionPolicy", "spec.priority"),
    # Volcano's webhook refuses what Kubernetes has known for a short time only
    *("spec.containers.restartPolicy", "containers.restartPolicyRules", "initContainers.resizePolicy"),
    # behind feature gates that are off, or taken for other pods than these
    *("spec.hostnameOverride", "spec.resources", "spec.workloadRef", "lifecycle.stopSignal", "valueFrom.fileKeyRef"),
    *("sources.clusterTrustBundle", "sources.podCertificate", "securityContext.windowsOptions"),
}
"""The ends of the paths of fields that no pod of a training can have."""
_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "persistentVolumeClaim"),
    *("projected", "secret"),
}
_DISKS = {
    *("awsElasticBlockStore", "azureFile", "cephfs", "gcePersistentDisk", "glusterfs", "portworxVolume", "rbd"),
    "vsphereVolume",
}
"""Kinds of volumes, and those of them that need nothing but their required fields; the others are gone or are of use
through a claim alone."""
_AMOUNTS = {"limits", "requests"}
_RESOURCE = {"pattern": f"^(cpu|memory|ephemeral-storage|storage|{_HUGE}|{_SUBDOMAIN}/{_PART})$", "maxLength": 253}


def published(template: Mapping[str, Any]) -> Rule:
    """The published schema, from that of the pod template in the CustomResourceDefinition of a Job."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kfp-volcano:schema:pod-template:v1",
        "title": "pod template",
        "description": "The pod template of a task as the CustomResourceDefinition of Volcano 1.15.1 has it "
        "(Apache-2.0, The Volcano Authors), with what Kubernetes 1.35 asks of single fields, and without keys that no "
        "pod of a training can have.",
        **_json_schema(template, ()),
    }


def _json_schema(rule: Mapping[str, Any], path: tuple[str, ...]) -> Rule:
    """A part of a CustomResourceDefinition as a JSON Schema that knows no unknown keys."""
    made = {**_own(rule, path), **_asked(path)}
    if path[-2:-1] and path[-2] in _DISKS:
        made |= {"string": SOME, "array": {"minItems": 1}}.get(made["type"], {})
    if "items" in rule:
        made["items"] = _json_schema(rule["items"], (*path, "*"))
    if "properties" in rule:
        made["additionalProperties"] = False
        made["properties"] = {
            key: _json_schema(part, (*path, key))
            for key, part in rule["properties"].items()
            if not _left_out((*path, key))
        }
    elif "additionalProperties" in rule and "additionalProperties" not in made:
        made["additionalProperties"] = _json_schema(rule["additionalProperties"], (*path, "*"))
    if isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = {"type": "string", **made["additionalProperties"]}
    if path[-1:] and path[-1] in _AMOUNTS:
        made |= {"propertyNames": _RESOURCE, "additionalProperties": {"type": ["integer", "string"], **AMOUNT}}
    return made


def _own(rule: Mapping[str, Any], path: tuple[str, ...]) -> Rule:
    if "x-kubernetes-int-or-string" in rule:
        return {"type": ["integer", "string"], **({"pattern": rule["pattern"]} if "pattern" in rule else {})}
    kept = {key: rule[key] for key in ("type", "required", "pattern", "enum", "minLength", "maxLength") if key in rule}
    if rule.get("format") in _BOUNDS:
        bound = _BOUNDS[rule["format"]]
        kept |= {"minimum": -bound, "maximum": bound - 1}
    return kept


def _asked(path: tuple[str, ...]) -> Rule:
    """What Kubernetes asks of the field at a path: of rules for its last parts, that for the most of them."""
    names = [part for part in path if part != "*"]
    if path and path[-1] == "*":
        names.append("*")
    for start in range(len(names)):
        end = names[start:]
        for each in (".".join(end), ".".join("containers" if part == "initContainers" else part for part in end)):
            if each in _RULES:
                return _RULES[each]
    return {}


def _left_out(path: tuple[str, ...]) -> bool:
    names = [part for part in path if part != "*"]
    if names[-2:-1] == ["volumes"] and names[-1] not in {*_VOLUMES, *_DISKS, "name"}:
        return True
    # A claim's template has a spec within the pod's, with fields of its own.
    starts = [start for start in range(len(names)) if start == 0 or names[start] != "spec"]
    return any(".".join(names[start:]) in _LEFT_OUT for start in starts)
