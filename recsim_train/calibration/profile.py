"""Calibration: this machine's profile from its own micro-workloads, in some minutes.

Measuring processes run one part after the other; what they report becomes prices
(`recsim_train.calibration.prices`). Nothing here is told of the experiments that the profile will
predict, and nothing is tuned on them.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from recsim_train.calibration import grid
from recsim_train.calibration.fit import Observation, fit
from recsim_train.calibration.measuring import (
    COLLECTIVES,
    CORES,
    KEEPING,
    LOCK,
    MESSAGES,
    OPERATIONS,
    OWN,
    READING,
    REQUESTS,
    Stages,
    measure_busy,
    measure_keeping,
    measure_lock,
    measure_turn,
    measure_wire,
    seconds_of,
)
from recsim_train.calibration.own import unit
from recsim_train.calibration.own.measure import MOST_BUSY
from recsim_train.calibration.own_runs import Predict, own_error
from recsim_train.calibration.prices import (
    MEETING_PRIORS,
    Crowd,
    Prices,
    cooling,
    fit_kernels,
    fit_reading,
    fit_wire,
    from_repeats,
    handover,
    loopback_of,
    run_observations,
    waits_of,
    warmed,
    wire_observations,
)
from recsim_train.calibration.programs import Talked, known, met_in, read_in, talked_in
from recsim_train.calibration.runs import (
    STARTS,
    is_predicted,
    measure,
    meetings,
    readings,
    starts,
    talks,
)
from recsim_train.calibration.speed import measure_speed
from recsim_train.calibration.threads import fit_threads
from recsim_train.config.cluster import (
    ASSUMED_THREADS,
    Calibration,
    CheckpointPrices,
    Cluster,
    Cooling,
    Costs,
    Host,
    Loopback,
    Network,
    Price,
    Threads,
)
from recsim_train.config.measured import MachineSpeeds
from recsim_train.results import environment
from recsim_train.results.undisturbed import MOVED

UNSEEN = MOVED
"""What varies from one minute to another, such as the machine's speed, a quick calibration sees
once, in whichever minute it comes. It is taken to vary by as much as counts as a machine that has
not moved (relative standard deviation): what is less is noticed nowhere."""


def calibrate_machine(
    *,
    name: str,
    command: list[str] | str,
    stages: Stages | None = None,
    predict: Predict | None = None,
    quick: bool = False,
) -> Cluster:
    """Measure this machine and return its profile.

    ``command``: the command line to note in it; ``stages``: those of `seconds_of`, to be told how
    far it is; ``predict``: what tells how far predictions are off calibration's own runs; none:
    that is not asked; ``quick``: fewer settings, shorter runs, wider uncertainties (`UNSEEN`).
    Nothing else should run meanwhile: the load before the start is noted in the profile. Raises
    RunFailed when a part fails.
    """
    stages = stages or Stages(seconds_of(quick=quick))
    begin = time.monotonic()
    load = os.getloadavg()[0]
    by_core = enumerate(psutil.cpu_percent(interval=0.2, percpu=True))
    processor = fmean([busy for core, busy in by_core if core in environment.allowed()] or [0.0])
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as path:
        cores, folder = environment.cores(), Path(path)
        stages.begin(CORES)
        before, between = measure_speed(), []
        shared, jitter = measure_busy(cores, quick=quick)
        turn = measure_turn()
        done = stages.begin(OPERATIONS, unit.turns_of(quick=quick) * len(unit.plans(quick=quick)))
        operations = unit.measure(cores, done, quick=quick)
        stages.begin(LOCK)
        between.append(measure_speed())
        crowded = measure_lock(cores, quick=quick)
        stages.begin(MESSAGES)
        between.append(measure_speed())
        ends = measure_wire(folder, quick=quick)
        loaded = measure_wire(folder, quick=quick, crowded_cores=cores)
        planned = readings(quick=quick)
        reading = measure(planned, folder, cores, stages.begin(READING, len(planned)))
        planned = talks(quick=quick)
        done = stages.begin(REQUESTS, len(planned))
        between.append(measure_speed())
        asking = measure(planned, folder, cores, done)
        planned = meetings(quick=quick)
        done = stages.begin(COLLECTIVES, len(planned))
        between.append(measure_speed())
        meeting = measure(planned, folder, cores, done)
        done = stages.begin(KEEPING, STARTS[quick])
        kept = Prices()
        keeping = measure_keeping(folder, quick=quick)
        keeping["start"] = starts(folder, cores, done, quick=quick)
        kept.add({name: from_repeats(seen) for name, seen in keeping.items()})
        after = measure_speed()
        talked = [talked_in(run) for run in asking]
        speeds = MachineSpeeds(before=before, after=after, between=tuple(between))
        here = [run for run in (*reading, *asking) if not run.plan.experiment.roles.readers]
        rows = [read_in(run) for run in here]
        prices, colder = _work_prices(operations.observations, talked, rows)
        law = _thread_law(operations.threaded, cores, shared, prices)
        loopback = _wire_prices(ends, loaded, run_observations(talked, colder), prices)
        met = [warmed(*met_in(run), colder) for run in meeting]
        prices.take(fit(met, MEETING_PRIORS))
        _lock_price(crowded, cores, shared, prices)
        calibration = Calibration(
            date=datetime.now().astimezone().date().isoformat(),
            machine=environment.machine_name(),
            versions=environment.versions() | {"code": environment.code_of()},
            background_load=f"load average {load:.2f}, processor {processor:.0f} % busy before",
            machine_speed=speeds,
            command=command if isinstance(command, str) else shlex.join(command),
            residuals=prices.residuals,
            fit_errors=prices.fit_errors,
            valid_range=grid.ranges(grid.QUICK if quick else grid.GRID),
        )
        cluster = _cluster(name, cores, shared, jitter, prices, loopback, law, calibration)
        runs = [run for run in (*asking, *meeting, *reading) if is_predicted(run, cores)]
        known_too: dict[str, object] = {
            "cooling": colder,
            "checkpoints": CheckpointPrices(**_said(kept)),
            **({} if turn is None else {"turn": turn}),
        }
        cluster = cluster.with_(known_too)
        missed = None
        if predict is not None:  # while the data of these runs are there
            with known():
                missed = own_error(runs, cluster, predict, stages.begin(OWN, len(runs)))
    whole: dict[str, object] = {"seconds": round(time.monotonic() - begin, 1)}
    if quick:
        whole["unseen"] = UNSEEN
    if missed is not None:
        whole["own_error"] = missed.beyond
        whole["residuals"] = calibration.residuals | {"calibration's own runs": str(missed)}
    return cluster.with_({f"calibration.{name}": value for name, value in whole.items()})


def _work_prices(
    timed: Sequence[Observation],
    talked: Sequence[Talked],
    rows: Sequence[Observation],
) -> tuple[Prices, Cooling]:
    """Prices of kernels, of the runtime's own work, with what makes it dearer, and of rows."""
    prices = Prices()
    prices.take(fit_kernels(timed))
    calls, law = cooling(talked)
    prices.add(calls)
    prices.take(fit_reading(rows, prices))
    return prices, law


