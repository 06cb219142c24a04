"""A DLRM in plain PyTorch, one process: `torch.nn`, `torch.optim.SGD`, sparse gradients of tables.

python benchmarks/peers/plain_pytorch.py [--batch 2048] [--threads 1] [--steps 100] [--warmup 10]
"""

from __future__ import annotations

from collections.abc import Sequence

import common
import torch
from torch import nn


def perceptron(inputs: int, widths: Sequence[int], *, logit: bool) -> nn.Sequential:
    """Linear layers, each followed by ReLU; none after the last where that is the logit."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers[: -1 if logit else None])


class DLRM(nn.Module):
    """Bottom MLP, one bag of embeddings for each table, dot products of all pairs, top MLP."""

    pairs: torch.Tensor
    """Places in the flattened [vectors, vectors] of products of different vectors, once each."""

    def __init__(self) -> None:
        super().__init__()
        vectors = common.TABLES + 1
        self.bottom = perceptron(common.FEATURES, common.BOTTOM, logit=False)
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(common.ROWS, common.WIDTH, mode="sum", sparse=True)
            for _ in range(common.TABLES)
        )
        pairs = vectors * (vectors - 1) // 2
        self.top = perceptron(common.WIDTH + pairs, common.TOP, logit=True)
        first, second = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", first * vectors + second)

    def forward(
        self, dense_bf: torch.Tensor, ids_tb: torch.Tensor, offsets_b: torch.Tensor
    ) -> torch.Tensor:
        """Logits, [batch]."""
        x_bd = self.bottom(dense_bf)
        bags = [table(ids_b, offsets_b) for table, ids_b in zip(self.tables, ids_tb, strict=True)]
        vectors_bvd = torch.stack([x_bd, *bags], dim=1)
        products_bvv = torch.bmm(vectors_bvd, vectors_bvd.transpose(1, 2))
        pairs_bp = products_bvv.flatten(1).index_select(1, self.pairs)
        logits_b1: torch.Tensor = self.top(torch.cat([x_bd, pairs_bp], dim=1))
        return logits_b1.squeeze(1)


def main() -> None:
    options = common.arguments(__doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = DLRM()
    optimizer = torch.optim.SGD(model.parameters(), lr=common.LEARNING_RATE)
    loss_of = nn.BCEWithLogitsLoss()
    offsets_b = torch.arange(options.batch)
    dealt = common.batches(options.batch)

    def step() -> float:
        batch = next(dealt)
        loss: torch.Tensor = loss_of(model(batch.dense, batch.ids, offsets_b), batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    seconds = common.seconds_of(step, warmup=options.warmup, steps=options.steps)
    common.report(options, seconds, ["torch"])


if __name__ == "__main__":
    main()
