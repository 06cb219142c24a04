"""Speed and exactness of the simulator's engine on a star network of trainers and servers.

    python benchmarks/network.py --trainers 100 --servers 20 --iterations 50 --seed 1 --json

Every trainer, ``--iterations`` times: pulls from all servers at once, computes, pushes to all
servers at once. See `main` for the settings and benchmarks/results/network.md for results. The
simulation is made of the engine that `recsim-train simulate` uses, `recsim_train.sim.kernel`: one
SimPy process for each trainer, transfers and computations on fluid resources.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from dataclasses import dataclass

from recsim_train.sim.fans import Ends, Flows
from recsim_train.sim.fluid import Kind, Resource
from recsim_train.sim.kernel import Barrier, Kernel, Steps


@dataclass(frozen=True)
class Settings:
    trainers: int
    servers: int
    iterations: int
    bytes: float = 40e6
    """All bytes of a pull, and of a push."""
    bandwidth: float = 3.125e9
    """Bytes per second of a NIC, in each direction."""
    latency: float = 25e-6
    """Seconds of one of the two hops."""
    compute: float = 0.1
    """Seconds."""
    jitter: float = 0.0
    skew: float = 0.0
    barrier: bool = False
    seed: int = 1

    def sizes(self) -> list[int]:
        """Bytes of the flow from or to each server."""
        last = max(1, self.servers - 1)
        weights = [1.0 + self.skew * p / last for p in range(self.servers)]
        return [round(self.bytes * w / sum(weights)) for w in weights]

    def factor(self, trainer: int, iteration: int) -> float:
        """What the compute time of a trainer in an iteration is multiplied by."""
        if self.jitter == 0.0:
            return 1.0
        stream = random.Random((self.seed << 40) ^ (trainer << 20) ^ iteration)
        return 1.0 + stream.uniform(-self.jitter, self.jitter)


class Star:
    """The network and what runs on it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kernel = kernel = Kernel()
        fluid = kernel.fluid

        def nics(name: str, count: int) -> list[tuple[tuple[Resource, float]]]:
            return [
                ((fluid.resource(f"{name}{index}", settings.bandwidth), 1.0),)
                for index in range(count)
            ]

        sizes = settings.sizes()
        outgoing = Ends(fluid, nics("server.tx", settings.servers))
        incoming = Ends(fluid, nics("server.rx", settings.servers))
        self.barrier = Barrier(kernel, settings.trainers, lambda _: iter(()))
        down, up = nics("trainer.rx", settings.trainers), nics("trainer.tx", settings.trainers)
        for trainer in range(settings.trainers):
            core = fluid.resource(f"core{trainer}", 1.0)
            pull = outgoing.flows(down[trainer], sizes)
            push = incoming.flows(up[trainer], sizes)
            kernel.process(self.train(trainer, pull, fluid.kind([(core, 1.0)]), push))

    def train(self, trainer: int, pull: Flows, core: Kind, push: Flows) -> Steps:
        kernel, settings = self.kernel, self.settings
        latency = 2 * settings.latency
        for iteration in range(settings.iterations):
            yield kernel.timeout(latency)
            yield kernel.transfers(pull)
            yield kernel.activity(core, settings.compute * settings.factor(trainer, iteration))
            yield kernel.timeout(latency)
            yield kernel.transfers(push)
            if settings.barrier:
                yield self.barrier.arrive(None)


def simulate(settings: Settings) -> dict[str, float]:
    """Build and run; the clocks cover both."""
    wall, cpu = time.perf_counter(), time.process_time()
    star = Star(settings)
    star.kernel.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    flows = 2 * settings.trainers * settings.servers * settings.iterations
    return {
        "simulated_seconds": star.kernel.now,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "flows": flows,
        "flows_started": star.kernel.fluid.added - settings.trainers * settings.iterations,
        "flows_per_second": flows / wall,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "solves": star.kernel.fluid.solves,
        "events": star.kernel.events,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", type=int, default=100)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=50)
    for name in ("bytes", "bandwidth", "latency", "compute", "jitter", "skew"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Settings, name))
    parser.add_argument("--barrier", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    begin = time.perf_counter()
    simulate(Settings(2, 2, 2, jitter=0.1, skew=1.0))  # compiles what is not compiled yet
    compiled = time.perf_counter() - begin
    found = simulate(Settings(**arguments)) | {"compile_seconds": compiled}
    print(json.dumps(found, indent=2) if as_json else found)


if __name__ == "__main__":
    main()
