"""The cluster around the hosts: which host and rack an instance has, and what happens to these.

Here belong slow hosts, racks, failures, checkpoints and the traffic of others: all that changes
capacities from outside while a run goes on. What processes do must not be known here.
"""
