"""Calibration: micro-workloads and short runs on this machine, and the prices that fit their times.

The short runs are of a program of calibration's own (`recsim_train.calibration.talk`), and for the
interpreter's lock of one strategy, flat_ps (`recsim_train.calibration.crowd`).

The measuring runs in child processes (`recsim_train.calibration.probe`); the caller needs no torch.
"""
