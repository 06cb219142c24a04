"""TorchRec's own DLRM on CPUs: its sharded tables with fbgemm's fused SGD, gloo between processes.

torchrun --standalone --nproc-per-node=2 benchmarks/peers/torchrec_dlrm.py [--batch 2048]
    [--threads 1] [--steps 100] [--warmup 10]

Tables are sharded table-wise (row-wise is refused on CPUs), dense parameters are replicated. The
pipeline of TorchRec that overlaps copies to an accelerator has nothing to do here and is left out.
It needs torchrec and fbgemm-gpu-cpu of one version, and the torch that these were built for.
"""

from __future__ import annotations

import os
import warnings

warnings.filterwarnings("ignore")  # before the imports, which warn of what other machines would use

import common  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.datasets.utils import Batch  # noqa: E402
from torchrec.distributed.embedding_types import EmbeddingComputeKernel  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology  # noqa: E402
from torchrec.distributed.planner.types import ParameterConstraints  # noqa: E402
from torchrec.distributed.types import ShardingType  # noqa: E402
from torchrec.models.dlrm import DLRM, DLRMTrain  # noqa: E402
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward  # noqa: E402
from torchrec.optim.keyed import KeyedOptimizerWrapper  # noqa: E402
from torchrec.optim.optimizers import in_backward_optimizer_filter  # noqa: E402

COLUMNS = [f"column_{number}" for number in range(common.TABLES)]
LEAST_PARTITION = 16
"""Width of the narrowest shard of columns: stated as configured, a table-wise plan has none."""


def sharded() -> DistributedModelParallel:
    """The model over all processes; tables are updated within the backward pass."""
    tables = [
        EmbeddingBagConfig(
            name=f"table_{column}",
            embedding_dim=common.WIDTH,
            num_embeddings=common.ROWS,
            feature_names=[column],
        )
        for column in COLUMNS
    ]
    embeddings = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    cpu = torch.device("cpu")
    net = DLRM(embeddings, common.FEATURES, list(common.BOTTOM), list(common.TOP), dense_device=cpu)
    apply_optimizer_in_backward(
        torch.optim.SGD, embeddings.parameters(), {"lr": common.LEARNING_RATE}
    )
    model = DLRMTrain(net)
    constraint = ParameterConstraints(
        sharding_types=[ShardingType.TABLE_WISE.value],
        compute_kernels=[EmbeddingComputeKernel.FUSED.value],
        min_partition=LEAST_PARTITION,
    )
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"),
        constraints={table.name: constraint for table in tables},
    )
    sharders = [EmbeddingBagCollectionSharder()]
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    return DistributedModelParallel(model, device=cpu, plan=plan, sharders=sharders)


def main() -> None:
    options = common.arguments(__doc__)
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    processes, rank = dist.get_world_size(), dist.get_rank()
    size = options.batch // processes
    torch.manual_seed(rank)
    model = sharded()
    dense = dict(in_backward_optimizer_filter(model.named_parameters()))
    optimizer = KeyedOptimizerWrapper(
        dense, lambda parameters: torch.optim.SGD(parameters, lr=common.LEARNING_RATE)
    )
    lengths = torch.ones(common.TABLES * size, dtype=torch.int32)
    dealt = common.batches(size, processes=processes, seed=rank)

    def step() -> float:
        dense_features, ids_tb, labels = next(dealt)
        ids = KeyedJaggedTensor(COLUMNS, ids_tb.flatten(), lengths=lengths)
        optimizer.zero_grad()
        loss, _ = model(Batch(dense_features, ids, labels))
        loss.backward()
        optimizer.step()
        return loss.item()

    seconds = common.seconds_of(step, warmup=options.warmup, steps=options.steps, meet=dist.barrier)
    if rank == 0:
        common.report(options, seconds, ["torch", "torchrec", "fbgemm_gpu-cpu"])
    dist.barrier()
    os._exit(0)  # its threads do not always let an interpreter end


if __name__ == "__main__":
    main()
