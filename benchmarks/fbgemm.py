"""Our kernels on embedding rows beside fbgemm's on CPUs: paired, interleaved, in one process.

    python benchmarks/fbgemm.py [--rounds 20] [--milliseconds 60] [--only TEXT] [--out DIR]

A shard's lookup (rows, or their sums by bag) and its update (SGD or exact row-wise Adagrad, the
gradients of a row summed), as a server calls them, beside fbgemm's split table batched embeddings,
on the same rows, with real batches of the experiment. fbgemm's is arranged in three ways:

- one table: its forward and its fused backward called as our kernels are, a shard's rows as one
  table. Nothing is transposed; a shard's places of ids and the ends of bags are made for it.
- a table each: the same two calls, with tables as users of fbgemm have them. It works on
  [batch, tables x dim]: of the answer, and of the gradient before the backward, a copy is made in
  our order, [tables, batch, dim].
- its module: a table each, through autograd, in its own order; that is what a trainer made for it
  would pay.

Each is timed with one thread, with two loops at once (Hogwild threads, or two clients of a server)
and with two threads within torch's operations. A round times every arrangement in an order that the
seed shuffles; ratios are taken within a round (benchmarks/paired.py). Between two calls other
memory is gone over, as a net's passes would. A pass of the experiment's net over the same batch
says what share of a step all this has.

Needs fbgemm-gpu-cpu in the same environment, of the version that fits its torch.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import torch
from paired import median_of
from script import circumstances, command, options, table
from torch import Tensor

from recsim_train import load
from recsim_train.calibration.own.bench import Bench, ids_of
from recsim_train.executor.net import kernels
from recsim_train.executor.net.rows import EPSILON
from recsim_train.executor.shards.routing import Routed, ShardSlices, route_ids
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.values import RealRows
from recsim_train.executor.worker import EmbeddingState
from recsim_train.results.environment import machine

RESULTS = Path("benchmarks/results")
ALONE = (
    *("strategy=flat_ps", "roles.trainers=1", "roles.embedding_servers=0"),
    *("roles.dense_servers=0", "data.path=null", "data.eval_rows=0", "training.threads=1"),
)
BAGS = (
    "model={preset: criteo-kaggle, name: bags, embedding_dim: 64, bottom_mlp: [64, 64], "
    "top_mlp: [64, 1], tables: {count: 8, rows: 20_000, ids: 40}}"
)
"""The model with bags of experiments/fidelity.yaml."""
SUM = 0  # fbgemm's number of the pooling that adds
OURS = "ours"
MODES = {
    "one thread": (1, 1),
    "two loops at once": (2, 1),
    "two threads within operations": (1, 2),
}
"""(Loops, threads within operations)."""


class Shape(NamedTuple):
    """A model and a batch, with which both optimizers are measured."""

    title: str
    experiment: str
    sets: tuple[str, ...]


PEERS = "benchmarks/peers/model.yaml"
SHAPES = (
    Shape("peers, batch 2048", PEERS, ("training.batch_size=2048",)),
    Shape("peers, batch 256", PEERS, ("training.batch_size=256",)),
    Shape("quickstart, batch 128", "experiments/quickstart.yaml", ()),
    Shape(
        "bags of 40, batch 512", "experiments/quickstart.yaml", (BAGS, "training.batch_size=512")
    ),
    Shape(
        "bags of 40, batch 128", "experiments/quickstart.yaml", (BAGS, "training.batch_size=128")
    ),
)
OPTIMIZERS = ("sgd", "rowwise_adagrad")


class Rows(Protocol):
    """A shard's rows, and what is done with them."""

    transposed: bool
    """Whether answers and gradients are [batch, slices, dim] instead of [slices, batch, dim]."""

    def lookup(self, routed: Routed) -> tuple[Tensor, Any]:
        """(answer, what the update needs of it)."""

    def update(self, left: Any, gradient: Tensor) -> None:
        """One step with the answer's gradient."""


