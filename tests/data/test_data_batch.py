from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.data.batch import HEADER_BYTES, NumpyBatch, pack, unpack


def batch(b: int, features: int, ids: int, lengths: int) -> NumpyBatch:
    rng = np.random.default_rng(b + features + ids)
    return NumpyBatch(
        labels=rng.integers(0, 2, b).astype(np.float32),
        dense=rng.random((b, features), dtype=np.float32),
        ids=rng.integers(0, 1 << 40, ids),
        lengths=rng.integers(0, 9, lengths).astype(np.int32),
    )


def same(left: NumpyBatch, right: NumpyBatch) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        and getattr(left, name).dtype == getattr(right, name).dtype
        for name in ("labels", "dense", "ids", "lengths")
    )


@given(st.integers(0, 9), st.integers(1, 13), st.integers(0, 50), st.integers(0, 20))
def test_unpack_gives_what_was_packed(b: int, features: int, ids: int, lengths: int) -> None:
    original = batch(b, features, ids, lengths)
    packed = pack(original)
    assert packed.nbytes == HEADER_BYTES + 4 * b * features + 4 * b + 8 * ids + 4 * lengths
    assert same(unpack(packed), original)


def test_unpack_takes_a_larger_buffer_and_copies_nothing() -> None:
    original = batch(3, 2, 7, 0)
    buffer = np.append(pack(original), np.full(4096, 255, dtype=np.uint8))
    found = unpack(buffer)
    assert found.size == 3
    assert same(found, original)
    assert np.shares_memory(found.ids, buffer)


def test_pack_takes_arrays_that_are_not_contiguous() -> None:
    one = batch(4, 6, 8, 0)
    turned = NumpyBatch(one.labels, np.asfortranarray(one.dense), one.ids[::2], one.lengths)
    assert same(unpack(pack(turned)), turned)


def test_short_buffers_are_refused() -> None:
    packed = pack(batch(3, 2, 7, 0))
    with pytest.raises(ValueError, match="in a buffer of"):
        unpack(packed[:-1])
    with pytest.raises(ValueError, match="at least 32 bytes"):
        unpack(packed[:8])
