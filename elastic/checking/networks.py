# SPDX-License-Identifier: Apache-2.0
"""Networks: which have random weights, and those with batch norm: KV601."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.script import keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["random_weights", "rules"]

_BATCH_NORM = re.compile(r"(^|\.)(Lazy)?(BatchNorm([123]d)?|BatchNormalization|InPlaceABN|BatchNormAct2d)$")
_HOLD_IT = re.compile(
    r"^(quantized_)?(resnet|resnext|wide_resnet|densenet|mobilenet|efficientnet|googlenet|inception|mnasnet|regnet|shufflenet"
    r"|vgg\d+_bn|fcn_resnet|deeplabv3|lraspp|ssdlite|seresnet|resnest|res2net|xception|nasnet|dla|hrnet|rexnet|darknet|cspnet)",
    re.IGNORECASE,
)
"""Models of torchvision, timm and Keras that hold batch norm."""
_LAYERS = re.compile(
    r"(^|\.)(Lazy)?(Linear|Bilinear|Conv(Transpose)?[123]d|RNN|LSTM|GRU|RNNCell|LSTMCell|GRUCell|Embedding|EmbeddingBag|Transformer"
    r"|TransformerEncoderLayer|TransformerDecoderLayer|MultiheadAttention|Dense|Conv[123]D)$"
)


def rules(script: Script) -> Iterator[Finding]:
    """All findings about networks."""
    if not script.live and any(True for _ in script.calls("convert_sync_batchnorm")):
        return
    flow = script.flow
    references: list[ast.Attribute | ast.Name] = [*script.nodes(ast.Attribute), *script.nodes(ast.Name)]
    for node in references:
        if not isinstance(node.ctx, ast.Load) or isinstance(flow.parent(node), ast.Attribute):
            continue
        name = flow.dotted(node)
        outer = next(
            (each for each in flow.ancestors(node) if isinstance(each, ast.Call) and each.func is not node), None
        )
        if (_BATCH_NORM.search(name) or (script.live and name.endswith("nn.SyncBatchNorm"))) and not (
            outer is not None and flow.dotted(outer.func) in ("isinstance", "issubclass")
        ):
            yield script.found(node, "KV601", f"`{script.shown(node)}` keeps statistics of its worker's samples")
    for call, name in script.calls():
        model = _model(script, call, name)
        if model and _HOLD_IT.search(model) and keyword(call, "norm_layer") is None:
            yield script.found(call, "KV601", f"`{script.shown(call)}` holds batch norm")


def _model(script: Script, call: ast.Call, name: str) -> str:
    """The name of the ready-made model that a call makes."""
    last = name.rpartition(".")[2]
    if name.startswith(("torchvision.models", "timm.models", "tensorflow.keras.applications", "keras.applications")):
        if last in ("get_model", "get_model_builder", "list_models"):
            return script.flow.text(call.args[0]) if call.args and last != "list_models" else ""
        return script.flow.text(call.func.slice) if isinstance(call.func, ast.Subscript) else last
    if last == "create_model" and call.args:
        return script.flow.text(call.args[0]).rpartition("/")[2]
    if name == "torch.hub.load" and len(call.args) > 1:
        return script.flow.text(call.args[1])
    return ""


def random_weights(script: Script) -> list[ast.Call]:
    """The calls that make something whose weights are drawn at random."""
    found = []
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        own = script.flow.classes.get(last)
        if own is not None:
            if _is_module(script, own) and not _in_class(script, call):
                found.append(call)
        elif (_LAYERS.search(name) and not _in_class(script, call)) or _drawn(script, call, name):
            found.append(call)
    return found


def _drawn(script: Script, call: ast.Call, name: str) -> bool:
    last = name.rpartition(".")[2]
    if last in ("randn", "rand", "empty") and name.startswith("torch."):
        learns = keyword(call, "requires_grad")
        held = script.flow.parent(call)
        parameter = isinstance(held, ast.Call) and script.flow.dotted(held.func).endswith("Parameter")
        return keyword(call, "generator") is None and (learns is not None or parameter) and not _in_class(script, call)
    pretrained = keyword(call, "weights", "pretrained")
    if pretrained is not None and not (isinstance(pretrained, ast.Constant) and not pretrained.value):
        return False
    return bool(_model(script, call, name)) or last == "from_config"


def _is_module(script: Script, kind: ast.ClassDef, depth: int = 4) -> bool:
    """Whether a class of the script is a network."""
    for base in kind.bases:
        name = script.flow.dotted(base)
        last = name.rpartition(".")[2]
        if last in ("Module", "LightningModule", "Model", "Sequential", "PreTrainedModel", "ModuleList"):
            return True
        own = script.flow.classes.get(last)
        if own is not None and own is not kind and depth and _is_module(script, own, depth - 1):
            return True
    return False


def _in_class(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a class: its layers are made where the class is."""
    return any(isinstance(each, ast.ClassDef) and _is_module(script, each) for each in script.flow.ancestors(node))