def _thread_law(
    threaded: Sequence[dict[str, Any]], cores: int, shared: float, prices: Prices
) -> Threads:
    """How operations scale over threads; adds how well that is known."""
    if not threaded:
        return ASSUMED_THREADS
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
) -> Loopback:
    """Adds the prices of messages on busy cores; returns what idle loopback itself does."""
    idle = fit_wire(wire_observations(ends))
    prices.take(fit_wire([*wire_observations(loaded), *messages]))
    message = idle.prices["message"].value
    prices.residuals["round trips"] += f"; on idle cores a message takes {message * 1e6:.0f} us"
    loopback = loopback_of(ends, message)
    prices.add(waits_of(ends, loopback.latency))
    return loopback


def _lock_price(crowded: Sequence[Crowd], cores: int, shared: float, prices: Prices) -> None:
    """Adds the price of handing the interpreter lock over."""
    prices.add({"handover": handover(crowded, cores, shared, prices)})
    if crowded:
        gains = ", ".join(f"{seen.together / seen.alone:.2f}" for seen in crowded)
        prices.residuals["threads"] = (
            f"{grid.CROWD} threads of one process do {gains} times the steps of one"
        )


def _said(prices: Prices) -> dict[str, Price]:
    """Prices as a profile has them."""
    return {
        price: Price.model_construct(
            value=estimate.value, uncertainty=estimate.uncertainty, basis=estimate.basis
        )
        for price, estimate in prices.estimates.items()
    }


def _cluster(
    name: str,
    cores: int,
    shared: float,
    jitter: float,
    prices: Prices,
    loopback: Loopback,
    law: Threads,
    calibration: Calibration,
) -> Cluster:
    memory = float(environment.memory())
    return Cluster(
        name=name,
        description=f"This machine, measured by `recsim-train calibrate`: {calibration.machine}",
        colocate=True,
        hosts={"default": Host.model_construct(cores=cores, memory=memory, nic=loopback.nic)},
        network=Network.model_construct(
            latency=loopback.latency,
            efficiency=1.0,
            connection_cap=loopback.connection_cap,
            loopback=loopback,
        ),
        contention=shared,
        measured_cores=min(cores, MOST_BUSY),
        jitter=jitter,
        costs=Costs(**_said(prices)),
        threads=law,
        calibration=calibration,
    )
