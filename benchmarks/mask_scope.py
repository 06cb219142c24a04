"""Why DCT's mask of pooled embeddings loses AUC: whose values it keeps.

    python benchmarks/mask_scope.py [--seed 1]

One process, without roles and without our kernels of masks, trains the model of
experiments/quality.yaml with masks over all tables of an example (``mask: sample``), over each
table by itself (``mask: table``), and over all tables when every table starts with values of one
size. Same examples, net, rules and learning rates.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from script import options, row, table
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recsim_train import load
from recsim_train.config.experiment import Experiment
from recsim_train.data.generator import Generator
from recsim_train.executor.net.model import initial_rows
from recsim_train.executor.net.rows import EPSILON
from recsim_train.executor.process import evaluate
from recsim_train.executor.worker import Replica, Worker

EXPERIMENT = Path("experiments/quality.yaml")
BATCH = 256
Mask = Callable[[Tensor], Tensor]
"""From pooled vectors [tables, examples, dim] to ones where a value travels."""


def over_all(count: int) -> Mask:
    def mask(pooled: Tensor) -> Tensor:
        flat = pooled.transpose(0, 1).flatten(1)
        kept = torch.zeros_like(flat).scatter_(1, flat.abs().topk(count, 1).indices, 1.0)
        return kept.view(pooled.shape[1], pooled.shape[0], -1).transpose(0, 1)

    return mask


def each_table(count: int) -> Mask:
    def mask(pooled: Tensor) -> Tensor:
        return torch.zeros_like(pooled).scatter_(2, pooled.abs().topk(count, 2).indices, 1.0)

    return mask


class Study:
    def __init__(self, spec: Experiment) -> None:
        self.spec = spec
        generator = Generator(spec.model, spec.data.synthetic)
        total, tables = spec.data.synthetic.rows, len(spec.model.tables)
        parts = [
            generator.batch(np.arange(start, min(start + 10_000, total)))
            for start in range(0, total, 10_000)
        ]
        self.dense = torch.cat([torch.from_numpy(part.dense) for part in parts])
        self.labels = torch.cat([torch.from_numpy(part.labels) for part in parts])
        sizes = torch.tensor([0, *(table.rows for table in spec.model.tables)])
        self.starts = sizes.cumsum(0)[:-1]
        ids = [torch.from_numpy(part.ids).view(tables, -1) for part in parts]
        self.ids = torch.cat(ids, dim=1) + self.starts[:, None]

    def train(self, mask: Mask, *, one_size: bool = False) -> tuple[float, list[float]]:
        """(held-out AUC, each table's share of the values that held-out examples keep)."""
        spec, model = self.spec, self.spec.model
        sizes = [each.rows for each in model.tables]
        rows = torch.cat(
            [
                initial_rows(model, spec.seed, number, 0, size)
                * ((size / 1000) ** 0.5 if one_size else 1.0)
                for number, size in enumerate(sizes)
            ]
        )
        state = torch.zeros(len(rows))
        worker = Worker(Replica(model, spec.training, spec.seed), "server")
        for start in range(spec.data.eval_rows, len(self.labels), BATCH):
            part = slice(start, start + BATCH)
            pooled = rows[self.ids[:, part]]
            kept = mask(pooled)
            leaf = (pooled * kept).requires_grad_()
            worker.net.new_gradient()
            logits = worker.net.forward(self.dense[part], leaf)
            binary_cross_entropy_with_logits(logits, self.labels[part]).backward()
            unique, inverse = torch.unique(self.ids[:, part], return_inverse=True)
            gradient = torch.zeros(len(unique), model.embedding_dim)
            gradient.index_add_(0, inverse.flatten(), (leaf.grad * kept).flatten(0, 1))
            state[unique] += gradient.square().mean(1)
            step = gradient / (state[unique].sqrt() + EPSILON)[:, None]
            rows[unique] -= spec.training.sparse_lr * step
            worker.replica.optimizer.step(worker.replica.parameters, worker.net.gradient)
        scores, counts = [], torch.zeros(len(model.tables))
        with torch.no_grad():
            for start in range(0, spec.data.eval_rows, 5000):
                part = slice(start, start + 5000)
                pooled = rows[self.ids[:, part]]
                kept = mask(pooled)
                counts += kept.sum((1, 2))
                scores.append(worker.net.forward(self.dense[part], pooled * kept))
        found = evaluate.auc(torch.cat(scores), self.labels[: spec.data.eval_rows])
        return found, (counts / counts.sum()).tolist()


def main() -> None:
    asked = options(__doc__, {"--seed": (1, "")})
    torch.set_num_threads(1)
    spec = load(EXPERIMENT, overrides=["training.batch_size=256"], seed=asked.seed).experiment
    study = Study(spec)
    tables, dim = len(spec.model.tables), spec.model.embedding_dim
    cases: list[tuple[str, Mask, bool]] = [
        ("all values", torch.ones_like, False),
        ("20 of 416 over all tables (mask: sample, 5 %)", over_all(20), False),
        (f"{tables} of {tables * dim} over all tables (mask: sample)", over_all(tables), False),
        ("1 of 16 of each table (mask: table, 5 %)", each_table(1), False),
        ("2 of 16 of each table", each_table(2), False),
        ("20 of 416 over all tables, initial values of one size", over_all(20), True),
    ]
    smallest = sorted(range(tables), key=lambda table: spec.model.tables[table].rows)[:5]
    rows = [spec.model.tables[table].rows for table in smallest]
    print("\n".join(table(["mask", "AUC", f"share of kept values from tables of {rows} rows"], [])))
    for name, mask, one_size in cases:
        auc, shares = study.train(mask, one_size=one_size)
        share = sum(shares[t] for t in smallest)
        print(row([name, f"{auc:.4f}", f"{share:.0%}"]), flush=True)


if __name__ == "__main__":
    main()
