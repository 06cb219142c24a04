"""Ways between processes: connections, shared memory and gloo's groups, how ranks find each other,
and tensors as they travel.

Here belongs what moves bytes or names an address. What the bytes say of ids and gradients is
`recsim_train.executor.shards`; when a process begins and ends, `recsim_train.executor.process`.
"""