class Ours:
    """As `EmbeddingServer` calls them."""

    transposed = False

    def __init__(self, state: EmbeddingState) -> None:
        self.state = _copied(state)

    def lookup(self, routed: Routed) -> tuple[Tensor, Any]:
        answer, *left = kernels.lookup_pooled(self.state, routed)
        return answer, left

    def update(self, left: Any, gradient: Tensor) -> None:
        kernels.update_pooled(self.state, *left, gradient)


class Fused:
    """fbgemm's forward and fused backward, called as the two kernels that they are."""

    transposed = False

    def __init__(self, state: EmbeddingState, *, apart: bool) -> None:
        """``apart``: a table each instead of one of all rows."""
        self.state, self.apart = _copied(state), apart
        rows, self.width = self.state.rows.shape
        counts = [part.rows for part in state.slices] if apart else [rows]
        self.weights = self.state.rows.view(-1)
        self.tables = len(counts)
        ends = np.cumsum([0, *counts])
        self.hashes = torch.from_numpy(ends)
        self.starts = torch.from_numpy(ends[:-1].copy())
        self.widths = torch.arange(0, (self.tables + 1) * self.width, self.width, dtype=torch.int32)
        self.placed = torch.zeros(self.tables, dtype=torch.int32)
        self.bits = int(np.log2(rows)) + 1
        training = state.training
        self.rate = torch.tensor(training.sparse_lr, dtype=torch.float32)
        self.adagrad = training.sparse_optimizer != "sgd"

    def _common(self, ids: Tensor, ends: Tensor) -> tuple[Any, ...]:
        return ids, ends, SUM, None  # no weights of ids

    def lookup(self, routed: Routed) -> tuple[Tensor, Any]:
        ends = _ends(routed)
        ids = routed.values if self.apart else self.state.local(routed.values, routed.counts)
        given = torch.from_numpy(ids), ends
        found = torch.ops.fbgemm.split_embedding_codegen_forward_cpu(
            self.weights,
            self.starts * self.width,
            self.widths,
            self.tables * self.width,
            self.hashes,
            *self._common(*given),
            0,
        )
        if self.apart:
            found = found.view(routed.batch, self.tables, self.width).transpose(0, 1).contiguous()
        return found.view(len(routed.counts), routed.batch, self.width), given

    def update(self, left: Any, gradient: Tensor) -> None:
        if self.apart:
            gradient = gradient.transpose(0, 1).contiguous()
        lines = gradient.view(-1, self.tables * self.width)
        given = (
            *(lines, self.weights, self.placed, self.starts * self.width, self.widths),
            *(self.width, self.hashes, self.bits),
            *self._common(*left),
            False,
        )
        if self.adagrad:
            moments = self.state.state, self.placed, self.starts
            torch.ops.fbgemm.split_embedding_backward_codegen_rowwise_adagrad_cpu(
                *given, *moments, self.rate, EPSILON
            )
        else:
            torch.ops.fbgemm.split_embedding_backward_codegen_sgd_cpu(*given, self.rate)


class Module:
    """fbgemm's module through autograd, answers and gradients in its own order."""

    transposed = True

    def __init__(self, state: EmbeddingState) -> None:
        training = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        common = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_common")
        configs = importlib.import_module("fbgemm_gpu.split_embedding_configs")
        sgd = state.training.sparse_optimizer == "sgd"
        kind = "EXACT_SGD" if sgd else "EXACT_ROWWISE_ADAGRAD"
        where = common.EmbeddingLocation.HOST, training.ComputeDevice.CPU
        self.width = state.rows.shape[1]
        self.module = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(part.rows, self.width, *where) for part in state.slices],
            optimizer=getattr(configs.EmbOptimType, kind),
            learning_rate=state.training.sparse_lr,
            eps=EPSILON,
            stochastic_rounding=False,
            bounds_check_mode=common.BoundsCheckMode.NONE,
        )
        parts = state.rows.split([part.rows for part in state.slices])
        for mine, whole in zip(self.module.split_embedding_weights(), parts, strict=True):
            mine.copy_(whole)

    def lookup(self, routed: Routed) -> tuple[Tensor, Any]:
        found = self.module(torch.from_numpy(routed.values), _ends(routed))
        return found.detach().view(routed.batch, -1, self.width), found

    def update(self, left: Any, gradient: Tensor) -> None:
        left.backward(gradient.view(left.shape))


