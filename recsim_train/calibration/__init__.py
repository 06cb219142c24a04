"""Calibration: micro-workloads and short runs on this machine, and the prices that fit their times.

The short runs are of programs of calibration's own (`recsim_train.calibration.programs`), never of
a strategy.

The measuring runs in child processes (`recsim_train.calibration.probe`); the caller needs no torch.
"""
