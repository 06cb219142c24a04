"""A swept setting's values are what the setting takes them for, however they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.sets import parse_value
from recsim_train.config.sweep import written
from recsim_train.report.terminal import show
from recsim_train.sweep.answers import axis_of
from recsim_train.sweep.page import report_on_sweep
from tests.sweep.made import sweep

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=12)
    | st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda x: x % 1),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text("abc: ,#", min_size=1, max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "values", "numbers", "unit"),
    [
        ("cluster.hosts.default.nic", ["10Gbit/s", "2 Gbit/s"], (2.0, 10.0), "Gbit/s"),
        ("cluster.network.latency", ["1 ms", "50 us"], (0.05, 1.0), "ms"),
        ("cluster.costs.call", ["2 us", "1 us"], (1.0, 2.0), "us"),
        ("cluster.costs.call.uncertainty", ["20 %", "5 %"], (5.0, 20.0), "%"),
        ("cluster.mixed.trainer.0.nic", ["2 Gbit/s", "1 Gbit/s"], (1.0, 2.0), "Gbit/s"),
        ("strategy.compression.keep", ["5 %", "1 %"], (1.0, 5.0), "%"),
        ("model.max_rows", ["1M", 900_000, "50k"], (5e4, 9e5, 1e6), ""),
        ("model.tables.0.rows", ["1M", "50k"], (5e4, 1e6), ""),
        ("roles.trainers", [4, 2], (2.0, 4.0), ""),
    ],
)
def test_numbers_in_order(
    key: str, values: list[Any], numbers: tuple[float, ...], unit: str
) -> None:
    axis = axis_of(key, values, [key])
    assert axis.numbers == pytest.approx(numbers)
    assert axis.unit == unit
    assert sorted(map(str, axis.values)) == sorted(map(str, values))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        # texts that look like a duration, a share, a count, a number
        ("cluster.hosts.default.rent.source", ["5 s", "1 h"]),
        ("data.path", ["20 %", "10 %"]),
        ("cluster.name", ["2M", "1M"]),
        ("cluster.hosts.default.rent.currency", ["007", "006"]),
        ("cluster.network.connection_cap", ["10 Gbit/s", None]),
        ("strategy.every", [True, False]),
    ],
)
def test_names_as_they_were_given(key: str, values: list[Any]) -> None:
    axis = axis_of(key, values, [key])
    assert axis.numbers is None
    assert list(axis.values) == values


@given(VALUES)
def test_what_is_written_reads_back_as_the_same_value(value: Any) -> None:
    text = written(value)
    assert "\n" not in text
    read = parse_value(text, "here")
    assert read == value
    assert type(read) is type(value)


def test_texts_with_commas_and_lists_reach_the_page(tmp_path: Path) -> None:
    sources = ["price list, on demand", "AWS: on demand", "007"]
    points = [
        ({"cluster.hosts.default.rent.source": source, "model.top_mlp": [n, 1]},
         {"examples_per_second": 100.0 * n})
        for n, source in enumerate(sources, start=1)
    ]  # fmt: skip
    found = sweep(tmp_path, points)
    assert [
        row.settings["cluster.hosts.default.rent.source"] for row in found.record.rows
    ] == sources
    made = report_on_sweep(tmp_path / "made-sweep", tmp_path / "out")
    show(made.report)
    assert made.out is not None
    page = (made.out / "report.html").read_text()
    for source in ("source &#34;AWS: on demand&#34;", "source &#34;007&#34;", "top mlp [2, 1]"):
        assert source in page
