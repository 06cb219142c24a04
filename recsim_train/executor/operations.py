"""The kernel of every operation: how it is really done, under the name of its declaration."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.executor import feed
from recsim_train.executor.link import tensors
from recsim_train.executor.net import kernels, masks, net_kernels, sparse
from recsim_train.executor.shards import cache, routing

KERNELS: dict[str, Callable[..., object]] = {
    # a reader thread's
    "reading": feed.read_batches,
    # what strategies ask for with Compute; the first argument is the loop's `Worker`
    "deduplicate": kernels.deduplicate,
    "forward_backward": kernels.forward_backward,
    "apply": kernels.apply,
    "load": kernels.load,
    "snapshot": kernels.snapshot,
    "subtract": kernels.subtract,
    "accumulate": kernels.accumulate,
    "drain": kernels.drain,
    "interpolate": kernels.interpolate,
    "towards": kernels.towards,
    "block_step": kernels.block_step,
    "threshold": sparse.threshold,
    "sparsify": sparse.sparsify,
    "threshold_difference": sparse.threshold_difference,
    "sparsify_difference": sparse.sparsify_difference,
    "densify": sparse.densify,
    "net_open": net_kernels.net_open,
    "net_forward": lambda _, tape, cut: tape.forward(cut),
    "net_receive": lambda _, tape, cut, arrived: tape.receive(cut, arrived),
    "net_backward": lambda _, tape, cut: tape.backward(cut),
    "net_return": lambda _, tape, cut, arrived: tape.take_back(cut, arrived),
    "net_gradients": net_kernels.net_gradients,
    "net_apply": net_kernels.net_apply,
    "net_whole": net_kernels.net_whole,
    "net_answered": net_kernels.net_answered,
    "net_towards": net_kernels.net_towards,
    "net_move": net_kernels.net_move,
    "row_numbers": cache.row_numbers,
    "virtual_ids": cache.virtual_ids,
    "probe": cache.probe,
    "fill": cache.fill,
    "cached_rows": cache.cached_rows,
    "update_cached": cache.update_cached,
    "flush": cache.flush,
    # a client's side of requests
    "route_ids": routing.route_ids,
    "assemble_rows": routing.assemble_rows,
    "route_gradient": routing.route_gradient,
    # on both sides of requests that are rounded
    "narrow": tensors.narrow,
    "widen": tensors.widen,
    # on both sides of vectors of which a share travels
    "mask": masks.VectorMask.mask,
    "unmask": masks.VectorMask.unmask,
    "pick": masks.VectorMask.pick,
    "unpick": masks.VectorMask.unpick,
    # a shard's side
    "lookup_pooled": kernels.lookup_pooled,
    "lookup_rows": kernels.lookup_rows,
    "update_pooled": kernels.update_pooled,
    "update_rows": kernels.update_rows,
    "fetch_rows": cache.fetch_rows,
    "store_rows": cache.store_rows,
    "dense_read": kernels.dense_read,
    "dense_apply": kernels.dense_apply,
    "dense_elastic": kernels.dense_elastic,
    "dense_elastic_new": kernels.dense_elastic_new,
    "sparse_apply": sparse.sparse_apply,
}
"""By name; `recsim_train.workload.operations` says what each costs."""
