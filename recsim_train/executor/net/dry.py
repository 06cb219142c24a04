"""A dry pass of a user's module: whether it keeps the rules that training needs, and what its
passes do, counted. Run as a program, in a process of its own: a module may do anything.

Each rule is tried, not read from the code: two modules from one seed, batches of two sizes, the
same batch again from the same state.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model, ModuleShape, NamedShape, PassCounts
from recsim_train.executor.net.model import click_loss
from recsim_train.executor.net.modules import buffers_of, built, root_of, told

_BATCHES = 12, 8
"""Examples of two batches."""
_SEED = 11


def examine(model: Model, tables: Sequence[str]) -> ModuleShape:
    """What is known of a module without running it. Raises UserError: a rule that it breaks."""
    assert model.module is not None
    where = model.module
    module, other = (built(model, tables, _SEED) for _ in range(2))
    _check_parameters(module, model)
    for (name, one), (_, two) in zip(_state(module), _state(other), strict=True):
        if not torch.equal(one, two):
            raise _broken(
                f"{name} is drawn by numbers that torch.manual_seed does not decide (Python's "
                "random, numpy's, or the clock): each process would have another one"
            )
    large, small = (_Batch(model, len(tables), size) for size in _BATCHES)
    before = [one.clone() for _, one in _state(module)]
    first = _trained(module, large, where)
    _check_gradients(module, first.embedded)
    second = _trained(other, large, where)
    if not torch.equal(first.logits, second.logits):
        raise _broken(
            "two modules in the same state, with the same batch and torch.manual_seed, differ: "
            "draw random numbers by torch only"
        )
    moved = [
        name
        for (name, one), was in zip(_state(module), before, strict=True)
        if not one.is_floating_point() and not torch.equal(one, was)
    ]
    if moved := [name for name in moved if not _unused(module, name)]:
        raise _broken(
            f"the buffer {moved[0]} changes from batch to batch and is no floating-point number: "
            "only such are kept in checkpoints and shared among trainers"
        )
    _trained(module, small, where)
    _restore(module, before)
    if not torch.equal(_trained(module, large, where).logits, first.logits):
        raise _broken(
            "it keeps something from one batch to the next that is no buffer (register_buffer): "
            "checkpoints and other trainers would not have it"
        )
    _restore(other, before)
    draws = not torch.equal(_trained(other, large, where, seed=_SEED + 1).logits, second.logits)
    scores = [_evaluated(module, large, where, seed) for seed in (_SEED, _SEED + 1)]
    if not torch.equal(*scores):
        raise _broken(
            "it draws random numbers while it is evaluated (module.eval()): ask self.training"
        )
    return _counted(model, tables, module, draws=draws)


def _broken(why: str) -> UserError:
    return UserError(f"model.module: {why}")


def _state(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and all buffers."""
    return [*module.named_parameters(), *module.named_buffers()]


