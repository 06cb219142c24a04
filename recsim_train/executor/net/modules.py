"""Modules that users have written: found, made, and what of them is kept in a flat vector."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model


def loaded(where: str) -> Callable[..., nn.Module]:
    """The function behind FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION. Raises UserError, with the
    line of the user's code."""
    place, _, name = where.rpartition(":")
    try:
        made = getattr(_imported(place), name, None)
    except Exception as error:
        raise UserError(f"model.module: {where} cannot be imported: {told(error, where)}") from None
    if not callable(made):
        raise UserError(f"model.module: there is no function {name} in {place}")
    found: Callable[..., nn.Module] = made
    return found


def _imported(place: str) -> ModuleType:
    if not place.endswith(".py"):
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    name = f"recsim_train_own_{Path(place).stem}"
    if name not in sys.modules or sys.modules[name].__file__ != place:
        folder = str(Path(place).parent)
        if folder not in sys.path:  # what lies beside it can be imported
            sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(name, place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            raise FileNotFoundError(f"there is no file {place}")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def told(error: BaseException, where: str) -> str:
    """An error in a user's code, with its last line there."""
    root = root_of(where)
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame for frame in frames if root is not None and Path(frame.filename).is_relative_to(root)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        at = f"{Path(error.filename).name}:{error.lineno}: "
    else:
        at = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    said = str(error).strip().splitlines() or [""]
    return f"{at}{type(error).__name__}: {said[0]}"


def root_of(where: str) -> Path | None:
    """The folder of a user's code: of its file, or of its outermost package."""
    place = where.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place).parent
    top = sys.modules.get(place.partition(".")[0])
    file = None if top is None else top.__file__
    if file is None:
        return None
    return Path(file).parent


def built(model: Model, tables: Sequence[str], seed: int) -> nn.Module:
    """A new module, whose random numbers are those of the seed. Raises UserError."""
    assert model.module is not None
    make = loaded(model.module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            found = make(
                dense_features=model.dense_features,
                tables=list(tables),
                embedding_dim=model.embedding_dim,
            )
        except Exception as error:
            why = told(error, model.module)
            raise UserError(f"model.module: {model.module} made no module: {why}") from None
    if not isinstance(found, nn.Module):
        raise UserError(
            f"model.module: {model.module} gave a {type(found).__name__}, not a torch.nn.Module"
        )
    return found.to(torch.float64 if model.dtype == "float64" else torch.float32)


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """By name, those that are kept as parameters are."""
    return {name: one for name, one in module.named_buffers() if one.is_floating_point()}


def initial(model: Model, seed: int) -> Tensor:
    """Parameters and buffers as a new module has them, flat."""
    assert model.described is not None
    module = built(model, model.described.tables, seed)
    held = [*module.parameters(), *buffers_of(module).values()]
    return torch.cat([one.detach().flatten() for one in held])
