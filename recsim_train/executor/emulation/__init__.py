"""Emulated hosts: each host of a profile as a network namespace of this machine, with a link of its
rate.

Here belongs what the hosts are, how they are made and read back, and what this machine can carry.
What runs in them is not: roles are started as on one machine, within a namespace.
"""
