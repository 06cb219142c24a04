"""Hosts: the cores, locks, NICs and memory that processes of the job share.

Here belongs who gets which part of a host at which moment, and whether all fits into its memory.
The sharing itself is `recsim_train.sim.fluid`; where a host stands and what happens to it from
outside is `recsim_train.sim.cluster`. What is sent, and why, must not be known here.
"""
