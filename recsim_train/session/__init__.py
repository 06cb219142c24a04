"""Runs to make: an experiment that was read becomes jobs, each job one run that is kept.

Here belong studies, jobs, what must hold before any of them starts, the maker that simulates,
measures and resumes, and calibration of this machine. What is made of many runs is in sweep and
validation; the calls that users know are in `recsim_train.calls`.
"""
