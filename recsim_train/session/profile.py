"""This machine's profile, measured and written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from functools import partial
from math import hypot
from pathlib import Path
from shlex import quote

from recsim_train.calibration import profile as calibration
from recsim_train.calibration.links import PRICES, measure_links
from recsim_train.calibration.measuring import Stages, seconds_of
from recsim_train.calibration.own.measure import (
    ROUNDS,
    SECONDS,
    measure_windows,
    measured_operations,
    with_operations,
)
from recsim_train.calibration.speed import Turns, short_reading
from recsim_train.config.cluster import FORMAT, Cluster
from recsim_train.config.dump import DIGITS, dump_cluster, dump_yaml
from recsim_train.config.errors import UserError
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.config.profiles import find_cluster, load_cluster
from recsim_train.config.validate import plain
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.simulations import operations_of
from recsim_train.placement.plan import Plan
from recsim_train.results.environment import code_of, machine_name
from recsim_train.results.folder import put, writable
from recsim_train.session import own_runs
from recsim_train.session.job import Caller, Job
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import signature


def measure_machine(
    target: Path,
    caller: Caller,
    *,
    quick: bool = False,
    jobs: Sequence[Job] = (),
    add: bool = False,
) -> Cluster:
    """Measure this machine, and the operations of these jobs at their shapes; write its profile.

    ``add``: the operations only, into the profile that is there.
    """
    writable(target.parent, target.name)
    if target.is_dir():
        raise UserError(f"{target}: is a folder, where the file of a profile is to be written")
    plans = [job.plan for job in jobs]
    with caller.progress("calibrating") as progress:
        stages = Stages(_seconds(plans, quick=quick, add=add), progress)
        if add:
            cluster, said = load_cluster(str(target)), _comment(target)
            was = None if cluster.calibration is None else cluster.calibration.machine
            if was != (here := machine_name()):
                caller.say(f"note: {target} describes {was or 'no machine'}, and this is {here}")
            whose = cluster.calibration and cluster.calibration.versions.get("code")
            if whose != (code := code_of()):
                caller.say(f"note: {target} was measured by other code ({whose}; now {code})")
        else:
            said = "Written by `recsim-train calibrate`; edit a copy, not this file."
            cluster = calibration.calibrate_machine(
                name=target.stem,
                command=list(caller.command),
                stages=stages,
                predict=partial(own_runs.predicted, quick=quick),
                quick=quick,
            )
            tick = stages.begin(IN_RUNS, own_runs.turns_of(quick=quick))
            cluster = own_runs.with_in_runs(cluster, tick, quick=quick)
        if plans:
            cluster = _with_operations(cluster, plans, stages, quick=quick, add=add)
    put(target, dump_cluster(cluster, said).encode())
    caller.say(f"wrote {target}")
    return cluster


IN_RUNS, OF_EXPERIMENTS = "passes in runs", "operations of experiments"
"""Stages that follow calibration's own."""
_NET = 16.0, 7.0
"""Seconds of a turn of a net, in full and quick."""


def _seconds(plans: Sequence[Plan], *, quick: bool, add: bool) -> dict[str, float]:
    """About what each stage takes, in their order."""
    found = {} if add else seconds_of(quick=quick)
    if not add:
        found[IN_RUNS] = _NET[quick] * own_runs.turns_of(quick=quick)
    if plans:
        rounds, seconds = _turns(len(plans), quick=quick)
        found[OF_EXPERIMENTS] = rounds * len(plans) * (seconds + 2.0)
    return found


def measure_links_of(name: str, target: Path, caller: Caller) -> Cluster:
    """Measure the links of a profile's emulated hosts; write a profile that extends it."""
    profile = load_cluster(name)
    below = find_cluster(name)
    assert below is not None
    if below.resolve() == target.resolve():
        raise UserError(f"{target}: is the profile that would be extended: name another with -o")
    writable(target.parent, target.name)
    found = measure_links(profile)
    cluster = found.on(profile)
    network, costs = (plain(part, digits=DIGITS) for part in (cluster.network, cluster.costs))
    own = {
        "format": FORMAT,
        "extends": os.path.relpath(below, target.parent),
        "name": target.stem,
        "network": {
            "latency": network["latency"],
            "efficiency": network["efficiency"],
            "connection_cap": network.get("connection_cap"),
        },
        "costs": {price: costs[price] for price in PRICES},
    }
    said = f"# Written by `recsim-train calibrate --emulate {quote(name)}`.\n"
    put(target, (said + dump_yaml(own)).encode())
    dearer = ", ".join(f"{price} {times:.2f}" for price, times in found.dearer.items())
    caller.say(
        f"latency {network['latency']}, payload {found.efficiency:.4f} of the rate, one connection "
        f"carries {network.get('connection_cap') or 'what the link does'}; times what it takes "
        f"over loopback: {dearer}"
    )
    caller.say(f"wrote {target}")
    return load_cluster(str(target))


def existing(profile: Path) -> Path:
    """The file of a profile, which may be named as experiments name it. Raises UserError."""
    load_cluster(str(profile))
    return find_cluster(str(profile)) or profile


def _comment(profile: Path) -> str:
    lines = profile.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in comment)


_TOGETHER = 120.0
"""Seconds that the operations of many plans may take together, if each still has a few."""
_LEAST = 7.0
_QUICK = 2, 1.0


def _turns(plans: int, *, quick: bool) -> tuple[int, float]:
    """How many each of so many plans has, and seconds of all windows of one."""
    if quick:
        return _QUICK
    return ROUNDS, max(_LEAST, min(SECONDS, _TOGETHER / plans)) / ROUNDS


def _with_operations(
    cluster: Cluster, plans: Sequence[Plan], stages: Stages, *, quick: bool, add: bool = False
) -> Cluster:
    unmeasured = cluster.with_({"operations": None})
    rounds, seconds = _turns(len(plans), quick=quick)
    known: set[str] = set()
    asked: list[tuple[Plan, list[tuple[str, Scope]]]] = []
    for plan in plans:
        cells = []
        for name, scope in operations_of(Case.of(plan, unmeasured)):
            shape = f"{name} {signature(name, scope)}"
            if not known.issuperset((shape, f"{shape} on {plan.operation_threads}")):
                cells.append((name, scope))
            known.update((shape, f"{shape} on {plan.operation_threads}", f"{shape} on 1"))
        if cells:
            asked.append((plan, cells))

    turns = Turns(short_reading)
    tick = stages.begin(OF_EXPERIMENTS, len(asked) * rounds)
    turns.make(
        len(asked), rounds, lambda number: measure_windows(*asked[number], seconds=seconds), tick
    )
    for number, (plan, cells) in enumerate(asked):
        entries = measured_operations(plan, cells, unmeasured, turns.seen(number))
        if quick:
            entries = [
                e.with_({"spread": min(1.0, hypot(e.spread or 0.0, calibration.UNSEEN))})
                for e in entries
            ]
        cluster = with_operations(cluster, entries)
    return _with_speeds(cluster, turns.speeds, add=add)


def _with_speeds(cluster: Cluster, more: tuple[MachineSpeed, ...], *, add: bool) -> Cluster:
    """The profile with further readings of the machine's speed, where it is of this machine.
    ``add``: instead of what it says of another day."""
    calibration = cluster.calibration
    if calibration is None or calibration.machine != machine_name():
        return cluster
    known = (None if add else calibration.machine_speed) or MachineSpeeds()
    speeds = known.with_({"between": (*known.between, *more)})
    return cluster.with_({"calibration.machine_speed": speeds})
