"""What predicting, measuring and calibrating give back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.config.cluster import Cluster
from recsim_train.report import naming, text
from recsim_train.report.document import Cell, Picture, TextTable
from recsim_train.report.publish import fragment
from recsim_train.results.folder import RUNS
from recsim_train.results.row import Row, row_of
from recsim_train.results.rundir import RunRecord, World, read_run
from recsim_train.session.job import Job

if TYPE_CHECKING:
    import pandas as pd

    from recsim_train.sweep.folder import SweepRecord


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Run(Row):
    """One prediction or one measurement, with all figures of its row.

    ``settings``: what tells it from the others: swept settings by name. ``status``: complete; of a
    measurement also "diverged since iteration 12" or "diverged at evaluation"; of a sweep's points
    also "does not fit" (into memory) and failed; then ``message`` says why. ``bottleneck``: what
    binds, in one phrase, ``binding`` the same typed; None of a measurement.
    """

    world: World
    path: Path | None
    """Its run directory; None of a sweep's points, unless the sweep keeps runs."""

    def __repr__(self) -> str:
        """On one line: its figures are many."""
        said = (
            self.status
            if self.examples_per_second is None
            else f"{text.rate(self.examples_per_second)} examples/s"
        )
        named = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        what = "prediction" if self.world == "simulated" else "measurement"
        return f"<Run: {what} of {' at '.join(filter(None, (self.strategy, named)))}, {said}>"

    def _repr_html_(self) -> str:
        """In notebooks: the table of this run alone."""
        return Runs((self,))._repr_html_()

    def plot(self) -> Picture | None:
        """Its throughput; None where there is none."""
        return Runs((self,)).plot()

    @property
    def folder(self) -> Path:
        """Its run directory. Raises ValueError if there never was one."""
        if self.path is None:
            raise ValueError("a sweep's point leaves a row only; sweep.keep_runs=true keeps more")
        return self.path

    @property
    def figures(self) -> dict[str, Any]:
        """All of them by name, as JSON can hold them."""
        return self.document

    @property
    def bound(self) -> float | None:
        """Examples per second that no prediction can exceed; None of a measurement."""
        return self.bound_eps

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the examples per second, as far as the run itself shows; None where it is too
        short for one."""
        low, high = self.eps_low, self.eps_high
        return None if low is None or high is None else (low, high)

    @property
    def whole_interval(self) -> tuple[float, float] | None:
        """Examples per second: of a prediction 90 %, with what calibration's errors make of it; of
        a measurement `interval`. None where nothing is known of its errors."""
        return self.interval if self.world == "real" else self.interval90()

    @property
    def record(self) -> RunRecord:
        """Everything that is known of it: summary, iterations, totals, spans.

        Raises UserError if the run directory is gone, ValueError if there never was one.
        """
        return read_run(self.folder)


@dataclass(frozen=True, slots=True, repr=False)
class Runs:
    """The runs of a study, in order; a sequence of `Run`."""

    runs: tuple[Run, ...]
    sweep: SweepRecord | None = None
    """The table that a sweep leaves."""
    caveats: tuple[str, ...] = ()
    """Of a sweep: where its profiles are of another machine or torch than there are here. What must
    be known of each point is in its row."""

    def __repr__(self) -> str:
        """On one line: what they are of."""
        kinds = dict.fromkeys(run.strategy for run in self.runs)
        worlds = {"simulated": "predictions", "real": "measurements"}
        what = " and ".join(dict.fromkeys(worlds[run.world] for run in self.runs)) or "runs"
        return f"<Runs: {len(self.runs)} {what} of {', '.join(kinds) or 'nothing'}>"

    def _repr_html_(self) -> str:
        """In notebooks: a row for each run, and their throughput."""
        drawn = self.plot()
        return fragment([self._table(), *([drawn] if drawn is not None else ())])

    def _table(self) -> TextTable:
        runs = self.runs
        keys = list(dict.fromkeys(key for run in runs for key in run.settings))
        settings = {key: [str(run.settings.get(key, text.NONE)) for run in runs] for key in keys}
        columns: dict[str, Sequence[str | Cell]] = {
            "strategy": [run.strategy for run in runs],
            **settings,
            "world": [run.world for run in runs],
            "examples/s": [text.rate(run.examples_per_second) for run in runs],
            "interval": [text.between(run.whole_interval) for run in runs],
            "AUC": [text.number(run.auc, 4) for run in runs],
            "NE": [text.number(run.normalized_entropy, 4) for run in runs],
            "bound by": [naming.phrase(run.bottleneck or text.NONE) for run in runs],
            "status": [run.status for run in runs],
        }
        words = ("strategy", *keys, "world", "bound by", "status")
        return TextTable.filled(columns, words)

    def plot(self) -> Picture | None:
        """Throughput: of a sweep over its settings, else a bar for each run; None where none has
        one. Notebooks show it."""
        from recsim_train.report.write import first_of

        if self.sweep is not None:
            from recsim_train.sweep.figures import draw
            from recsim_train.sweep.findings import SweepFindings

            return first_of(draw(SweepFindings(self.sweep)))
        from recsim_train.report.figures import Rated, throughput_figure

        rated = []
        for run in self.runs:
            if eps := run.examples_per_second:
                named = [f"{key} {value}" for key, value in run.settings.items()]
                name, ends = ", ".join([run.strategy, *named]), run.whole_interval
                if run.world == "real":
                    spread = None if ends is None else (ends[1] - ends[0]) / 2 / eps
                    rated.append(Rated(name, measured=eps, spread=spread))
                else:
                    rated.append(Rated(name, eps, ends))
        return first_of([throughput_figure(rated)] if rated else [])

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, number: int) -> Run:
        return self.runs[number]

    def to_frame(self) -> pd.DataFrame:
        """One row for each run: what tells it from the others, then `Run.figures`."""
        import pandas as pd

        return pd.DataFrame(
            [{"world": run.world, **run.settings, **run.figures} for run in self.runs]
        )


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """What this machine's calibration found, and where it was written."""

    cluster: Cluster
    path: Path

    def __repr__(self) -> str:
        """On one line: it holds every price."""
        known = self.cluster.calibration
        when = "not calibrated" if known is None else f"calibrated {known.date} on {known.machine}"
        return f"<Profile {self.cluster.name!r}: {when}, in {self.path}>"

    def _repr_html_(self) -> str:
        """In notebooks: its prices."""
        return str(self.to_frame().to_html())

    def to_frame(self) -> pd.DataFrame:
        """One row for each price: seconds per unit, and its relative uncertainty (95 %)."""
        import pandas as pd

        prices = {name: price for name, price in self.cluster.costs if hasattr(price, "value")}
        return pd.DataFrame(
            {
                "seconds": {name: price.value for name, price in prices.items()},
                "uncertainty": {name: price.uncertainty for name, price in prices.items()},
            }
        )


def run_of(job: Job, record: RunRecord) -> Run:
    """A run that left a directory."""
    from recsim_train.report.caveats import of_prediction

    row = row_of(
        job.plan,
        job.cluster,
        record.summary,
        record.status,
        record.manifest["message"],
        of_prediction(record) if record.world == "simulated" else (),
    )
    said = naming.bottleneck(record.summary.binding)
    row = replace(row, settings=dict(job.settings), run_id=record.run_id, bottleneck=said)
    return _run(row, job.world, record.path)


def runs_of(sweep: SweepRecord, caveats: Sequence[str] = ()) -> Runs:
    """The points of a sweep."""
    runs = (
        _run(row, "simulated", sweep.path / RUNS / row.run_id if row.run_id else None)
        for row in sweep.rows
    )
    return Runs(tuple(runs), sweep, caveats=tuple(caveats))


def _run(row: Row, world: World, path: Path | None) -> Run:
    figures: dict[str, Any] = {column.name: getattr(row, column.name) for column in fields(row)}
    return Run(**figures, world=world, path=path)
