"""What a user's module must keep to: each rule that one breaks is a sentence, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model, ModuleShape, Table
from recsim_train.executor.net.dry import examine, sources_of
from tests.commands import command

HEAD = "import random\nimport numpy as np\nimport torch\nfrom torch import nn\n"
NET = """
class Net(nn.Module):
    def __init__(self, features, tables, dim):
        super().__init__()
        self.first = nn.Linear(features + tables * dim, 6)
        self.last = nn.Linear(6, 1)
        {init}

    def forward(self, dense, embedded):
        x = torch.relu(self.first(torch.cat([dense, embedded.flatten(1)], 1)))
        {forward}
        return self.last(x).squeeze(1)

def build(dense_features, tables, embedding_dim):
    {build}
    return Net(dense_features, len(tables), embedding_dim)
"""
TABLES = ("user", "item", "shop")


def model(folder: Path, code: str, **more: Any) -> Model:
    file = folder / "net.py"
    file.write_text(HEAD + code)
    return Model(
        kind="module", module=f"{file}:build", embedding_dim=4, top_mlp=(), dense_features=5,
        tables=(Table(rows=10),) * 3, **more,
    )  # fmt: skip


def net(init: str = "pass", forward: str = "pass", build: str = "pass") -> str:
    return NET.format(init=init, forward=forward, build=build)


def examined(folder: Path, code: str, **more: Any) -> ModuleShape:
    return examine(model(folder, code, **more), TABLES)


BROKEN = [
    (net(forward="return self.last(x)"), r"forward returns \[12, 1\] for a batch of 12 examples"),
    (net(forward="return self.last(x).mean()"), r"forward returns \[\] for a batch"),
    (net(forward="return {'loss': self.last(x).mean()}"), "returns a dict, not logits"),
    (net(forward="x = x + random.random()"), "differ: draw random numbers by torch only"),
    (net(init="self.last.bias.data.fill_(random.random())"), "last.bias is drawn by numbers"),
    (net(init="self.unused = nn.Linear(2, 2)"), "the parameter unused.weight gets no gradient"),
    (net(init="self.first.weight.requires_grad = False"), "first.weight has requires_grad=False"),
    (
        net(init="self.seen = 0.0", forward="self.seen += 0.1; x = x + self.seen"),
        r"keeps something from one batch to the next that is no buffer",
    ),
    (
        net(
            init="self.register_buffer('seen', torch.zeros(1, dtype=torch.long))",
            forward="self.seen += 1",
        ),
        "the buffer seen changes from batch to batch and is no floating-point number",
    ),
    (
        net(init="self.norm = nn.BatchNorm1d(6, momentum=None)", forward="x = self.norm(x)"),
        "the buffer norm.num_batches_tracked changes from batch to batch",
    ),
    (net(forward="x = nn.functional.dropout(x, 0.5)"), "draws random numbers while it is evalua"),
    (net(forward="x = x.cuda()"), r"its forward pass fails: net.py:15: \w+: .*CUDA"),
    (net(forward="x = x.detach(); return self.last.bias.expand(len(x))"), "gets no gradient"),
    (net(forward="return x.detach().sum(1)"), "what forward returns has no gradient"),
    (net(forward="x = x / 0"), "numbers that are not finite"),
    (net(forward="x = x @ x"), r"its forward pass fails: net.py:15: RuntimeError: mat1 and mat2"),
    (net(build="return nn.LazyLinear(1)"), "weight has no shape yet"),
    (net(build="return 3"), "gave a int, not a torch.nn.Module"),
    (net(build="return nn.Identity()"), "it has no parameters"),
    (net(build="raise KeyError(tables[7])"), r"made no module: net.py:19: IndexError"),
    ("def built(): pass", "there is no function build in .*net.py"),
    ("import nowhere_to_be_found", r"cannot be imported: net.py:5: ModuleNotFoundError"),
    ("def build(:", r"cannot be imported: net.py:5: SyntaxError"),
    ("def build(features): pass", r"made no module: .*unexpected keyword argument"),
]


@pytest.mark.parametrize(("code", "sentence"), BROKEN, ids=[s for _, s in BROKEN])
def test_a_broken_rule_is_one_sentence(tmp_path: Path, code: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as raised:
        examined(tmp_path, code)
    assert "\n" not in str(raised.value)


def test_a_module_that_keeps_the_rules_is_counted(tmp_path: Path) -> None:
    found = examined(tmp_path, net())
    inputs = 5 + 3 * 4
    # two per multiplication and addition; backward by weights and, as features have none, inputs
    assert found.forward.flops == 2 * (inputs * 6 + 6)
    assert found.backward.flops == 2 * found.forward.flops
    assert [(one.name, one.shape) for one in found.parameters] == [
        ("first.weight", (6, inputs)), ("first.bias", (6,)), ("last.weight", (1, 6)),
        ("last.bias", (1,)),
    ]  # fmt: skip
    assert not found.draws
    assert found.tables == TABLES
    # the input of each layer: 17 numbers, and 6, of float32, and a loss of some numbers
    assert 4 * 23 <= found.kept_bytes <= 4 * 40


def test_attention_is_counted_by_its_products(tmp_path: Path) -> None:
    """Of T fields of d numbers: scores and what they weigh, 2 * 2 T T d; four projections."""
    code = net(init="self.mix = nn.MultiheadAttention(4, 2, batch_first=True)",
               forward="y = self.mix(embedded, embedded, embedded, need_weights=False)[0];"
               " x = x + y.sum((1, 2)).unsqueeze(1)")  # fmt: skip
    plain, found = examined(tmp_path, net()), examined(tmp_path / "..", code)
    fields, dim = 3, 4
    assert found.forward.flops - plain.forward.flops == (
        2 * fields * 4 * dim * dim + 2 * 2 * fields * fields * dim
    )
    assert "_softmax" in " ".join(found.not_counted)


def test_dropout_and_running_means_are_seen(tmp_path: Path) -> None:
    code = net(init="self.norm = nn.BatchNorm1d(6); self.drop = nn.Dropout(0.3)",
               forward="x = self.drop(self.norm(x))")  # fmt: skip
    found = examined(tmp_path, code)
    assert found.draws
    names = [one.name for one in found.buffers]
    assert names == ["norm.running_mean", "norm.running_var"]


def test_double_precision_is_made_of_it(tmp_path: Path) -> None:
    single, double = examined(tmp_path, net()), examined(tmp_path, net(), dtype="float64")
    assert double.forward.bytes == 2 * single.forward.bytes
    assert double.forward.flops == single.forward.flops


def test_files_beside_it_are_its_sources(tmp_path: Path) -> None:
    (tmp_path / "a_part_of_mine.py").write_text("WIDTH = 3\n")
    made = model(tmp_path, "import a_part_of_mine\n" + net())
    examine(made, TABLES)
    assert made.module is not None
    names = {Path(path).name for path in sources_of(made.module)}
    assert names == {"net.py", "a_part_of_mine.py"}


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"module": "net.py"}, "net.yaml:4:11: model.module: expected FILE.py:FUNCTION or PACK"),
        ({"module": "other.py:build"}, "there is no file .*other.py"),
        ({"module": "net.py:build", "top_mlp": [4, 1]}, "model.top_mlp: a module has layers of"),
        ({"module": "net.py:build", "kind": "dcn"}, "model.kind: a module is no other kind"),
        ({"kind": "module"}, "model.kind: model.module is missing"),
        ({"module": "net.py:build"}, "forward returns"),
    ],
)
def test_a_mistake_is_exit_code_2(tmp_path: Path, own: dict[str, Any], sentence: str) -> None:
    (tmp_path / "net.py").write_text(HEAD + BROKEN[0][0])
    spec = {"name": "mine", "model": {"preset": "tiny", **own}, "strategy": "flat_ps"}
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    done = command("run", "net.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    import re

    assert re.search(sentence, done.stderr), done.stderr
