from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from recsim_train.report import anatomy, drawing, figures, text, what_if
from recsim_train.report.drawing import COLOURS, NARROW, WIDTH, colour, svg_for_page
from recsim_train.report.figures import timeline_figure
from recsim_train.report.findings import compare
from recsim_train.report.runs import load_runs
from recsim_train.report.write import rated

DRAWING = (anatomy, figures, what_if)
"""Modules that finish figures."""


@pytest.fixture
def comparisons(tmp_path: Path, factory: Any) -> Any:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    factory.write(tmp_path, plan, "real")
    return compare(load_runs([tmp_path])).comparisons


def every_figure(comparisons: Any) -> list[Any]:
    return [
        figures.throughput_figure(rated(comparisons)),
        figures.breakdown_figure(comparisons),
        figures.loss_figure(comparisons),
        timeline_figure(comparisons[0], "t"),
        figures.utilisation_figure(comparisons[0], "u"),
    ]


def test_figures_are_the_same_bytes_every_time(comparisons: Any) -> None:
    for one, two in zip(every_figure(comparisons), every_figure(comparisons), strict=True):
        assert one is not None
        assert one == two
        assert one.svg.startswith("<?xml")
        assert "<dc:date>" not in one.svg
        assert one.png.startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_no_text_of_a_figure_overlaps_another(
    comparisons: Any, monkeypatch: pytest.MonkeyPatch, width: float
) -> None:
    """Tick labels, legends, bar notes and axis names, as laid out."""
    from matplotlib.text import Text

    drawn: list[Any] = []

    def keep(figure: Any, *_: object) -> None:
        figure.savefig(io.BytesIO(), format="png")
        drawn.append(figure)

    for module in DRAWING:
        monkeypatch.setattr(module, "finish", keep)
    monkeypatch.setattr(drawing, "WIDTH", width)
    every_figure(comparisons)
    assert len(drawn) == 5
    assert {figure.get_figwidth() for figure in drawn} == {width}
    for figure in drawn:
        boxes = [
            (t.get_text(), t.get_window_extent())
            for t in figure.findobj(Text)
            if t.get_text().strip() and t.get_visible() and not _outside(t)
        ]
        assert len(boxes) > 4
        for k, (words, box) in enumerate(boxes):
            for other, beside in boxes[:k]:
                assert not (box.shrunk(0.9, 0.9).overlaps(beside.shrunk(0.9, 0.9))), (
                    f"{words!r} lies on {other!r}"
                )


def _outside(label: Any) -> bool:
    """Tick labels beyond the axis limits are laid out but never drawn."""
    axes = label.axes
    if axes is None:
        return False
    x, y = label.get_position()
    (x0, x1), (y0, y1) = axes.get_xlim(), sorted(axes.get_ylim())
    if label in axes.get_xticklabels():
        return not axes.xaxis.get_tick_params()["labelbottom"] or not x0 <= x <= x1
    return label in axes.get_yticklabels() and not y0 <= y <= y1


def test_axes_are_named_with_units(comparisons: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    for module in DRAWING:
        monkeypatch.setattr(module, "finish", lambda figure, *_: drawn.append(figure))
    every_figure(comparisons)
    names = [f.axes[-1].get_xlabel() + f.axes[-1].get_ylabel() for f in drawn]
    for name, unit in zip(names, ("examples/s", "(ms)", "nats", "(ms)", "(%)"), strict=True):
        assert unit in name


def test_the_breakdown_draws_what_was_measured(
    comparisons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "finish", lambda figure, *_: drawn.append(figure))
    figures.breakdown_figure(comparisons)
    (axes,) = drawn[0].axes
    first_row = sum(bars.patches[0].get_width() for bars in axes.containers)
    expected = comparisons[0].simulated.summary.seconds_per_iteration
    assert first_row == pytest.approx(1e3 * expected)


def test_an_effect_has_one_colour_in_both_worlds() -> None:
    assert colour("serve_lookup") == colour("lookup") == COLOURS["lookup"]
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert colour("something_new") == colour("serve_something_new")


def test_inline_figures_take_the_pages_text_colour(comparisons: Any) -> None:
    inline = svg_for_page(every_figure(comparisons)[0])
    named = 'role="img" aria-label="Predicted and measured throughput"'
    assert inline.startswith(f'<svg class="wide" {named}')
    assert inline.count(f'<svg class="narrow" {named}') == 1
    assert "currentColor" in inline
    assert "#20262e" not in inline


def test_who_points_at_a_bar_reads_its_figure(comparisons: Any) -> None:
    drawn = every_figure(comparisons)[0]
    eps = text.rate(comparisons[0].predicted_eps)
    for svg in (drawn.svg, drawn.narrow):
        assert f"<title>flat_ps, predicted: {eps} examples/s" in svg
        assert "tip:" not in svg


def test_the_timeline_has_loops_then_servers(comparisons: Any) -> None:
    real = comparisons[0].real
    begin, end = figures.window(real)  # type: ignore[misc]
    lanes = figures.timeline(real, end - begin)
    assert [lane.label for lane in lanes] == [
        "trainer[0].worker[0]",
        "trainer[0].worker[1]",
        "trainer[1].worker[0]",
        "trainer[1].worker[1]",
        "embedding_server[0]",
        "dense_server[0]",
    ]
    assert len(lanes[0].marks) == 3
    assert all(bar.start >= 0 for lane in lanes for bar in lane.bars)
    assert max(bar.end for bar in lanes[0].bars) <= 3 * 14.55e-3 + 1e-9
    assert all(bar.served for bar in lanes[-1].bars)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (text.rate(21300), "21.3k"),
        (text.rate(999.96), "1.00k"),
        (text.rate(1.5e6), "1.50M"),
        (text.rate(7), "7.00"),
        (text.rate(None), "–"),
        (text.tick(25000), "25k"),
        (text.tick(0), "0"),
        (text.seconds(0.0031), "3.10 ms"),
        (text.seconds(2.5e-5), "25.0 µs"),
        (text.seconds(12), "12.0 s"),
        (text.seconds(0), "0 s"),
        (text.size(2048), "2.00 KiB"),
        (text.size(12), "12 B"),
        (text.exact(105728), "105,728"),
        (text.exact(10.25), "10.25"),
        (text.percent(0.0763), "7.6 %"),
        (text.percent(-0.0763, signed=True), "−7.6 %"),
        (text.percent(1.5, signed=True), "+150 %"),
        (text.number(0.74123, 4), "0.7412"),
    ],
)
def test_numbers_in_words(got: str, expected: str) -> None:
    assert got == expected
