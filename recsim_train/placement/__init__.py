"""Placement: which state and which loop lives where.

Here belong the plan of a job (processes, shards, groups, loops), how tables and operators are
dealt out to hosts, how a net is cut along its tags, and the text that shows a plan before anything
starts. A plan is data: what an effect costs or does must not be known here.
"""
