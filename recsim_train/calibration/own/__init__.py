"""Operations of a plan at their own shapes: each operation's real kernel with the plan's tensors.

A round does every operation that the plan asks for once, in the order of an iteration, with a real
batch of the experiment's own data: so each finds the caches as others have left them. There are no
loops of a strategy here, no messages and no waiting: an operation is timed, and nothing else.
"""
