"""The processes of a run: how they are started and agree, what each does from its first moment to
its last, and one outcome from all of them.

Here belongs the life of processes, by the launcher's fork server or under torchrun. What loops do
between begin and end is not: neither effects nor tensors.
"""
