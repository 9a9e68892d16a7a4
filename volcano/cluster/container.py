# SPDX-License-Identifier: Apache-2.0
"""From a container's manifest to the program that runs on this machine.

As the kubelet does it: environment from values, the downward API and ConfigMaps, `$(NAME)` references, resolved anew
at each start. Beyond that, what a cluster provides and one machine lacks: the Job's host names become the addresses
of its pods, also in the files of ConfigMaps, and the mount paths of volumes become folders, in environment, command and
arguments; and servers that listen on all addresses (torchrun's, TensorFlow's, Ray's) get ports of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.errors import InvalidError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.model.pods import JOB
from kfp_volcano.volcano.model.resources import pod_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["Mount", "Program", "build_program", "with_addresses"]

_FIELD = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_MILLI = 1000
_SERVERS = {
    "PET_RDZV_ENDPOINT": names.RENDEZVOUS_PORT,
    names.ENV_HEAD: names.RAY_PORT,
    "TF_CONFIG": names.TENSORFLOW_PORT,
}
"""Variables that name such servers, and the port that they have in each pod of a real cluster."""

ReadData: TypeAlias = Callable[[str, str], Mapping[str, str] | None]
"""From a kind, ConfigMap or Secret, and a name in the pod's namespace to its data, or None where there is none."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a volume is: the path the container names, and the folder it means here."""

    path: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Program:
    """What to execute."""

    argv: list[str]
    env: dict[str, str]
    cwd: Path


def build_program(
    pod: Manifest,
    container: Manifest,
    *,
    base_env: Mapping[str, str],
    mounts: list[Mount],
    workdir: Path,
    interpreter: str,
    address_of: Callable[[str], str],
    port_of: Callable[[str], int],
    read_data: ReadData,
) -> Program:
    """The program of a container.

    Args:
        pod: its pod, with `status.podIP`.
        container: one of the pod's containers or init containers.
        base_env: what every process of this pod gets.
        mounts: the container's volumes.
        workdir: where it runs unless `workingDir` is one of its mounts or an absolute folder that exists.
        interpreter: what `python` and `python3` mean.
        address_of: from the name of a pod of the same namespace to its address.
        port_of: likewise, to a port that no other pod of the machine has.
        read_data: reads ConfigMaps and Secrets.

    Raises InvalidError for a reference to what does not exist.
    """
    here = _Localisation(pod, mounts, address_of, port_of)
    values = {name: here(text) for name, text in _from_sources(container, read_data)}
    for entry in container.get("env") or ():
        value = _value(entry, pod, read_data)
        if value is not None:
            text = _expand(value, values)
            port = _SERVERS.get(entry["name"])
            values[entry["name"]] = here(here.with_ports(text, port) if port else text)
    argv = [here(_expand(word, values)) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    if not argv:
        raise InvalidError(
            f"container {container['name']}: no command; images are not run here, so it must be written out"
        )
    if argv[0] in {"python", "python3"}:
        argv[0] = interpreter
    threads = str(max(1, pod_request(pod["spec"]).get("cpu", 0) // _MILLI))
    own = {"OMP_NUM_THREADS": threads, names.ENV_PORT: str(port_of(pod["metadata"]["name"]))}
    env = {**own, **base_env, **values}
    return Program(argv, env, _folder(container, here, workdir))


def with_addresses(text: str, pod: Manifest, address_of: Callable[[str], str]) -> str:
    """A text with the addresses of the pods of a pod's Job in place of their host names."""
    hosts = _host_names(pod)
    return text if hosts is None else hosts.sub(lambda match: address_of(match[1]), text)


def _host_names(pod: Manifest) -> re.Pattern[str] | None:
    """Finds the host names of the pods of a pod's Job; None where it has none."""
    job = re.escape((pod["metadata"].get("labels") or {}).get(JOB, ""))
    namespace = re.escape(pod["metadata"]["namespace"])
    return re.compile(
        rf"(?<![\w.-])({job}-[a-z0-9]([a-z0-9-]*[a-z0-9])?-\d+)\.{job}"
        rf"(\.{namespace}(\.svc(\.cluster\.local)?)?)?(?![\w-]|\.\w)"
    ) if job else None  # fmt: skip


class _Localisation:
    """Replaces, in a text, the Job's host names by addresses and mount paths by folders."""

    def __init__(
        self, pod: Manifest, mounts: list[Mount], address_of: Callable[[str], str], port_of: Callable[[str], int]
    ) -> None:
        self._pod = pod
        self._address_of = address_of
        self._port_of = port_of
        self._mounts = sorted(mounts, key=lambda mount: len(mount.path), reverse=True)

    def with_ports(self, text: str, port: int) -> str:
        """The text with the port of each of the Job's pods in place of this one, which all of them have."""
        hosts = _host_names(self._pod)
        if hosts is None:
            return text
        return re.compile(rf"{hosts.pattern}:{port}\b").sub(
            lambda match: match[0].rpartition(":")[0] + f":{self._port_of(match[1])}", text
        )

    def __call__(self, text: str) -> str:
        text = with_addresses(text, self._pod, self._address_of)
        for mount in self._mounts:
            path = re.escape(mount.path.rstrip("/"))
            folder = str(mount.folder).replace("\\", r"\\")
            text = re.sub(rf"(?<![\w./-]){path}(?=/|$|[^\w.-])", folder, text)
        return text


def _from_sources(container: Manifest, read_data: ReadData) -> Iterator[tuple[str, str]]:
    """The variables of `envFrom`: all of a ConfigMap or a Secret."""
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if field not in source:
                continue
            data = read_data(kind, source[field]["name"])
            if data is None and not source[field].get("optional"):
                raise InvalidError(f"envFrom: {kind.lower()} not found: {source[field]['name']}")
            for name, text in (data or {}).items():
                yield f"{source.get('prefix') or ''}{name}", text


def _value(entry: Mapping[str, Any], pod: Manifest, read_data: ReadData) -> str | None:
    """One variable's value, or None where an optional source is not there."""
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if field not in source:
            continue
        wanted = source[field]
        data = read_data(kind, wanted["name"])
        if data is not None and wanted["key"] in data:
            return str(data[wanted["key"]])
        if wanted.get("optional"):
            return None
        missing = f"couldn't find key {wanted['key']} in {kind}" if data is not None else f"{kind.lower()} not found:"
        raise InvalidError(f"env {entry['name']}: {missing} {wanted['name']}")
    raise InvalidError(f"env {entry['name']}: {', '.join(source)} is not offered by the embedded cluster")


def _field(pod: Manifest, path: str) -> str:
    """The downward API, as far as pods of this project use it."""
    metadata, status = pod["metadata"], pod.get("status", {})
    match = _FIELD.match(path)
    if match:
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
    }
    if path not in values:
        raise InvalidError(f"fieldPath {path} is not offered by the embedded cluster; there are {', '.join(values)}")
    return str(values[path])


def _expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` by the value of a variable already defined; `$$` is a dollar sign; unknown names stay as they are."""
    return _REFERENCE.sub(lambda match: "$" if match[1] == "$" else values.get(match[2], match[0]), text)


def _folder(container: Manifest, here: _Localisation, workdir: Path) -> Path:
    stated = container.get("workingDir")
    folder = Path(here(stated)) if stated else workdir
    return folder if folder.is_dir() else workdir
