# SPDX-License-Identifier: Apache-2.0
"""Parameters that are sharded over the processes of a worker (FSDP2's `fully_shard`): what each process has of them.

Peers hand over shards, from each process to the one of the same rank in another worker. Checkpoints hold shards too, of
which workers of any number of processes take what they need (`checkpoints.dcp`), and the final model whole tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed.tensor import DTensor

    from kfp_volcano.elastic.runtime.checkpoints.pieces import Place

__all__ = ["fitted", "is_sharded", "local", "room", "sharded", "to_local", "to_whole", "wrapped"]


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is one of torch.distributed's, spread over processes."""
    # By its module's name: importing torch.distributed.tensor takes a second, and who has such a tensor has done it.
    return isinstance(tensor, torch.Tensor) and type(tensor).__module__.startswith("torch.distributed.tensor")


def sharded(model: torch.nn.Module, optimizer: torch.optim.Optimizer, processes: int) -> bool:
    """Whether a model is sharded over its worker's processes; makes its gradients sums over them, not means.

    Raises:
        SpecError: the model is sharded in part, or over other processes, or wrapped so that it sums by itself.
    """
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        remedy = "pass the model itself: its gradients are summed over all processes of all workers"
        raise SpecError([Problem("model", "is wrapped in DistributedDataParallel", remedy)], source="training")
    spread = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kinds = {_kind(parameter) for parameter in spread}
    if kinds <= {None}:
        return False
    if kinds != {processes}:
        remedy = "fully_shard(model, mesh=worker_mesh()), the whole model, before its optimizer is made"
        found = "its parameters are not all sharded over the worker's processes"
        raise SpecError([Problem("model", found, remedy)], source="training")
    each: Any
    for each in model.modules():
        if hasattr(each, "set_gradient_divide_factor"):
            each.set_gradient_divide_factor(1.0)
            each.set_force_sum_reduction_for_comms(True)  # gloo knows no other; with NCCL it is the same sum
    return True


def _kind(parameter: Any) -> int | None:
    """Over how many processes a parameter is sharded; 0 where it is spread in another way, None where it is whole."""
    if not is_sharded(parameter):
        return None
    plain = parameter.device_mesh.ndim == 1 and parameter.placements[0].is_shard()
    return int(parameter.device_mesh.size()) if plain else 0


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def wrapped(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This process' part of a tensor that is spread as another one."""
    if not is_sharded(like):
        return part
    kind: Any = type(like.detach())
    spread: Any = like
    shape = {"shape": spread.shape, "stride": spread.stride()}
    return kind.from_local(part, spread.device_mesh, spread.placements, run_check=False, **shape)  # type: ignore[no-any-return]


def to_whole(value: Any) -> Any:
    """The value with every sharded tensor in it made whole, on the CPU; all processes of the worker take part."""
    return _mapped(value, lambda tensor: tensor.full_tensor().cpu())


def to_local(value: Any) -> Any:
    """The value with this process' part in place of every sharded tensor in it."""
    return _mapped(value, lambda tensor: tensor.to_local())


def _mapped(value: Any, change: Callable[[DTensor], torch.Tensor]) -> Any:
    if is_sharded(value):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value


def fitted(
    values: Mapping[str, Any], state: Mapping[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A state of whole tensors, or of this process' parts, spread as the model that is to take it over.

    Args:
        values: of a model of the same kind; what is spread already stays as it is.
        state: of its optimizer.
        model: who takes it over.
        optimizer: of that model.
    """
    own = model.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = {
        index: {key: _spread(value, parameters[index]) for key, value in each.items()}
        for index, each in state["state"].items()
    }
    return {name: _spread(value, own.get(name)) for name, value in values.items()}, {**state, "state": states}


def room(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Place, torch.Tensor], torch.Tensor]:
    """Makes tensors to read a checkpoint's into, by their place in the state and their shape.

    They are sharded as the parameters they belong to; all others are whole, on the CPU.
    """
    own = model.state_dict()
    parameters = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))

    def make(place: Place, empty: torch.Tensor) -> torch.Tensor:
        like = None
        match place:
            case ("model", name):
                like = own.get(name)
            case ("optimizer", "state", index, _):
                like = parameters.get(index)
        if like is not None and is_sharded(like) and like.shape == empty.shape:
            return torch.empty_like(like.detach(), dtype=empty.dtype)
        return torch.empty(empty.shape, dtype=empty.dtype)

    return make


def _spread(value: Any, like: torch.Tensor | None) -> Any:
    if like is None or not isinstance(value, torch.Tensor) or not is_sharded(like) or is_sharded(value):
        return value
    if value.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see is_sharded

        mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
        return distribute_tensor(value.to(like.device), mesh, placements, src_data_rank=None)
    part = local(like)
    return wrapped(value.to(like.device), like) if value.shape == part.shape else value
