"""Calibration: this machine's profile from its own micro-workloads, in some minutes.

Measuring processes run one part after the other; what they report becomes prices
(`recsim_train.calibration.prices`). Nothing here is told of the experiments that the profile will
predict, and nothing is tuned on them. But one price comes from short runs of a strategy: that of
the interpreter lock (`recsim_train.calibration.crowd`).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

import psutil

from recsim_train.calibration import crowd, grid, meet, reads, talk
from recsim_train.calibration.child import MeasuringProcess
from recsim_train.calibration.crowd import THREADS, Crowd
from recsim_train.calibration.fit import Observation, fit
from recsim_train.calibration.own_runs import Predict, own_error, wander
from recsim_train.calibration.prices import (
    MEETING_PRIORS,
    Prices,
    Window,
    Wire,
    contention,
    cooling,
    fit_kernels,
    fit_reading,
    fit_wire,
    gloo_message,
    handover,
    kernel_observations,
    run_observations,
    switch,
    wire_figures,
    wire_observations,
)
from recsim_train.calibration.speed import Watch, measure_speed
from recsim_train.calibration.talk import Talked
from recsim_train.calibration.threads import fit_threads
from recsim_train.config.cluster import (
    Calibration,
    Cluster,
    Cooling,
    Costs,
    Host,
    Network,
    Price,
    Threads,
)
from recsim_train.config.speed import MachineSpeed, MachineSpeeds
from recsim_train.results import environment

Progress = Callable[[int, int], None]

_LIMIT = 150.0
"""Seconds that one part may take; each takes a fraction of it on an idle machine."""
_MOST_BUSY = 8
"""Processes that are run side by side at most."""
_SPEEDS = 2
"""How often the machine's speed is measured while nothing else runs."""
_SWITCHES, _BUSY_TURNS = 12, 10
"""Windows of busy processes beside threads that wake; turns of one busy process and of all."""
_THREADS, _WIRE, _CROWD, _RUN = 9, 8, 3, 4
"""Units of progress (about a second each) of operations on several threads, of a wire, of a run of
`crowd`, of one of `talk`, `reads` and `meet`."""


