"""DLRM whose fields attend to each other, in place of dot products."""

import torch
from torch import nn


class AttentionNet(nn.Module):
    """Fields: the dense features, as one vector, and one vector of each table."""

    def __init__(self, features, tables, dim, heads):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, dim))
        self.norm = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.top = nn.Sequential(nn.Linear(dim * (tables + 1), 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dense, embedded):
        # dense [B, F], embedded [B, T, d]
        fields = torch.cat([self.bottom(dense).unsqueeze(1), embedded], dim=1)
        normed = self.norm(fields)
        mixed, _ = self.attention(normed, normed, normed, need_weights=False)
        return self.top((fields + mixed).flatten(1)).squeeze(1)  # logits [B]


def build(dense_features, tables, embedding_dim):
    """Called in every process; ``tables``: their names, in order."""
    return AttentionNet(dense_features, len(tables), embedding_dim, heads=2)
