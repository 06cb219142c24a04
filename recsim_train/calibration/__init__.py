"""Measuring this machine: micro-workloads, short runs of one strategy (flat_ps, with models of
calibration's own: `recsim_train.calibration.crowd`), and the prices that explain their times.

The measuring runs in child processes (`recsim_train.calibration.probe`); the caller needs no torch.
"""
