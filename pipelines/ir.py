# SPDX-License-Identifier: Apache-2.0
"""A compiled pipeline: KFP's IR as a value, with what identifies it and the parameters it takes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.template import cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CompiledPipeline", "compiled"]

_MOST_BYTES = 32 << 20
"""What the backend takes (backend/src/apiserver/common/const.go, MaxFileLength)."""
_LARGEST = 2**53
"""From here on neighbouring integers are one double."""
_NAMES = {bool: "BOOLEAN", str: "STRING", list: "LIST", dict: "STRUCT"}


@dataclass(frozen=True, slots=True)
class CompiledPipeline:
    """IR YAML, read once."""

    text: str
    name: str
    digest: str
    """Of what it says: comments, order and layout of the YAML do not count."""
    inputs: Mapping[str, Mapping[str, Any]]
    """The parameters' specifications, as the IR has them, by name."""

    @classmethod
    def parse(cls, text: str, *, source: str = "the pipeline") -> CompiledPipeline:
        """Read IR YAML. Raises SpecError for anything else."""
        try:
            documents = [each for each in yaml.safe_load_all(text) if each is not None]
        except yaml.YAMLError as error:
            raise SpecError(f"is not YAML: {' '.join(str(error).split())}", source=source) from error
        spec = documents[0] if documents and isinstance(documents[0], dict) else {}
        try:
            name, root = str(spec["pipelineInfo"]["name"]), spec["root"]
            inputs = (root.get("inputDefinitions") or {}).get("parameters") or {}
        except (KeyError, TypeError, AttributeError) as error:
            remedy = "give a pipeline's .py file, or what `kfp-volcano compile` or kfp's compiler writes"
            raise SpecError([Problem(source, "is no compiled pipeline", remedy)], source=source) from error
        if len(text.encode()) > _MOST_BYTES:
            raise SpecError(f"is larger than the {_MOST_BYTES >> 20} MiB that a backend takes", source=source)
        canonical = json.dumps(documents, sort_keys=True, separators=(",", ":"), default=str)
        return cls(text, name, hashlib.sha256(canonical.encode()).hexdigest(), inputs)

    def arguments(self, given: Mapping[str, Any], *, whole: bool = True) -> dict[str, Any]:
        """Parameters as the backend takes them; texts become what the pipeline declares.

        `whole`: all that have no default must be there. Raises SpecError, with every parameter that is wrong.
        """
        values: dict[str, Any] = {}
        problems = []
        for key, value in given.items():
            if key not in self.inputs:
                remedy = f"it has {', '.join(self.inputs) or 'none'}"
                problems.append(Problem(f"parameter {key}", "the pipeline has no such parameter", remedy))
                continue
            try:
                values[key] = _argument(value, self.inputs[key])
            except ValueError as error:
                problems.append(Problem(f"parameter {key}", str(error)))
        for key, spec in self.inputs.items():
            if whole and key not in given and not spec.get("isOptional") and "defaultValue" not in spec:
                problems.append(Problem(f"parameter {key}", "is missing and has no default"))
        if problems:
            raise SpecError(problems, source=f"the parameters of {self.name}")
        return values


def compiled(pipeline: Any, *, name: str | None = None) -> CompiledPipeline:
    """A pipeline as IR.

    Args:
        pipeline: A pipeline function of kfp; the path of a Python file that holds one, or of IR YAML.
        name: Which pipeline of the file, where it holds several.

    Raises SpecError for what is none of them.
    """
    from kfp_volcano.pipelines.running import compile_pipeline, compile_to

    if isinstance(pipeline, str | Path) and Path(pipeline).suffix in {".yaml", ".yml"}:
        path = Path(pipeline)
        try:
            return CompiledPipeline.parse(path.read_text(encoding="utf-8"), source=str(path))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
            raise SpecError(str(reason), source=str(path)) from error
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "pipeline.yaml"
        if isinstance(pipeline, str | Path):
            compile_pipeline(Path(pipeline), output, name=name)
        else:
            compile_to(pipeline, output)
        return CompiledPipeline.parse(output.read_text(encoding="utf-8"), source=str(pipeline))


def _argument(value: Any, spec: Mapping[str, Any]) -> Any:
    kind = str(spec.get("parameterType", "STRING"))
    if isinstance(value, str) and kind != "STRING":
        try:
            value = cast(value, kind)
        except ValueError as error:
            raise ValueError(f"{value!r} is not of type {kind}") from error
    if not _fits(value, kind):
        raise ValueError(f"{value!r} is not of type {kind}")
    if kind == "NUMBER_INTEGER" and abs(value) >= _LARGEST:
        raise ValueError(f"{value} is beyond 2^53, where KFP, which keeps numbers as doubles, would change it")
    choices = spec.get("literals") or ()
    if choices and value not in choices:
        raise ValueError(f"{value!r} is not one of {', '.join(map(str, choices))}")
    return float(value) if kind == "NUMBER_DOUBLE" else value  # a backend gives 1.0 back as 1


def _fits(value: Any, kind: str) -> bool:
    if kind == "NUMBER_INTEGER":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "NUMBER_DOUBLE":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return _NAMES.get(type(value)) == kind
