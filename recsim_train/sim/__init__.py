"""The simulator: a plan and a cluster profile in, a predicted run out.

At the top stands the way of one simulation: `run`, `job`, `runtime`, `perform`, `engine`, and what
every loop needs. Below, `fluid` shares resources, `host` and `cluster` say who has which,
`messages` what effects cost, `why` what came of it. Tensors and torch must not be known here.
"""
