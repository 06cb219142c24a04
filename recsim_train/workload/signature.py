"""The shape of one invocation of an operation: what it is told from other shapes by. No torch.

A signature says what an operation's counted work depends on, and nothing else: which settings are
kin (a net, tables, rules), and sizes. That is asked of `recsim_train.workload.operations.cost`
itself, by changing one thing at a time, so that an operation that is new needs no entry here.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from recsim_train.config.experiment import Model, Training
from recsim_train.config.formats import FILES, GENERATED
from recsim_train.workload.operations import cost
from recsim_train.workload.scope import Scope

FIXED = ("batch", "batches", "texts", "tables", "elements", "shards", "numbers")
VARYING = ("ids", "unique", "kept")
"""Sizes that the data decide: they differ from batch to batch."""
SAME = 0.25
"""A shape is another's own where its varying sizes are within this share of the other's."""
_ANOTHER_MODEL = 3.0
"""How far away a shape of another model is: as if one of its sizes were 20 times as large."""
_ORDINARY = {
    "batch": 64, "ids": 900, "unique": 300, "tables": 5, "elements": 5000, "shards": 3,
    "numbers": 700, "kept": 40, "batches": 6, "texts": 500,
}  # fmt: skip
"""Sizes at which it is asked what a cost depends on."""


@dataclass(frozen=True, slots=True)
class Signature:
    """``kin``: settings that are equal or not; ``sizes``: numbers by name, zeros left out."""

    kin: str
    sizes: Mapping[str, float]

    def __str__(self) -> str:
        """As a profile has it: "server, dlrm 1a2b3c4d; batch 128, ids 3328"."""
        sizes = ", ".join(f"{name} {_number(size)}" for name, size in self.sizes.items())
        return f"{self.kin}; {sizes}"

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Back from its text. Raises ValueError for one that is none."""
        kin, apart, sizes = text.partition("; ")
        found = {}
        for size in sizes.split(", ") if sizes else ():
            name, _, number = size.partition(" ")
            if name not in _ORDINARY or not float(number) >= 0.0:
                raise ValueError(f"{size!r} is no size")
            found[name] = float(number)
        if not kin or not apart:
            raise ValueError("expected settings, a semicolon and sizes")
        return cls(kin, found)

    def fixed(self) -> tuple[object, ...]:
        """What shapes have in common that differ by what the data decide only."""
        return self.kin, *(self.sizes.get(name, 0.0) for name in FIXED)

    def is_own(self, other: Signature) -> bool:
        """Whether a measurement at the ``other`` shape is one at this shape."""
        return self.fixed() == other.fixed() and all(
            abs(self.sizes.get(name, 0.0) - there) <= SAME * there
            for name in VARYING
            for there in [other.sizes.get(name, 0.0)]
        )

    def distance(self, other: Signature) -> float:
        """0: the same; the sum of the sizes' ratios, as logarithms, and what other kin count."""
        apart = 0.0 if self.kin == other.kin else _ANOTHER_MODEL
        for name in {*self.sizes, *other.sizes}:
            here, there = self.sizes.get(name, 0.0), other.sizes.get(name, 0.0)
            apart += abs(math.log((1.0 + here) / (1.0 + there)))
        return apart


def _number(size: float) -> str:
    return str(int(size)) if size == int(size) else f"{size:.6g}"


def signature(name: str, scope: Scope) -> Signature:
    """Of one invocation of the operation ``name``."""
    kin, sizes = _depends(name, scope.model, scope.training, scope.pooling, scope.source)
    if scope.pieces:
        kin = f"{kin}, segment {_digest(scope.model)}{_digest(scope.pieces)}"
    found = {size: float(getattr(scope, size)) for size in sizes}
    return Signature(kin, {size: float(_number(value)) for size, value in found.items() if value})


@functools.lru_cache(maxsize=4096)
def _depends(
    name: str, model: Model, training: Training, pooling: str, source: str
) -> tuple[str, tuple[str, ...]]:
    """(what is kin, names of the sizes) that an operation's work depends on."""
    base = Scope(
        model=model, training=training, pooling="worker" if pooling == "worker" else "server",
        source=source, **_ORDINARY,  # type: ignore[arg-type]
    )  # fmt: skip
    work = cost(name, base)

    def matters(**changes: object) -> bool:
        return cost(name, replace(base, **changes)) != work  # type: ignore[arg-type]

    kin = []
    if matters(pooling="server" if pooling == "worker" else "worker"):
        kin.append(pooling)
    if any(matters(source=other) for other in (GENERATED, FILES)):
        kin.append(source)
    tables = tuple(t.model_copy(update={"ids": t.ids + 1, "variable": True}) for t in model.tables)
    rows = {"embedding_dim": 2 * model.embedding_dim, "tables": tables}
    if matters(model=_other_net(model)):
        kin.append(f"{model.kind} {_digest(model)}")
    else:
        if matters(model=model.model_copy(update=rows)):
            kin.append(f"{model.row_width} x {len(model.tables)} {_digest(model.tables)}")
        if matters(model=model.model_copy(update={"dense_features": model.dense_features + 1})):
            kin.append(f"{model.dense_features} features")
    if model.dtype != "float32":
        kin.append(model.dtype)
    for side, rules in (
        ("dense_optimizer", ("sgd", "adagrad")),
        ("sparse_optimizer", ("sgd", "rowwise_adagrad")),
    ):
        used = getattr(training, side)
        other = rules[used == rules[0]]
        if matters(training=training.model_copy(update={side: other})):
            kin.append(used)
    sizes = [n for n, size in _ORDINARY.items() if any(matters(**{n: k * size}) for k in (2, 20))]
    return ", ".join(kin) or "any", tuple(sizes)


def _other_net(model: Model) -> Model:
    """With other layers."""
    if model.described is None:
        return model.with_({"top_mlp": (17, *model.top_mlp)})
    return model.with_({"described.forward.flops": model.described.forward.flops + 1e6})


def _digest(what: object) -> str:
    """Four bytes of what a model, its tables or a segment's pieces are, names left out."""
    if isinstance(what, Model):
        what = what.with_({"name": ""}), what.described
        what = what if what[1] is not None else what[0]  # as profiles of before have it
    return hashlib.blake2b(repr(what).encode(), digest_size=4).hexdigest()