def _restore(module: nn.Module, before: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for (_, one), was in zip(_state(module), before, strict=True):
            one.copy_(was)


def _unused(module: nn.Module, name: str) -> bool:
    """Whether a buffer is batch norm's count of batches, which it asks only without momentum."""
    owner, _, own = name.rpartition(".")
    momentum = getattr(module.get_submodule(owner), "momentum", None)
    return own == "num_batches_tracked" and momentum is not None


def _check_parameters(module: nn.Module, model: Model) -> None:
    if not any(True for _ in module.parameters()):
        raise _broken("it has no parameters: there is nothing to train but the tables")
    for name, one in _state(module):
        if isinstance(one, nn.UninitializedParameter | nn.UninitializedBuffer):
            raise _broken(f"{name} has no shape yet (a lazy module): give it one")
        if one.device.type != "cpu":
            raise _broken(f"{name} is on {one.device}: this trains on CPUs")
    for name, one in module.named_parameters():
        if not one.requires_grad:
            raise _broken(
                f"the parameter {name} has requires_grad=False: make it a buffer (register_buffer)"
            )
        if str(one.dtype) != f"torch.{model.dtype}":
            raise _broken(f"the parameter {name} is {one.dtype}, not {model.dtype} (model.dtype)")


class _Batch:
    """Numbers for one pass."""

    def __init__(self, model: Model, tables: int, size: int) -> None:
        draw = torch.Generator().manual_seed(size)
        kind = {"dtype": getattr(torch, model.dtype), "generator": draw}
        self.dense = torch.rand(size, model.dense_features, **kind)
        self.embedded = torch.rand(size, tables, model.embedding_dim, **kind)
        self.labels = (torch.rand(size, **kind) < 0.5).to(self.dense.dtype)


class _Pass(NamedTuple):
    """What a pass has left."""

    logits: Tensor
    embedded: Tensor


@contextmanager
def _users(where: str, doing: str) -> Iterator[None]:
    """The user's code runs."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _broken(f"its {doing} fails: {told(error, where)}") from None


def _trained(module: nn.Module, batch: _Batch, where: str, seed: int = _SEED) -> _Pass:
    """One pass forward and backward; gradients are left at the parameters."""
    torch.manual_seed(seed)
    module.zero_grad(set_to_none=True)
    module.train()
    embedded = batch.embedded.clone().requires_grad_()
    with _users(where, "forward pass"):
        logits = module(batch.dense.clone(), embedded)
    size = len(batch.labels)
    if not isinstance(logits, Tensor):
        raise _broken(
            f"forward returns a {type(logits).__name__}, not logits [B]: the loss is computed from "
            "them outside"
        )
    if tuple(logits.shape) != (size,):
        raise _broken(
            f"forward returns {list(logits.shape)} for a batch of {size} examples, not [{size}]: "
            "one logit for each"
        )
    if not logits.requires_grad:
        raise _broken("what forward returns has no gradient: it was detached, or made by numpy")
    if not logits.isfinite().all():
        raise _broken("forward returns numbers that are not finite")
    with _users(where, "backward pass"):
        click_loss(logits, batch.labels).backward()  # type: ignore[no-untyped-call]
    return _Pass(logits.detach().clone(), embedded)


def _check_gradients(module: nn.Module, embedded: Tensor) -> None:
    for name, one in module.named_parameters():
        if one.grad is None:
            raise _broken(f"the parameter {name} gets no gradient: it is not used")
        if one.grad.is_sparse:
            raise _broken(f"the parameter {name} has a sparse gradient (sparse=True)")
        if not one.grad.isfinite().all():
            raise _broken(f"the gradient of the parameter {name} is not finite")
    if embedded.grad is None:
        raise _broken("embedded gets no gradient: the tables would not be trained")


def _evaluated(module: nn.Module, batch: _Batch, where: str, seed: int) -> Tensor:
    torch.manual_seed(seed)
    module.eval()
    with _users(where, "evaluation (module.eval())"), torch.no_grad():
        logits = module(batch.dense, batch.embedded)
    if not isinstance(logits, Tensor) or logits.shape != batch.labels.shape:
        raise _broken("forward returns something else while it is evaluated (module.eval())")
    return logits.clone()


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What torch's operators do that run inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.bytes = self.operators = self.products = 0
        self.others: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        changes = func._schema.name.endswith("_") or any(
            one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments
        )
        if not changes and any(one.alias_info is not None for one in func._schema.returns):
            return found  # a view
        self.operators += 1
        if (flops := flop_registry.get(func._overloadpacket)) is not None:
            self.flops += flops(*args, **(kwargs or {}), out_val=found)
            self.products += 1
            return found
        sizes = sum(
            one.numel() * one.element_size() for one in (*_tensors(args), *_tensors((found,)))
        )
        self.bytes += sizes
        if torch.Tag.pointwise not in func.tags:
            self.others[func._overloadpacket.__name__] += sizes
        return found


def _tensors(several: Any) -> Iterator[Tensor]:
    for one in several:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _counted(model: Model, tables: Sequence[str], module: nn.Module, *, draws: bool) -> ModuleShape:
    """By two batches: what grows with the batch, and what does not."""
    module.train()
    large, small = (_counts(module, _Batch(model, len(tables), size)) for size in _BATCHES)
    apart = _BATCHES[0] - _BATCHES[1]

    def counts(one: _Counter, other: _Counter) -> PassCounts:
        moved = max(0.0, (one.bytes - other.bytes) / apart)
        return PassCounts(
            flops=max(0.0, (one.flops - other.flops) / apart),
            bytes=moved,
            fixed_bytes=max(0.0, one.bytes - moved * _BATCHES[0]),
            operators=one.operators,
            products=one.products,
        )

    others = large[0].others + large[1].others
    return ModuleShape(
        digest="",
        tables=tuple(tables),
        parameters=_shapes(module.named_parameters()),
        buffers=_shapes(buffers_of(module).items()),
        draws=draws,
        forward=counts(large[0], small[0]),
        backward=counts(large[1], small[1]),
        kept_bytes=max(0.0, (large[2] - small[2]) / apart),
        not_counted=tuple(name for name, _ in others.most_common(8)),
    )


def _shapes(named: Any) -> tuple[NamedShape, ...]:
    return tuple(NamedShape(name=name, shape=tuple(one.shape)) for name, one in named)


def _counts(module: nn.Module, batch: _Batch) -> tuple[_Counter, _Counter, int]:
    """(forward, backward, bytes that are kept in between)."""
    kept: dict[int, int] = {}
    held = {one.data_ptr() for _, one in _state(module)}

    def keep(one: Tensor) -> Tensor:
        if one.data_ptr() not in held:
            kept[one.data_ptr()] = one.numel() * one.element_size()
        return one

    module.zero_grad(set_to_none=True)
    embedded = batch.embedded.clone().requires_grad_()
    forward, backward = _Counter(), _Counter()
    # CPU's fused attention has no formula for its operations
    with sdpa_kernel(SDPBackend.MATH):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one), forward:
            loss = click_loss(module(batch.dense, embedded), batch.labels)
        with backward:
            loss.backward()  # type: ignore[no-untyped-call]
    return forward, backward, sum(kept.values())


def sources_of(where: str) -> dict[str, str]:
    """Files of the user's that were imported, each with its sum."""
    root = root_of(where)
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    own = [
        path
        for path in sorted(Path(file) for file in files if file)
        if root is not None
        and path.is_relative_to(root)
        and path.suffix == ".py"
        and not {"site-packages", "recsim_train"} & set(path.relative_to(root).parts)
    ]
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in own}


def main() -> None:
    """What is asked in one file is answered in another."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    answer: dict[str, Any]
    try:
        described = examine(Model.model_validate(asked["model"]), asked["tables"])
        sources = sources_of(asked["model"]["module"])
        answer = {"described": described.model_dump(mode="json"), "sources": sources}
    except UserError as error:
        answer = {"problem": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
