"""Max-min fair sharing of resources, solved in compiled code: `solver` is the door. No SimPy.

Here belong activities, the capacities they share, and the clock that says which of them ends next.
What an activity stands for, a transfer or a computation, must not be known here.
"""
