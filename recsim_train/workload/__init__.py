"""Models as shapes: what each operation costs and how large its result is. No torch.

Here belong operations as counts of priced work, the sizes they depend on, the graph of a net, how
work divides among threads, and what compression leaves of it. Seconds are the simulator's and
calibration's business, tensors the executor's.
"""
