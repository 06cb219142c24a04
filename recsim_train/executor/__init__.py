"""The real world: processes, threads and tensors over torch.distributed (gloo)."""