def _copied(state: EmbeddingState) -> EmbeddingState:
    """With rows and optimizer's state of its own."""
    own = object.__new__(EmbeddingState)
    own.__dict__.update(state.__dict__)
    own.rows, own.state = state.rows.clone(), state.state.clone()
    return own


@functools.cache
def _even_ends(size: int, bags: int) -> Tensor:
    return torch.arange(0, (bags + 1) * size, size)


def _ends(routed: Routed) -> Tensor:
    """Where bags end, 0 in front: made once, as all bags have one size."""
    assert not routed.varying.any()
    bags = len(routed.counts) * routed.batch
    size, rest = divmod(int(routed.counts.sum()), bags)
    assert not rest
    return _even_ends(size, bags)


ARRANGED: dict[str, Callable[[EmbeddingState], Rows]] = {
    OURS: Ours,
    "fbgemm, one table": functools.partial(Fused, apart=False),
    "fbgemm, a table each": functools.partial(Fused, apart=True),
    "fbgemm, its module": Module,
}


WHAT = ("lookup", "update", "both")


class Case:
    """One shape with one optimizer: its batches, and the rows of every arrangement."""

    def __init__(self, shape: Shape, optimizer: str) -> None:
        chosen = f"training.sparse_optimizer={optimizer}"
        (plan,) = load(shape.experiment, overrides=[*ALONE, *shape.sets, chosen]).plans
        self.bench = Bench(plan, [])
        assert plan.embedding is not None
        (shard,) = plan.embedding.shards
        parts = ShardSlices(plan.experiment.model, [shard.slices], plan.embedding.split_tables)
        self.asked = [route_ids(ids_of(batch), parts)[0] for batch in self.bench.batches]
        state, self.worker = EmbeddingServer(plan, shard).state, self.bench.worker()
        self.arranged = {name: make(state) for name, make in ARRANGED.items()}
        tables, batch = len(shard.slices), plan.examples
        self.gradients = {
            False: self.bench.numbers(tables, batch, state.rows.shape[1], size=1e-4),
            True: self.bench.numbers(batch, tables, state.rows.shape[1], size=1e-4),
        }

    def difference(self) -> float:
        """The largest one between our answer and any other, before and after a step, over the size
        of the largest number in it."""
        answers = []
        for rows in self.arranged.values():
            torch.manual_seed(1)
            gradient = torch.randn(self.gradients[False].shape) * 0.01
            back = (lambda x: x.transpose(0, 1)) if rows.transposed else (lambda x: x)
            before, left = rows.lookup(self.asked[0])
            before = before.clone()
            rows.update(left, back(gradient).contiguous())
            after, _ = rows.lookup(self.asked[0])
            answers.append(torch.cat([back(before), back(after)]))
        ours, *others = answers
        return max(float((ours - other).abs().max() / ours.abs().max()) for other in others)

    def timed(self, name: str, loops: int, threads: int, seconds: float) -> dict[str, float]:
        """Seconds of a call, by what it does; measured for about so long."""
        rows, spent = self.arranged[name], [[0.0, 0.0] for _ in range(loops)]
        gradient = self.gradients[rows.transposed]
        counts, ready = [0] * loops, threading.Barrier(loops)

        def loop(number: int) -> None:
            torch.set_num_threads(threads)
            other = torch.rand(1 << 20)  # 4 MB: what else a step goes over
            asked = self.asked[number::loops]
            ready.wait()
            until = time.perf_counter() + seconds
            while not counts[number] or time.perf_counter() < until:
                routed = asked[counts[number] % len(asked)]
                other.mul_(1.0001)
                begin = time.perf_counter()
                _, left = rows.lookup(routed)
                spent[number][0] += time.perf_counter() - begin
                other.mul_(0.9999)
                begin = time.perf_counter()
                rows.update(left, gradient)
                spent[number][1] += time.perf_counter() - begin
                counts[number] += 1

        crew = [threading.Thread(target=loop, args=(number,)) for number in range(loops)]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        lookup, update = (sum(what) / sum(counts) for what in zip(*spent, strict=True))
        return {"lookup": lookup, "update": update, "both": lookup + update}

    def net_pass(self, threads: int) -> float:
        """Seconds of the net's forward and backward pass over a batch."""
        torch.set_num_threads(threads)
        batch = self.bench.next()
        rows = RealRows(self.gradients[False], ids_of(batch))
        begin = time.perf_counter()
        kernels.forward_backward(self.worker, batch, rows)
        return time.perf_counter() - begin


