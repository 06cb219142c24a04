"""One host's passes through a net that is cut along tags (see `placement.cutting`).

Every segment is an autograd graph of its own: values that come from an earlier segment or from
another host are leaves of it, and their gradients are carried by hand. So the backward pass can
stop at a cut, send gradients, and go on with those that arrive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from recsim_train.executor.link.tensors import HALF
from recsim_train.executor.net.masks import mask_rows, spread, unpack_mask
from recsim_train.executor.net.model import DenseNet, Pass, Sources, click_loss, gradient_at
from recsim_train.executor.values import RealBlock, RealDense, RealFeatures, RealParts, RealRows
from recsim_train.placement.program import ALL, Message, TaggedNet
from recsim_train.strategy.values import Batch, NetGradients
from recsim_train.workload.graph import FEATURES, POOLED, WIDE, Operator

Key = tuple[str, bool]
"""(value, whether for the examples of all hosts)."""


class TaggedPass(Pass):
    """Forward and backward of one batch at one host."""

    def __init__(
        self, net: DenseNet, program: TaggedNet, host: int, batch: Batch, rows: RealRows
    ) -> None:
        assert isinstance(batch.features, RealFeatures)
        self.net, self.program, self.host = net, program, host
        self.rows, self.labels, self.batch = rows, batch.features.labels, batch.size
        self.last = len(program.messages)
        self.values: dict[Key, Tensor] = {}
        self.gradients_of: dict[Key, Tensor] = {}
        self.leaves: dict[int, dict[Key, Tensor]] = defaultdict(dict)
        self.outputs: dict[int, dict[Key, Tensor]] = defaultdict(dict)
        self.places: dict[Message, Tensor] = {}
        """Of masked messages: which entries of each example have crossed."""
        self._size = net.gradient.element_size()
        self._kind = HALF.get(program.precision, net.gradient.dtype)
        net.new_gradient()
        sources = Sources.of(net.model, batch.features.dense, rows.tensor)
        for name in program.graph.sources:
            self.values[name, False] = sources.value(name)

    # ------------------------------------------------------------------ segments

    def _run(self, level: int) -> None:
        program = self.program
        outputs = self.outputs[level]
        for operator in program.operators(self.host, level):
            everyone = program.tags[operator.name] == self.host
            known = {name: self._input(level, name, everyone) for name in operator.inputs}
            outputs[operator.name, everyone] = self._operate(operator, known)
        for key, output in outputs.items():
            self.values[key] = output.detach()

    def _input(self, level: int, name: str, everyone: bool) -> Tensor:
        key = (name, everyone)
        if key in self.outputs[level]:
            return self.outputs[level][key]
        leaves = self.leaves[level]
        if key not in leaves:
            leaves[key] = self.values[key].detach().requires_grad_(name != FEATURES)
        return leaves[key]

    def _operate(self, operator: Operator, known: dict[str, Tensor]) -> Tensor:
        graph = self.program.graph
        pooled = known.get(POOLED, next(iter(known.values())))
        vectors = pooled
        if POOLED in known:
            vectors = pooled.view(pooled.shape[0], graph.tables, graph.dim).transpose(0, 1)
        return self.net.run(operator, known, Sources(pooled, vectors, None))

    def _back(self, level: int) -> None:
        outputs = [
            (output, self.gradients_of[key])
            for key, output in self.outputs[level].items()
            if key in self.gradients_of and output.requires_grad
        ]
        if outputs:
            torch.autograd.backward([o for o, _ in outputs], [g for _, g in outputs])
        for key, leaf in self.leaves[level].items():
            if leaf.grad is not None:
                self._add(key, leaf.grad)

    def _add(self, key: Key, gradient: Tensor) -> None:
        held = self.gradients_of.get(key)
        self.gradients_of[key] = gradient if held is None else held + gradient

    def _loss(self) -> None:
        key = (self.program.graph.logit, False)
        leaf = self.values[key].detach().requires_grad_()
        # each host's mean is divided by the hosts, so that gradients of all examples just add up
        loss = click_loss(leaf.squeeze(1), self.labels)
        (loss / self.program.hosts).backward()  # type: ignore[no-untyped-call]
        self.loss = float(loss.detach())
        self._add(key, gradient_at(leaf))

    # ------------------------------------------------------------------ cuts

    def forward(self, cut: int) -> RealParts:
        self._run(cut)
        parts: list[list[Tensor]] = [[] for _ in range(self.program.hosts)]
        for m in self.program.messages[cut]:
            if m.source == self.host:
                value = self.values[m.value, not m.spread]
                content = value if m.spread else self._rows(value, m)
                if self.program.masked(m, self._size):
                    assert self.program.keep is not None
                    lines = content.reshape(-1, self.program.mask_width(m.value))
                    masked = mask_rows(lines, self.program.keep)
                    self.places[m], content = masked.places, masked.tensor
                parts[m.target].append(content)
        return self._pack(parts)

    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        assert isinstance(arrived, RealParts)
        found: dict[Key, list[Tensor]] = defaultdict(list)
        for m, content in self._unpack(cut, arrived, backward=False):
            found[m.value, m.gathered].append(content)
        for key, contents in found.items():
            self.values[key] = torch.cat(contents)

    def backward(self, cut: int) -> RealParts:
        if cut == self.last - 1:
            self._finish()
        self._back(cut + 1)
        parts: list[list[Tensor]] = [[] for _ in range(self.program.hosts)]
        for m in self.program.messages[cut]:
            if m.target == self.host:
                key = (m.value, m.gathered)
                gradient = self.gradients_of.get(key)
                if gradient is None:
                    gradient = torch.zeros_like(self.values[key])
                content = self._rows(gradient, m) if m.gathered else gradient
                if m in self.places:
                    lines = content.reshape(-1, self.program.mask_width(m.value))
                    content = lines.gather(1, self.places[m])
                parts[m.source].append(content)
        return self._pack(parts)

    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        assert isinstance(arrived, RealParts)
        for m, content in self._unpack(cut, arrived, backward=True):
            key = (m.value, not m.spread)
            gradient = content
            if not m.spread and m.rows != ALL:
                gradient = torch.zeros_like(self.values[key])
                self._rows(gradient, m).copy_(content)
            self._add(key, gradient)

    def _finish(self) -> None:
        self._run(self.last)
        self._loss()

    def gradients(self) -> NetGradients:
        if not self.last:
            self._finish()
        self._back(0)
        net, program = self.net, self.program
        pooled = self.gradients_of[POOLED, False]
        gradient = pooled.view(self.batch, program.graph.tables, program.graph.dim).transpose(0, 1)
        if net.model.has_wide:
            wide = self.gradients_of[WIDE, False].transpose(0, 1).unsqueeze(2)
            gradient = torch.cat([gradient, wide], dim=2)
        # services expect the gradient of this host's own mean loss
        rows = RealRows((gradient * program.hosts).contiguous(), self.rows.ids)
        own = net.gradient
        return NetGradients(RealDense(own), RealDense(own[: program.shared_numbers]), rows)

    # ------------------------------------------------------------------ messages

    def _rows(self, value: Tensor, m: Message) -> Tensor:
        """The examples that a message is about, of a value for all hosts' examples."""
        return value if m.rows == ALL else value[m.rows * self.batch : (m.rows + 1) * self.batch]

    def _pack(self, parts: Sequence[Sequence[Tensor]]) -> RealParts:
        if self.program.keep is None:
            empty = torch.empty(0, dtype=self._kind)
            return RealParts(
                tuple(
                    torch.cat([p.reshape(-1).to(self._kind) for p in part] or [empty])
                    for part in parts
                )
            )
        nothing = torch.empty(0, dtype=torch.uint8)  # values and places, all as bytes
        return RealParts(
            tuple(
                torch.cat([p.contiguous().view(-1).view(torch.uint8) for p in part] or [nothing])
                for part in parts
            )
        )

    def _unpack(
        self, cut: int, arrived: RealParts, *, backward: bool
    ) -> list[tuple[Message, Tensor]]:
        places = [0] * self.program.hosts
        found = []
        for m in self.program.messages[cut]:
            source, target = (m.target, m.source) if backward else (m.source, m.target)
            if target != self.host:
                continue
            count = self.program.bytes_of(m, self.batch, self._size, backward=backward)
            count //= arrived.tensors[source].element_size()
            content = arrived.tensors[source][places[source] : places[source] + count]
            places[source] += count
            found.append((m, self._read(m, content, backward=backward)))
        return found

    def _read(self, m: Message, content: Tensor, *, backward: bool) -> Tensor:
        """A message's numbers [examples, width]."""
        width, kind = self.program.graph.width(m.value), self.net.gradient.dtype
        if self.program.keep is None:
            return content.to(kind).view(-1, width)
        if not self.program.masked(m, self._size):
            return content.clone().view(kind).view(-1, width)
        line = self.program.mask_width(m.value)
        if backward:
            places = self.places[m]
            values = content.clone().view(kind).view(places.shape)
        else:
            masked = unpack_mask(content, self.program.numbers(m, self.batch) // line, line, kind)
            values, places = masked.values, masked.places
            self.places[m] = places
        return spread(values, places, line).view(-1, width)
