"""Which design of a job: a search over strategies and hosts, by memory, bounds and simulations."""
