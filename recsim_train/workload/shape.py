"""Sizes that follow from a model's shape: layers, parameters, bytes."""

from __future__ import annotations

from recsim_train.config.experiment import Model, Training

ID_BYTES = 8
LENGTH_BYTES = 4
LABEL_BYTES = 4
FEATURE_BYTES = 4


def value_bytes(model: Model) -> int:
    """Bytes of one parameter or activation."""
    return 8 if model.dtype == "float64" else 4


def interaction_width(model: Model) -> int:
    """Width of the top MLP's input: bottom output and the dot products of all pairs."""
    vectors = len(model.tables) + 1
    return model.embedding_dim + vectors * (vectors - 1) // 2


def bottom_layers(model: Model) -> list[tuple[int, int]]:
    """(inputs, outputs) of the bottom MLP's layers."""
    widths = [model.dense_features, *model.bottom_mlp]
    return list(zip(widths[:-1], widths[1:], strict=True))


def top_layers(model: Model) -> list[tuple[int, int]]:
    """(inputs, outputs) of the top MLP's layers."""
    widths = [interaction_width(model), *model.top_mlp]
    return list(zip(widths[:-1], widths[1:], strict=True))


def layers(model: Model) -> list[tuple[int, int]]:
    """(inputs, outputs) of all linear layers, bottom first: the order of the flat parameters."""
    return bottom_layers(model) + top_layers(model)


def dense_parameters(model: Model) -> int:
    """Number of dense parameters: weights and biases of all linear layers."""
    return sum(i * o + o for i, o in layers(model))


def row_bytes(model: Model) -> int:
    """Bytes of one embedding row, without optimizer state."""
    return model.embedding_dim * value_bytes(model)


def stored_row_bytes(model: Model, training: Training) -> int:
    """Bytes of one embedding row with its optimizer's state (row-wise: one value a row)."""
    stateless = training.sparse_optimizer == "sgd"
    return row_bytes(model) + (0 if stateless else value_bytes(model))


def mean_ids(model: Model, table: int) -> float:
    """Mean ids per example of a table: bags of a variable table hold 1 to ``ids`` ids."""
    spec = model.tables[table]
    return (1 + spec.ids) / 2 if spec.variable else float(spec.ids)