def measured(case: Case, asked: argparse.Namespace) -> pd.DataFrame:
    """A row for each arrangement in each mode and round."""
    order, seconds = random.Random(asked.seed), asked.milliseconds / 1e3
    rows = []
    for number in range(asked.rounds + 1):
        for mode in order.sample(list(MODES), len(MODES)):
            net = case.net_pass(MODES[mode][1])
            for name in order.sample(list(ARRANGED), len(ARRANGED)):
                spent = case.timed(name, *MODES[mode], seconds)
                rows.append({"round": number, "mode": mode, "name": name, "net": net, **spent})
    return pd.DataFrame(rows).query("round > 0")  # the first one fills caches


def compared(times: pd.DataFrame) -> list[str]:
    times = times.set_index("round")
    rows = []
    for mode in MODES:
        by_name = dict(iter(times[times["mode"] == mode].groupby("name")))
        ours = by_name[OURS]
        step = ours["net"].median() + ours["both"].median()
        for name in ARRANGED:
            own = by_name[name]
            cells = [mode, name, *(f"{own[what].median() * 1e6:,.0f}" for what in WHAT)]
            if name == OURS:
                cells += ["", "", "", f"(ours: {ours['both'].median() / step:.1%} of it)"]
            else:
                cells += [str(median_of(list(ours[what] / own[what]))) for what in WHAT]
                cells.append(f"{(ours['both'] - own['both']).median() / step:+.1%}")
            rows.append(cells)
    units = [f"{what}, us" for what in WHAT]
    head = ["", "", *units, "ours / fbgemm: lookup", "update", "both", "saved of a step"]
    return table(head, rows)


def unusable() -> str | None:
    """Why there is no fbgemm here, in a sentence."""
    try:
        importlib.import_module("fbgemm_gpu")
    except ModuleNotFoundError:
        return f"fbgemm is skipped: {sys.executable} does not have fbgemm-gpu-cpu."
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        return f"fbgemm is skipped: it does not load beside torch {torch.__version__}: {reason}"
    return None


def main() -> None:
    about = {
        "--rounds": (20, "at least 6 for an interval"),
        "--milliseconds": (60.0, "of one arrangement in a round"),
        "--seed": (1, "of the order"),
        "--only": ("", "shapes whose title contains this"),
        "--out": (RESULTS, "folder"),
    }
    asked = options(__doc__, about)
    if reason := unusable():
        print(reason)
        return
    torch.manual_seed(asked.seed)
    here = machine()
    here["versions"]["fbgemm-gpu-cpu"] = importlib.metadata.version("fbgemm-gpu-cpu")
    lines = [
        "# Kernels on embedding rows: ours and fbgemm's",
        "",
        circumstances(here),
        "",
        f"`{command()}`",
        "",
        "Wall time of a call, median of rounds; of ratios within a round the median and its 95 % "
        "interval: above 1 fbgemm is faster. A step is both and the net's forward and backward "
        "pass, without messages. `benchmarks/fbgemm.py` says what the arrangements are.",
        "",
    ]
    for shape, optimizer in itertools.product(SHAPES, OPTIMIZERS):
        if asked.only in shape.title:
            case = Case(shape, optimizer)
            state, difference = case.asked[0], case.difference()
            about_it = (
                f"{state.values.size:,} ids in {len(state.counts) * state.batch:,} bags, "
                f"{case.gradients[False].shape[-1]} numbers each; largest difference of answers "
                f"before and after a step {difference:.1e} of the largest number."
            )
            title = f"## {shape.title}, {optimizer}"
            part = [title, "", about_it, "", *compared(measured(case, asked)), ""]
            print("\n".join(part), flush=True)
            lines += part
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "fbgemm.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
