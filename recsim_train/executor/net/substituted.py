"""One worker's passes through a net after equivalent substitution (DES, arXiv 1909.04823).

The worker's slice of the embeddings is E [examples, own columns]; what operators need of it is
computed beside the weights that belong to these columns and summed over the workers in one buffer.
The rest of the net reads that sum. With a replicated top every worker then computes the same; with
a split top each has the sums of its own examples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.net.interaction import interact
from recsim_train.executor.net.model import DenseNet, Pass, Sources, click_loss, gradient_at
from recsim_train.executor.values import RealBlock, RealDense, RealFeatures, RealParts, RealRows
from recsim_train.placement.program import Partial, SubstitutedNet, column_range
from recsim_train.strategy.values import Batch, NetGradients


class SubstitutedPass(Pass):
    """Forward and backward of one global batch at one worker."""

    def __init__(
        self, net: DenseNet, program: SubstitutedNet, host: int, batch: Batch, rows: RealRows
    ) -> None:
        assert isinstance(batch.features, RealFeatures)
        self.net, self.program, self.host = net, program, host
        self.features, self.labels = batch.features.dense, batch.features.labels
        self.rows, self.size = rows, batch.size
        self.leaf = rows.tensor.detach().requires_grad_()
        self.columns = torch.tensor(program.owned(host))
        self.before: dict[str, Tensor] = {}
        self.bottom: Tensor | None = None  # as the partial results read it
        self.bottom_rest: Tensor | None = None  # as the rest of the net reads it
        self.partial = torch.empty(0)
        self.total = torch.empty(0)
        net.new_gradient()

    # ------------------------------------------------------------------ the slice

    def _vectors(self) -> Tensor:
        """[own tables, examples, own columns of embedding_dim]."""
        first, last = self._own_columns()
        return self.leaf[..., : last - first]

    def _own_columns(self) -> tuple[int, int]:
        dim = self.program.graph.dim
        by_column = self.program.partition == "column"
        return column_range(dim, self.program.hosts, self.host) if by_column else (0, dim)

    def _matrix(self) -> Tensor:
        """E: the slice as [examples, own columns of all tables]."""
        return self._vectors().transpose(0, 1).flatten(1)

    def _part(self, partial: Partial) -> Tensor:
        graph, net = self.program.graph, self.net
        match partial.rule:
            case "linear":
                return self._matrix() @ net.weights[partial.operator][0][:, self.columns].T
            case "fm_vectors":
                vectors = self._vectors()
                squares = vectors.square().sum((0, 2)).unsqueeze(1)
                return torch.cat([vectors.sum(0), squares], dim=1)
            case "fm_columns":
                vectors = self._vectors()
                return (vectors.sum(0).square() - vectors.square().sum(0)).sum(1, True) / 2
            case "sum":
                wide = self.leaf[..., self._vectors().shape[2] :]
                return wide.sum((0, 2)).unsqueeze(1)
            case "cross":
                return self._cross_part()
            case "gather":
                spread = self.leaf.new_zeros(self.size, graph.tables * graph.dim)
                return spread.index_copy(1, self.columns, self._matrix())
            case "pairs":
                assert self.bottom is not None
                own = self.bottom[:, slice(*self._own_columns())]
                return interact(own, self._vectors())[:, own.shape[1] :]

    def _tower(self) -> tuple[list[Tensor], list[Tensor]]:
        """(weights of each cross layer and of the logit on their result, biases)."""
        graph = self.program.graph
        layers = [self.net.weights[o.name] for o in graph.operators if o.kind == "cross"]
        out = self.net.weights[graph.logit][0][0, : graph.width("input")]
        return [*(w for w, _ in layers), out], [b for _, b in layers]

    def _cross_part(self) -> Tensor:
        weights, biases = self._tower()
        # by id all workers hold all columns: each counts its share of what needs no embedding
        share = 1.0 / self.program.hosts if self.program.partition == "hash" else 1.0
        own = torch.stack([w[self.columns] for w in weights])
        constants = []
        total = torch.zeros_like(own[0])
        for index, weight in enumerate(own):
            constants.append(total @ weight * share)
            if index < len(biases):
                total = total + biases[index][self.columns]
        spread = torch.stack(constants).expand(self.size, -1)
        return torch.cat([self._matrix() @ own.T, spread], dim=1)

    # ------------------------------------------------------------------ the rest

    def _rest(self, total: Tensor) -> Tensor:
        """Logits from summed partial results, of the examples that ``total`` is about."""
        program, graph, net = self.program, self.program.graph, self.net
        rows = self._answers_for()
        features = self.features[rows]
        values: dict[str, Tensor] = {}
        if self.bottom is not None:
            self.bottom_rest = self.bottom.detach()[rows].requires_grad_()
            values[program.before[-1]] = self.bottom_rest
        widths = [partial.width for partial in program.partials]
        sums = dict(zip(program.partials, torch.split(total, widths, dim=1), strict=True))
        pooled = features.new_zeros(graph.tables, 1, graph.dim)
        for partial, value in sums.items():
            match partial.rule:
                case "gather":
                    pooled = value.view(-1, graph.tables, graph.dim).transpose(0, 1)
                case "linear":
                    weight, bias = net.weights[partial.operator]
                    out = value + features @ weight[:, self.program.sparse_columns :].T + bias
                    values[partial.operator] = torch.relu(out)
                case "fm_vectors":
                    vector, squares = value[:, :-1], value[:, -1]
                    values["fm"] = (vector.square().sum(1) - squares).unsqueeze(1) / 2
                case "fm_columns" | "sum":
                    values[partial.operator] = value
                case "cross":
                    values[graph.logit] = self._cross_rest(value, features)
                case "pairs":
                    assert self.bottom_rest is not None
                    values["interaction"] = torch.cat([self.bottom_rest, value], dim=1)
        sources = Sources(features, pooled, None)
        skipped = program.skipped
        for operator in graph.operators:
            if operator.name in program.rest and operator.name not in {*values, *skipped}:
                values[operator.name] = net.run(operator, values, sources)
        logit = values[graph.logit]
        if any(partial.rule == "cross" for partial in program.partials):
            deep = values[graph.operator("towers").inputs[1]]
            weight, bias = net.weights[graph.logit]
            logit = logit + deep @ weight[:, graph.width("input") :].T + bias
        return logit.squeeze(1)

    def _cross_rest(self, sums: Tensor, features: Tensor) -> Tensor:
        """The cross tower's share of the logit [examples, 1].

        With x_l = a_l x_0 + c_l (c_l: biases of the layers before) is x_l w = a_l (x_0 w) + c_l w,
        and a grows by x_l w in each layer.
        """
        weights, biases = self._tower()
        products, constants = sums.chunk(2, dim=1)
        cut = self.program.sparse_columns
        scale = torch.ones(len(features), dtype=features.dtype)
        total = torch.zeros_like(weights[0][cut:])
        for index, weight in enumerate(weights):
            along = products[:, index] + features @ weight[cut:]
            out = scale * along + constants[:, index] + total @ weight[cut:]
            if index == len(biases):
                return out.unsqueeze(1)
            scale = scale + out
            total = total + biases[index][cut:]
        raise AssertionError("a tower has more weights than biases")

    def _answers_for(self) -> slice:
        if self.program.top == "replicated":
            return slice(0, self.size)
        own = self.size // self.program.hosts
        return slice(self.host * own, (self.host + 1) * own)

    # ------------------------------------------------------------------ cuts

    def forward(self, cut: int) -> RealParts | RealBlock:
        """Before the first of two cuts: the bottom. Else all partial results in one buffer."""
        if cut < self.program.sum_cut:
            net, graph = self.net, self.program.graph
            sources = Sources(self.features, self.leaf, None)
            for name in self.program.before:
                self.before[name] = net.run(graph.operator(name), self.before, sources)
            self.bottom = self.before[self.program.before[-1]].detach().requires_grad_()
            return RealBlock(self.bottom.detach())
        self.partial = torch.cat([self._part(p) for p in self.program.partials], dim=1)
        out = self.partial.detach()
        if self.program.top == "replicated":
            return RealBlock(out)
        return RealParts(out.chunk(self.program.hosts))

    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """The sums."""
        if cut < self.program.sum_cut:
            return
        if isinstance(arrived, RealParts):
            width = self.program.width
            total = torch.stack([part.view(-1, width) for part in arrived.tensors]).sum(0)
        else:
            total = arrived.tensor
        self.total = total.requires_grad_()

    def backward(self, cut: int) -> RealParts | RealBlock:
        """After the sums: the rest of the net, forward and backward. Else the partial results'."""
        if cut == self.program.sum_cut:
            rows = self._answers_for()
            loss = click_loss(self._rest(self.total), self.labels[rows])
            share = (rows.stop - rows.start) / self.size
            self.loss = float(loss.detach()) if share else None
            (loss * share).backward()
            return RealBlock(gradient_at(self.total))
        gradient = gradient_at(self.bottom)
        if self.program.top == "split":  # each has the rest's gradient of its own examples
            gradient[self._answers_for()] += gradient_at(self.bottom_rest)
        return RealBlock(gradient)

    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """Gradients of the sums, or of the bottom's output."""
        if cut == self.program.sum_cut:
            if isinstance(arrived, RealParts):
                gradient = torch.cat([p.view(-1, self.program.width) for p in arrived.tensors])
            else:
                gradient = arrived.tensor
            torch.autograd.backward([self.partial], [gradient])
            return
        assert isinstance(arrived, RealBlock)
        gradient = arrived.tensor
        if self.program.top == "replicated":
            gradient = gradient + gradient_at(self.bottom_rest)
        torch.autograd.backward([self.before[self.program.before[-1]]], [gradient])

    def gradients(self) -> NetGradients:
        """Rows of own slices; dense parameters, of which some must be summed."""
        rows = RealRows(gradient_at(self.leaf), self.rows.ids)
        pieces = [view.reshape(-1) for view in shared_views(self.net, self.program)]
        shared = torch.cat([self.net.gradient[:0], *pieces])
        return NetGradients(RealDense(self.net.gradient), RealDense(shared), rows)


def shared_views(net: DenseNet, program: SubstitutedNet) -> list[Tensor]:
    """The parts of a gradient that are summed over the workers."""
    return [
        gradient_at(net.weights[name][index])[..., first:last]
        for name, index, first, last in program.shared_columns
    ]


def answers_for(net: DenseNet, program: SubstitutedNet, host: int) -> Tensor:
    """Flat mask [parameters]: what this worker holds that no other one answers for."""
    mask = torch.zeros_like(net.gradient, dtype=torch.bool)
    owned = torch.tensor(program.owned(host))
    position = 0
    for operator in program.graph.operators:
        for index, shape in enumerate(operator.parameters):
            count = int(torch.tensor(shape).prod())
            view = mask[position : position + count].view(shape)
            position += count
            view[...] = host == 0
            if (operator.name, index) in program.split and program.partition != "hash":
                view[..., : program.sparse_columns] = False
                view[..., owned] = True
    return mask
