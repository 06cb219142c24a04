"""The real world: processes, threads and tensors over torch.distributed (gloo).

At the top stands the way of one effect: a loop's thread in `runtime`, `perform`, `operations`, the
feed of batches and what a process books of its CPU time. Below, `net` computes, `shards` holds
parameters and answers requests, `link` moves bytes between processes, `process` starts and ends
them. Simulated time must not be known here.
"""
