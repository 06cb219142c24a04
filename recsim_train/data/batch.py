"""One batch of examples as numpy arrays, and its form on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Model

HEADER_BYTES = 8 * 4
"""Bytes of the packed form's header: int64 examples, dense features, ids, lengths."""


@dataclass(frozen=True, slots=True, eq=False)
class NumpyBatch:
    """A batch of b examples.

    ``ids`` is table-major: table 0's ids of all examples in example order, then table 1's. A table
    of fixed hotness has ``ids`` per example; how many a variable table has per example is in
    ``lengths``, b entries for each variable table in table order.
    """

    labels: NDArray[np.float32]
    """[b], 0 or 1."""
    dense: NDArray[np.float32]
    """[b, dense features], log(x + 1) applied, missing 0."""
    ids: NDArray[np.int64]
    """[total ids]."""
    lengths: NDArray[np.int32]
    """[variable tables * b]."""

    @property
    def size(self) -> int:
        """Examples in the batch."""
        return int(self.labels.shape[0])


def ids_by_table(model: Model, batch: NumpyBatch) -> Iterator[NDArray[np.int64]]:
    """Each table's ids of a batch, in table order."""
    start = variable = 0
    for table in model.tables:
        count = batch.size * table.ids
        if table.variable:
            lengths = batch.lengths[variable * batch.size : (variable + 1) * batch.size]
            count = int(lengths.sum())
            variable += 1
        yield batch.ids[start : start + count]
        start += count


def pack(batch: NumpyBatch) -> NDArray[np.uint8]:
    """The batch as one buffer, header and content.

    Content order is ids, dense, labels, lengths, so that every part stays aligned.
    """
    header = np.array([batch.size, batch.dense.shape[1], batch.ids.size, batch.lengths.size])
    parts = header, batch.ids, batch.dense, batch.labels, batch.lengths
    flat = (np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts)
    return np.concatenate(list(flat))


def unpack(buffer: NDArray[np.uint8]) -> NumpyBatch:
    """The batch in a buffer that begins as `pack` has made one: views into it, nothing is copied.

    Raises ValueError where the buffer is shorter than its header says.
    """
    if buffer.nbytes < HEADER_BYTES:
        raise ValueError(f"a packed batch has at least {HEADER_BYTES} bytes, not {buffer.nbytes}")
    b, features, ids, lengths = (int(n) for n in buffer[:HEADER_BYTES].view(np.int64))
    ends = list(accumulate((HEADER_BYTES, 8 * ids, 4 * b * features, 4 * b, 4 * lengths)))
    if min(b, features, ids, lengths) < 0 or buffer.nbytes < ends[-1]:
        raise ValueError(f"a packed batch of {ends[-1]} bytes in a buffer of {buffer.nbytes}")
    id_bytes, dense, labels, bags = (buffer[start:end] for start, end in pairwise(ends))
    return NumpyBatch(
        labels=labels.view(np.float32),
        dense=dense.view(np.float32).reshape(b, features),
        ids=id_bytes.view(np.int64),
        lengths=bags.view(np.int32),
    )
