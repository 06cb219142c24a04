"""Measuring this machine: micro-workloads, and the prices that explain their times.

The measuring runs in child processes (`recsim_train.calibrate.probe`); the caller needs no torch.
"""
