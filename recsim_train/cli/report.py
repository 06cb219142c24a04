"""``recsim-train report``: predicted against measured, and why they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import common, shown


def _percent(text: str) -> float:
    from recsim_train.config.units import SHARES, parse_quantity

    number = text if text.strip().endswith("%") else f"{text} %"
    try:
        return parse_quantity(number, SHARES, "an error", "10%")
    except ValueError:
        raise typer.BadParameter(f"expected a percentage such as 10%, got {text!r}") from None


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_DIR", help="Run directories, or one sweep.", parser=common.path_of
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Where it goes.", parser=common.path_of),
    ] = Path("report"),
    json: common.JsonOption = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured",
            metavar="FILE.csv",
            parser=common.path_of,
            help="Measurements made elsewhere, to put beside the predictions.",
        ),
    ] = None,
    max_error: Annotated[
        str | None,
        typer.Option("--max-error", metavar="PCT", help="Exit 3 if the median error is above."),
    ] = None,
) -> None:
    """Pair predictions with measurements: tables, figures, one HTML page.

    Of a sweep: throughput over its settings, the best points, and what binds where.
    """
    limit = _percent(max_error) if max_error is not None else None

    from recsim_train import calls
    from recsim_train.report.runs import find_sweep

    if limit is not None and find_sweep(runs) is not None:
        raise typer.BadParameter("a sweep has no measurement, so no error: --max-error")
    made = calls.compare(*runs, out=out, measured=measured)
    shown.show_report(made, json)
    if limit is not None and not made.findings.within(limit):
        common.say(f"gate failed: {made.findings.gate_sentence(limit)}")
        raise typer.Exit(common.GATE_FAILED)
