"""What ShadowSync promises, and what its foreground twin runs into, as laws of the simulator.

n trainers of m workers with batch b, S dense servers of C bytes/s each way, W bytes of dense
parameters, t seconds of an iteration without synchronisation, k iterations between two exchanges.
Nothing but computation and the dense servers' NIC costs anything worth mentioning here. Shadows go
round without pause, as the paper's do; what a gap changes is in test_shadow_gap.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.experiment import Table
from recsim_train.placement.plan import Plan
from recsim_train.sim.why.bounds import iterations_within
from recsim_train.trace.record import Outcome
from recsim_train.workload.shape import dense_parameters
from tests.simulated import simulate

B = 32
FREE = ("call", "interpreter", "stream_byte", "synthesize_row", "read_row")
CHEAP = ("effect", "asking", "message", "gloo_message", "request", "row_request")
PRICES = {
    **dict.fromkeys(FREE, "0 ps"),
    **dict.fromkeys(CHEAP, "1 us"),
    "wire_byte": "1 ps",
    "collective_step": "200 us",
    "gemm_flop": "5 ns",
}
Job = Callable[..., Plan]
Net = Callable[..., Cluster]
Run = Callable[[Plan, Cluster], Outcome]


@pytest.fixture
def job(plans: Callable[..., Plan]) -> Job:
    def make(n: int, *, m: int, s: int = 1, steps: int = 40, **options: Any) -> Plan:
        return plans(
            "shadowsync",
            {"gap": 0, **options},
            model={"tables": (Table(rows=1000),), "bottom_mlp": (64, 8), "top_mlp": (64, 1)},
            roles={"trainers": n, "embedding_servers": 1, "dense_servers": s},
            data={"path": ("file.tsv",), "generate": True},
            training={"threads": m, "batch_size": B, "steps": steps, "warmup_steps": 0},
        )

    return make


@pytest.fixture
def net(clusters: Callable[..., Cluster]) -> Net:
    def make(c: float, *, trainer: float = 100e9, jitter: float = 0.0) -> Cluster:
        """``c``, ``trainer``: NIC bytes/s of dense servers and trainers."""

        def host(rate: float) -> Host:
            return Host(cores=16, memory="64 GiB", nic=f"{rate * 8 / 1e6:.6f} Mbit/s")

        return clusters(
            cores=64,
            nic="1000 Gbit/s",
            hosts={"dense_server": host(c), "trainer": host(trainer)},
            jitter=jitter,
            prices=PRICES,
        )

    return make


@pytest.fixture
def run(fake_counts: Any) -> Run:
    return lambda plan, cluster: simulate(plan, cluster, counts=fake_counts(plan))


class Measures(NamedTuple):
    """What one run says once all loops are under way."""

    eps: float
    gap: float
    """Iterations of one trainer between two of its rounds; 0: it has none."""


def measure(outcome: Outcome) -> Measures:
    """Over the second half of the time in which every loop still trains.

    A run's own figure covers the same iterations of every loop instead, and with strong jitter
    loses at both ends, where the faster loops wait for nobody and the slower ones are alone.
    """
    last: dict[str, float] = {}
    for i in outcome.iterations:
        last[i.loop] = max(last.get(i.loop, 0.0), i.end)
    end = min(last.values())
    start = 0.5 * end
    ended = iterations_within(outcome.iterations, start, end)
    rounds = iterations_within(outcome.rounds, start, end)
    return Measures(B * ended / (end - start), ended / rounds if rounds else 0.0)


def alone(job: Job, net: Net, run: Run) -> tuple[float, float]:
    """(t, W): an iteration without any synchronisation, and the dense parameters' bytes."""
    plan = job(1, m=1, sync="foreground", every=10**6)
    iterations = run(plan, net(1e9)).iterations
    return iterations[20].end - iterations[20].start, 4 * dense_parameters(plan.experiment.model)


# ------------------------------------------------------------------ in the background


@pytest.mark.usefixtures("equal_shares")
def test_s_easgd_does_not_feel_its_dense_servers(job: Job, net: Net, run: Run) -> None:
    """Their number and speed decide how often trainers synchronise, not how fast they train."""
    t, w = alone(job, net, run)
    slow = 2 * w / t  # so slow that 4 trainers need 2 t and more each way for one exchange
    found = {
        (s, c): measure(run(job(4, m=2, s=s, steps=30), net(c)))
        for s, c in ((1, slow), (2, slow), (1, 100 * slow))
    }
    for measures in found.values():
        assert measures.eps == pytest.approx(4 * 2 * B / t, rel=0.03)
    assert found[1, slow].gap > 1.8 * found[2, slow].gap > 10 * found[1, 100 * slow].gap > 0