class _Measuring:
    """One calibration: what is asked of the measuring processes, and how far it is."""

    def __init__(self, quick: bool, progress: Progress | None) -> None:
        self.quick = quick
        self._between: list[MachineSpeed] = []
        self.cores = environment.cores()
        self.settings = grid.QUICK if quick else grid.GRID
        self._total = sum(len(s.batches) for s in self.settings) + _SPEEDS
        self._total += _SWITCHES + 2 * _BUSY_TURNS + 1
        self._total += (_THREADS if self.cores > 1 else 0) + 2 * _WIRE
        self._total += _CROWD * crowd.runs_of(quick=quick)
        self._total += _RUN * (talk.runs_of(quick=quick) + reads.runs_of(quick=quick))
        self._total += _RUN * meet.runs_of(quick=quick)
        self._done = 0
        self._progress = progress

    def tick(self, units: int = 1) -> None:
        """Tell the caller that ``units`` more are done."""
        self._done = min(self._total, self._done + units)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def finish(self) -> None:
        """Tell the caller that all is done."""
        self.tick(self._total)

    def part(self, name: str, units: int = 0, **request: Any) -> Any:
        """What one measuring process reports. It tells how far it is, or is worth ``units``."""
        with MeasuringProcess(name, {"quick": self.quick, **request}, _LIMIT) as child:
            report = child.result(None if units else self.tick)
        self.tick(units)
        return report

    def speed(self) -> MachineSpeed:
        """How fast the machine is at the moment, where nothing else runs."""
        found = measure_speed()
        self.tick()
        return found

    def ran(self, watch: Watch, units: int) -> Callable[[], None]:
        """What to call after each run of a part; takes down how fast the machine was meanwhile."""

        def after() -> None:
            if (speed := watch.read()) is not None:
                self._between.append(speed)
            self.tick(units)

        return after

    def speeds(self, before: MachineSpeed) -> MachineSpeeds:
        """All of them, the last one measured now."""
        return MachineSpeeds(before=before, after=self.speed(), between=tuple(self._between))

    def threads(self) -> list[dict[str, Any]]:
        """Operations on one thread and on one for each core; nothing where there is one core."""
        if self.cores == 1:
            return []
        found: list[dict[str, Any]] = self.part("threads", _THREADS, threads=self.cores)
        return found

    def wire(self, folder: Path, *, crowded: bool = False) -> list[dict[str, Any]]:
        """Both ends of a connection over loopback.

        ``crowded``: while training steps of other processes keep every core busy. That is where
        messages live in a run: caches are cold, and the threads at both ends are preempted.
        """
        request = {
            "quick": self.quick,
            "crowded": crowded,
            "store": str(folder / ("store-crowded" if crowded else "store")),
        }
        with ExitStack() as stack:
            if crowded:
                self._occupy(stack)
            ends = [
                stack.enter_context(MeasuringProcess("wire", {**request, "rank": rank}, _LIMIT))
                for rank in range(2)
            ]
            results = [end.result() for end in ends]
        self.tick(_WIRE)
        return results

    def _occupy(self, stack: ExitStack) -> None:
        """Keep every core busy until ``stack`` is left."""
        for _ in range(min(self.cores, _MOST_BUSY)):
            busy = stack.enter_context(MeasuringProcess("busy", {"seconds": _LIMIT}, _LIMIT))
            busy.hear()
            busy.tell({})

    def windows(self, parts: Sequence[str], turns: Sequence[int], seconds: float) -> list[Any]:
        """What a process for each of the ``parts`` reports, of windows of so many ``seconds``: in
        each of the ``turns`` so many of them, the first ones, have one side by side."""
        with ExitStack() as stack:
            children = [
                stack.enter_context(MeasuringProcess(part, {"seconds": seconds}, _LIMIT))
                for part in parts
            ]
            for child in children:
                child.hear()
            for many in turns:
                for child in children[:many]:
                    child.tell({})
                for child in children[:many]:
                    child.hear()
                self.tick()
            for child in children:
                child.tell({"stop": True})
            return [child.result() for child in children]

    def switches(self) -> list[tuple[Window, Window]]:
        """Of windows in which every core is busy, mean steps without and with threads that wake."""
        count = min(self.cores, _MOST_BUSY)
        parts, turns = ["busy"] * count + ["disturb"] * count, [2 * count] * _SWITCHES
        reports = self.windows(parts, turns, 0.3 if self.quick else 0.6)[:count]
        pairs = ((seen["calm"], seen["disturbed"]) for report in reports for seen in report)
        return [(calm, disturbed) for calm, disturbed in pairs if calm and disturbed]

    def turn(self) -> float | None:
        """Seconds for which a thread keeps a core that another wants; None: not to be measured."""
        kept = self.windows(["turns"] * 2, [2], 0.3)
        turns = [seconds for report in kept for seconds in report]
        return median(turns) if turns else None

    def busy(self) -> tuple[float, float]:
        """(contention, jitter): in turn one busy process and one for each core, because the machine
        may be slower in one second than in the next. Jitter is that of steps on busy cores."""
        count = min(self.cores, _MOST_BUSY)
        turns, seconds = _BUSY_TURNS, 0.1 if self.quick else 0.4
        first, *others = self.windows(["busy"] * count, [1, count] * turns, seconds)
        alone, crowd = first[::2], [*first[1::2], *(seen for other in others for seen in other)]
        rates = ([seen["rate"] for seen in windows] for windows in (alone, crowd))
        jitter = min(2.0, mean(seen["spread"] for seen in crowd))
        return contention(*rates) if count > 1 else 1.0, jitter


def calibrate_machine(
    *,
    name: str,
    command: list[str] | str,
    progress: Progress | None = None,
    predict: Predict | None = None,
    quick: bool = False,
) -> Cluster:
    """Measure this machine and return its profile.

    ``command``: the command line to note in it; ``progress``: called with (done, total);
    ``predict``: what tells how far predictions are off calibration's own runs; none: that is not
    asked; ``quick``: a few settings only, for tests of the machinery. Nothing else should run
    meanwhile: the load before the start is noted in the profile. Raises RunFailed when a part
    fails.
    """
    begin = time.monotonic()
    load = os.getloadavg()[0]
    processor = psutil.cpu_percent(interval=0.2)
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as path:
        measuring, folder = _Measuring(quick, progress), Path(path)
        before = measuring.speed()
        shared, jitter = measuring.busy()
        disturbed, turn = measuring.switches(), measuring.turn()
        timed = measuring.part("kernels", budget=0.1 if quick else 1.0)
        threaded = measuring.threads()
        ends = measuring.wire(folder)
        loaded = measuring.wire(folder, crowded=True)
        with Watch() as watch:
            ran = measuring.ran(watch, _RUN)
            rows = reads.measure(folder, measuring.cores, ran, quick=quick)
            crowded = crowd.measure(folder, measuring.ran(watch, _CROWD), quick=quick)
            talked = talk.measure(folder, measuring.cores, ran, quick=quick)
            met = meet.measure(folder, measuring.cores, ran, quick=quick)
            watched = watch.share
        prices, colder = _work_prices(timed, talked, rows)
        law = _thread_law(threaded, measuring.cores, shared, prices)
        wire = _wire_prices(ends, loaded, run_observations(talked, colder), prices)
        _meeting_prices([seen for seen, _ in met], prices)
        prices.add({"switch": switch(disturbed)})
        _lock_price(crowded, measuring.cores, shared, prices)
        calibration = Calibration(
            date=datetime.now().astimezone().date().isoformat(),
            machine=environment.machine_name(),
            versions=environment.versions(),
            background_load=f"load average {load:.2f}, processor {processor:.0f} % busy before",
            machine_speed=measuring.speeds(before),
            command=command if isinstance(command, str) else " ".join(command),
            residuals=prices.residuals,
            fit_errors=prices.fit_errors,
            valid_range=grid.ranges(measuring.settings),
        )
        cluster = _cluster(name, measuring.cores, shared, jitter, prices, wire, calibration)
        runs = [*(run.own for run in talked if run.own), *(run for _, run in met)]
        scheduler = {"turn": turn, "wander": wander(runs)}
        told = {name: value for name, value in scheduler.items() if value is not None}
        known = {"threads": law, "cooling": colder, "watched": round(watched, 4), **told}
        cluster = cluster.model_copy(update=known)
        missed = None
        if predict is not None:  # while the data of these runs are there
            with talk.known(talk.Talk), talk.known(meet.Meet):
                missed = own_error(runs, cluster, predict)
    measuring.finish()
    whole: dict[str, object] = {"seconds": round(time.monotonic() - begin, 1)}
    if missed is not None:
        whole["own_error"] = missed.beyond
        whole["residuals"] = calibration.residuals | {"calibration's own runs": str(missed)}
    return cluster.model_copy(update={"calibration": calibration.model_copy(update=whole)})


