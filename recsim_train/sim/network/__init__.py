"""Messages between hosts, frame by frame.

`network.FrameNetwork` is the door; `tcp` and `ports` say what connections and links do, `core`
moves time. Compiled by numba, as `recsim_train.sim.fluid` is.
"""
