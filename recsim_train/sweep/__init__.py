"""Sweeps: one experiment at many points, each a row of one table.

Here belong the folder of a sweep, how its points are simulated, what they show (axes, lines, best
points, what binds) and its page. The section that experiments write, and the points that follow
from it, are `recsim_train.config.sweep`: who reads an experiment needs them. One row, and how
predictions are compared, is in results and report, which know nothing of sweeps.
"""
