"""What is compiled is compiled before it is needed, and said."""

from __future__ import annotations

from recsim_train.compiled import is_kept
from recsim_train.sim.fluid import core as fluid
from recsim_train.sim.fluid.solver import Fluid
from recsim_train.sim.network import core as network
from recsim_train.sim.network.network import FrameNetwork, Hop
from recsim_train.trace.progress import Meter, unseen


def get_ready(meter: Meter = unseen) -> None:
    """Compile what of the solver and of the network is not kept yet, once; ``meter`` is told if
    that is so."""
    if is_kept(fluid.run) and is_kept(network.run):
        return
    meter(0, 1, "compiling the solver, once")
    solver = Fluid()
    kind = solver.kind([(solver.resource("any", 1.0), 1.0)])
    activity = solver.add(kind, 1.0)
    solver.run(0.5)
    solver.remove(activity)
    solver.used()
    frames = FrameNetwork()
    port = frames.port(1.0, 1.0, 0.0, fair=False, begins=True)
    hops = [Hop(frames.queue(port), 1.0)]
    frames.send(0.0, frames.connection(hops, hops, 0.0), 1.0, None)
    frames.run(1.0)
    frames.set_rate(1.0, port, 1.0)
