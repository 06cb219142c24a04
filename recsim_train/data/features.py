"""Features: raw values as a model sees them, by DLRM's log and its hashing to table size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def dense_values(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(x + 1) of counts of any shape; negative counts are taken as 0.

    A missing count is passed as 0, which is also its value.
    """
    values = np.maximum(counts, 0).astype(np.float32)
    values += np.float32(1.0)
    return np.log(values, out=values)


def table_ids(
    values: NDArray[np.uint64], present: NDArray[np.bool_], rows: int
) -> NDArray[np.int64]:
    """Ids, int64, of one column's category values in a table of ``rows`` rows.

    Slot 0 is the missing value's; others are DLRM's modulo over the rest: value mod (rows - 1) + 1.
    """
    if rows == 1:
        return np.zeros(values.shape, dtype=np.int64)
    divisor = np.uint64(rows - 1)
    # numpy vectorises division by a scalar, but not the remainder
    ids = values - values // divisor * divisor
    ids += np.uint64(1)
    ids *= present
    return ids.view(np.int64)