def test_a_server_of_background_loops_does_not_bind(job: Job, net: Net, run: Run) -> None:
    t, w = alone(job, net, run)
    plan = job(4, m=2, steps=30)
    outcome = run(plan, net(2 * w / t))
    busy = outcome.utilisation
    # one way rests while the other works: half of the time each
    assert busy["dense_server[0].nic.rx"] > 0.45
    bounds = outcome.facts.bounds
    assert not [name for name in bounds if name.startswith("dense_server")]
    stopping = job(4, m=2, steps=30, sync="foreground", every=1)
    slow = run(stopping, net(0.5 * w / t, jitter=0.5))
    assert "dense_server[0].nic.rx" in slow.facts.bounds
    assert "dense_server[0]" in str(slow.binding)
    assert "dense_server[0]" not in str(outcome.binding)


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("algorithm", ["easgd", "ma", "bmuf"])
def test_background_synchronisation_scales_linearly(
    job: Job, net: Net, run: Run, algorithm: str
) -> None:
    t, w = alone(job, net, run)
    cluster = net(2 * w / t)
    for n in (2, 4, 8):
        eps = measure(run(job(n, m=2, steps=20, algorithm=algorithm), cluster)).eps
        assert eps == pytest.approx(n * 2 * B / t, rel=0.03)


@pytest.mark.usefixtures("equal_shares")
def test_the_sync_gap_is_flat_and_then_grows_like_n_over_s(job: Job, net: Net, run: Run) -> None:
    """One exchange takes the latency and W / min(trainer's NIC, S C / n), each way.

    Without jitter all shadows send at once and then receive at once, which is what that formula
    says; where they are out of step the two ways overlap and the gap may be half as long.
    """
    t, w = alone(job, net, run)
    own, m = 40 * w / t, 2
    gaps = {
        (n, s): measure(run(job(n, m=m, s=s, steps=16), net(4 * own, trainer=own))).gap
        for n, s in ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (16, 2))
    }
    for (n, s), gap in gaps.items():
        way = 20e-6 + w / min(own, s * 4 * own / n)
        seconds = 2 * way + 20e-6  # effects and messages
        assert gap == pytest.approx(m * seconds / t, rel=0.15), (n, s)
    assert gaps[2, 1] == pytest.approx(gaps[1, 1], rel=0.05)
    assert gaps[4, 1] == pytest.approx(gaps[1, 1], rel=0.05)
    assert gaps[16, 1] > 1.6 * gaps[8, 1] > 2.4 * gaps[4, 1]
    assert gaps[16, 2] == pytest.approx(gaps[8, 1], rel=0.05)


# ------------------------------------------------------------------ in the foreground

K, M = 3, 4
RATIO = 16
"""k t over the time of one exchange each way: so many workers one dense server can bear."""


def foreground(job: Job, net: Net, run: Run, n: int, s: int = 1, jitter: float = 1.0) -> float:
    """Examples per second as a share of S C k b / W; n_max is RATIO / M for each server."""
    t, w = alone(job, net, run)
    c = RATIO * w / (K * t)
    plan = job(n, m=M, s=s, sync="foreground", every=K, steps=60)
    return measure(run(plan, net(c, jitter=jitter))).eps / (s * c * K * B / w)


def test_fr_easgd_saturates_at_its_dense_servers(job: Job, net: Net, run: Run) -> None:
    n_max = RATIO / M
    plateau = foreground(job, net, run, 12)
    assert 0.9 < plateau <= 1.0
    assert foreground(job, net, run, 16, s=2) > 0.85  # twice the servers bear twice the trainers
    slope = foreground(job, net, run, 1)
    assert foreground(job, net, run, 2) == pytest.approx(2 * slope, rel=0.1)
    # An exchange, both ways, lengthens k iterations even where nobody else wants one. So the line
    # is less steep than m b / t, and meets the plateau a little later than n_max says.
    knee = plateau / slope
    assert knee == pytest.approx(n_max * (1 + 2 / RATIO), rel=0.1)
    assert knee == pytest.approx(n_max, rel=0.25)


@pytest.mark.usefixtures("equal_shares")
def test_in_lock_step_fr_easgd_stays_below_both_lines(job: Job, net: Net, run: Run) -> None:
    """Without jitter all workers come at once: first the servers' one way is idle, then both."""
    n_max = RATIO // M
    together = foreground(job, net, run, n_max, jitter=0.0)
    apart = foreground(job, net, run, n_max)
    assert together < 0.45
    assert apart > 1.5 * together