def _work_prices(
    timed: Sequence[dict[str, Any]],
    talked: Sequence[Talked],
    rows: Sequence[Observation],
) -> tuple[Prices, Cooling]:
    """Prices of kernels, of the runtime's own work, with what makes it dearer, and of rows."""
    prices = Prices()
    kernels = fit_kernels(kernel_observations(timed))
    prices.add(kernels.prices)
    prices.say(kernels)
    calls, law = cooling(talked)
    prices.add(calls)
    reading = fit_reading([*rows, *(run.read for run in talked)], prices)
    prices.add(reading.prices)
    prices.say(reading)
    return prices, law


def _thread_law(
    threaded: Sequence[dict[str, Any]], cores: int, shared: float, prices: Prices
) -> Threads:
    """How operations scale over threads; adds how well that is known."""
    if not threaded:
        return Threads()
    per_unit = {name: estimate.value for name, estimate in prices.estimates.items()}
    law, prices.residuals["threads within operations"] = fit_threads(
        threaded, per_unit, cores, shared
    )
    return law


def _wire_prices(
    ends: Sequence[dict[str, Any]],
    loaded: Sequence[dict[str, Any]],
    messages: Sequence[Observation],
    prices: Prices,
) -> Wire:
    """Adds the prices of messages on busy cores; returns what the idle wire itself does."""
    idle = fit_wire(wire_observations(ends))
    talks = fit_wire([*wire_observations(loaded), *messages])
    prices.add(talks.prices)
    message = idle.prices["message"].value
    prices.say(talks)
    prices.residuals["round trips"] += (
        f"; on idle cores a message takes {message * 1e6:.0f} us, "
        f"one over gloo {gloo_message(ends).value * 1e6:.0f} us"
    )
    wire = wire_figures(ends, message)
    prices.add({"collective_step": wire.collective_step})
    return wire


def _meeting_prices(met: Sequence[Observation], prices: Prices) -> None:
    """Adds the prices of collectives."""
    fitted = fit(met, MEETING_PRIORS)
    prices.add(fitted.prices)
    prices.say(fitted)


def _lock_price(crowded: Sequence[Crowd], cores: int, shared: float, prices: Prices) -> None:
    """Adds the price of handing the interpreter lock over."""
    prices.add({"handover": handover(crowded, cores, shared, prices)})
    gains = ", ".join(f"{seen.together / seen.alone:.2f}" for seen in crowded)
    prices.residuals["threads"] = (
        f"{THREADS} threads of one process do {gains} times the small iterations of one"
    )


def _cluster(
    name: str,
    cores: int,
    shared: float,
    jitter: float,
    prices: Prices,
    wire: Wire,
    calibration: Calibration,
) -> Cluster:
    costs = {
        price: Price.model_construct(
            value=estimate.value, uncertainty=estimate.uncertainty, basis=estimate.basis
        )
        for price, estimate in prices.estimates.items()
    }
    memory = float(psutil.virtual_memory().total)
    return Cluster(
        name=name,
        description=f"This machine, measured by `recsim-train calibrate`: {calibration.machine}",
        colocate=True,
        hosts={"default": Host.model_construct(cores=cores, memory=memory, nic=wire.nic)},
        network=Network.model_construct(
            latency=wire.latency, efficiency=1.0, connection_cap=wire.connection_cap
        ),
        contention=shared,
        measured_cores=min(cores, _MOST_BUSY),
        jitter=jitter,
        costs=Costs(**costs),
        calibration=calibration,
    )
