"""Python looks for cycles where it may find some, and as before when that is over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from recsim_train.trace.garbage import collection_paused, earlier_objects_skipped


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()
    gc.unfreeze()


@pytest.mark.parametrize("collecting", [True, False])
def test_a_pause_ends_as_it_began_even_with_an_error(collecting: bool) -> None:
    (gc.enable if collecting else gc.disable)()

    @collection_paused()
    def fails() -> None:
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.isenabled() == collecting


def test_only_what_was_there_before_is_skipped() -> None:
    old = weakref.ref(Knot())
    with earlier_objects_skipped():
        new = weakref.ref(Knot())
        gc.collect()
        assert new() is None
        assert old() is not None
    gc.collect()
    assert old() is None
