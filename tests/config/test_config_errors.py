"""What people see when an experiment is wrong: the texts, the places, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.load import load_points
from recsim_train.config.problems import ConfigErrors
from recsim_train.strategy.registry import schemas

GOOD = "name: good\nmodel: tiny\nstrategy: flat_ps\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def failure(path: Path, sets: tuple[str, ...] = ()) -> str:
    with pytest.raises(UserError) as caught:
        load_points(path, sets, schemas())[0]
    text = str(caught.value)
    for jargon in ("pydantic", "Input should", "Value error", "type=", "http", "Traceback"):
        assert jargon not in text
    return text


EXPLICIT = "{embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [8, 1], tables: [10, 20]}"
MODEL = "name: x\nstrategy: flat_ps\nmodel: "

BAD = {
    # unknown names
    "top-level typo": (GOOD + "rolez: {}\n", "4:1: rolez: unknown key; did you mean 'roles'?"),
    "section typo": (
        GOOD + "roles: {trainer: 4}\n",
        "4:9: roles.trainer: unknown key in roles; did you mean 'trainers'?",
    ),
    "right key in the wrong section": (
        GOOD + "batch_size: 3\n",
        "4:1: batch_size: unknown key; did you mean 'training.batch_size'?",
    ),
    "nested typo": (
        GOOD + "data:\n  synthetic: {zip: 1.0}\n",
        "5:15: data.synthetic.zip: unknown key in data.synthetic; did you mean 'zipf'?",
    ),
    "strategies is the field, not the key": (
        GOOD + "strategies: [flat_ps]\n",
        "4:1: strategies: unknown key; did you mean 'strategy'?",
    ),
    "far from anything": (
        GOOD + "roles: {zzzzzz: 1}\n",
        "unknown key in roles; known: trainers, embedding_servers, dense_servers, readers",
    ),
    "unknown strategy": (
        "name: x\nmodel: tiny\nstrategy: flatps\n",
        "3:11: strategy: unknown strategy 'flatps'; did you mean 'flat_ps'? Known: flat_ps, ",
    ),
    "unknown option": (
        "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, evry: 2}\n",
        "3:27: strategy.evry: unknown key; did you mean 'every'?",
    ),
    "unknown preset": (
        "name: x\nmodel: criteo-kagle\nstrategy: flat_ps\n",
        "2:8: model: unknown model preset 'criteo-kagle'; did you mean 'criteo-kaggle'?",
    ),
    "unknown preset in a mapping": (
        "name: x\nmodel: {preset: tinny, embeding_dim: 3}\nstrategy: flat_ps\n",
        "2:17: model.preset: unknown model preset 'tinny'; did you mean 'tiny'?",
    ),
    "unknown key beside a preset": (
        MODEL + "{preset: tiny, maxrows: 3}\n",
        "3:23: model.maxrows: unknown key in model; did you mean 'max_rows'?",
    ),
    # quantities
    "missing unit": (
        GOOD + "execution: {timeout: 30}\n",
        "4:22: execution.timeout: expected a duration with its unit, such as '50 us': "
        "30 has no unit",
    ),
    "missing unit in text": (GOOD + "execution: {timeout: '30'}\n", "'30' has none"),
    "unknown unit": (
        GOOD + "execution: {timeout: 30 seconds}\n",
        "unknown unit 'seconds' for a duration; did you mean 's'? Known: ps, ns, us",
    ),
    "share without per cent": (
        GOOD + "simulation: {precision: 0.01}\n",
        "expected a share with its unit, such as '5 %': 0.01 has no unit",
    ),
    "negative quantity": (
        GOOD + "execution: {timeout: -3 s}\n",
        "expected a duration that is not negative, got '-3 s'",
    ),
    "huge quantity": (GOOD + "execution: {timeout: 1e999 s}\n", "'1e999 s' is too large"),
    "zero timeout": (GOOD + "execution: {timeout: 0 s}\n", "expected a duration above 0"),
    # types and ranges
    "zero trainers": (
        GOOD + "roles: {trainers: 0}\n",
        "4:19: roles.trainers: expected an integer of at least 1 and at most 100000, got 0",
    ),
    "negative count": (
        GOOD + "roles: {readers: -1}\n",
        "roles.readers: expected an integer of at least 0 and at most 100000, got -1",
    ),
    "text for a number": (
        GOOD + "training: {steps: many}\n",
        "training.steps: expected an integer of at least 1, got 'many'",
    ),
    "number in quotes": (GOOD + "training: {steps: '5'}\n", "at least 1, got '5'"),
    "truth for a number": (GOOD + "training: {steps: true}\n", "at least 1, got true"),
    "fraction for a count": (GOOD + "training: {steps: 2.5}\n", "at least 1, got 2.5"),
    "null for a count": (GOOD + "training: {steps: }\n", "at least 1, got nothing"),
    "yes is text": (
        GOOD + "data: {generate: yes}\n",
        "data.generate: expected true or false, got 'yes'",
    ),
    "open interval": (
        GOOD + "data: {synthetic: {click_rate: 1}}\n",
        "expected a number above 0 and below 1, got 1",
    ),
    "closed interval": (
        GOOD + "data: {synthetic: {zipf: 9}}\n",
        "expected a number of at least 0 and at most 4, got 9",
    ),
    "infinity": (
        GOOD + "training: {dense_lr: .inf}\n",
        "training.dense_lr: expected a number above 0, got '.inf'",
    ),
    "choice": (
        GOOD + "training: {dense_optimizer: adagard}\n",
        "expected one of 'sgd', 'adagrad', got 'adagard'; did you mean 'adagrad'?",
    ),
    "text wanted": (
        "name: 2024\nmodel: tiny\nstrategy: flat_ps\n",
        "1:7: name: expected text, got 2024 (quotes make it text)",
    ),
    "empty name": ("name: ' '\nmodel: tiny\nstrategy: flat_ps\n", "expected a name, got empty"),
    "section is no mapping": (GOOD + "roles: 3\n", "4:8: roles: expected a mapping, got 3"),
    "optional": (
        GOOD + "data: {limit_rows: x}\n",
        "expected an integer of at least 1 or null, got 'x'",
    ),
    "integer beyond 64 bits": (
        GOOD + "seed: 99999999999999999999\n",
        "4:7: seed: the number 99999999999999999999 is too large",
    ),
    # what must be there
    "no name": ("model: tiny\nstrategy: flat_ps\n", "name: missing; expected text (Name of the"),
    "no model": ("name: x\nstrategy: flat_ps\n", "model: missing; expected a preset's name or a"),
    "no strategy": ("name: x\nmodel: tiny\n", "strategy: missing; expected a strategy's name"),
    "empty strategy list": (
        "name: x\nmodel: tiny\nstrategy: []\n",
        "3:11: strategy: expected at least one strategy, got an empty list",
    ),
    "no kind": (
        "name: x\nmodel: tiny\nstrategy: {every: 3}\n",
        "strategy: missing 'kind', the strategy's name (known: flat_ps, ",
    ),
    "strategy of another type": (
        "name: x\nmodel: tiny\nstrategy: [3]\n",
        "strategy[0]: expected a strategy's name, a mapping with 'kind' and options, or a list, "
        "got 3",
    ),
    # strategies' options
    "option below its minimum": (
        "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, every: 0}\n",
        "3:34: strategy.every: expected an integer of at least 1, got 0",
    ),
    "option above its maximum": (
        "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, alpha: 1.5}\n",
        "strategy.alpha: expected a number of at least 0 and at most 1, got 1.5",
    ),
    "option's type": (
        "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, every: 1.5}\n",
        "strategy.every: expected an integer of at least 1, got 1.5",
    ),
    "option's choice": (
        "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, mode: downpor}\n",
        "expected one of 'downpour', 'easgd', got 'downpor'; did you mean 'downpour'?",
    ),
    "the same strategy twice": (
        "name: x\nmodel: tiny\n"
        "strategy: [nope, flat_ps, allreduce, {kind: flat_ps, every: 1, alpha: 0.5}]\n",
        "strategy[3]: the same strategy with the same options as entry 2",
    ),
    # the model's forms and shape
    "model of another type": (
        MODEL + "[1]\n",
        "3:8: model: expected a preset's name or a mapping, got a list",
    ),
    "preset of another type": (
        MODEL + "{preset: 3}\n",
        "3:17: model.preset: expected a preset's name, got 3",
    ),
    "field missing": (
        MODEL + "{bottom_mlp: [4], top_mlp: [1], tables: [3]}\n",
        "3:1: model.embedding_dim: missing; expected an integer of at least 1 (Width of every",
    ),
    "bottom width": (
        MODEL + "{preset: tiny, bottom_mlp: [16, 9]}\n",
        "3:35: model.bottom_mlp: the last width must equal embedding_dim (8), got 9",
    ),
    "top width": (
        MODEL + "{preset: tiny, top_mlp: [16, 2]}\n",
        "model.top_mlp: the last width must equal 1, the click's logit, got 2",
    ),
    "no layers": (
        MODEL + "{preset: tiny, bottom_mlp: []}\n",
        "model.bottom_mlp: expected at least one layer, got an empty list",
    ),
    "layer of no width": (
        MODEL + "{preset: tiny, top_mlp: [0, 1]}\n",
        "3:33: model.top_mlp[0]: expected an integer of at least 1, got 0",
    ),
    "no tables": (
        MODEL + "{preset: tiny, tables: []}\n",
        "model.tables: expected at least one value, got an empty list",
    ),
    "table without rows": (
        MODEL + "{preset: tiny, tables: [{ids: 2}]}\n",
        "model.tables[0].rows: missing; expected an integer of at least 1",
    ),
    "negative rows": (
        MODEL + "{preset: tiny, tables: [10, -1]}\n",
        "3:36: model.tables[1].rows: expected an integer of at least 1, got -1",
    ),
    "table that is text": (
        MODEL + "{preset: tiny, tables: [big]}\n",
        "model.tables[0]: expected a mapping, got 'big'",
    ),
    "tables that are text": (
        MODEL + "{preset: tiny, tables: big}\n",
        "model.tables: expected a list of row counts or of mappings, {count: 26, rows: 100000}",
    ),
    "no count": (
        MODEL + "{preset: tiny, tables: {rows: 5}}\n",
        "model.tables: expected an integer of at least 1 and at most 100000; 'count' is missing",
    ),
    "zero count": (
        MODEL + "{preset: tiny, tables: {count: 0, rows: 5}}\n",
        "3:39: model.tables.count: expected an integer of at least 1 and at most 100000, got 0",
    ),
    "rows of equal tables": (
        MODEL + "{preset: tiny, tables: {count: 9, rows: 0}}\n",
        "3:48: model.tables.rows: expected an integer of at least 1, got 0",
    ),
    "cap in a form that is not known": (
        MODEL + "{preset: tiny, max_rows: 2B}\n",
        "3:33: model.max_rows: expected an integer of at least 1 (in short: 50k, 1.5M, 2G), "
        "got '2B'",
    ),
    "rows in such a form": (
        MODEL + "{preset: tiny, tables: [5, 2B]}\n",
        "3:35: model.tables[1].rows: expected an integer of at least 1 (in short: 50k, 1.5M, 2G), "
        "got '2B'",
    ),
    "cap of zero": (
        MODEL + "{preset: tiny, max_rows: 0}\n",
        "3:33: model.max_rows: expected an integer of at least 1, got 0",
    ),
    # across sections
    "all rows held out": (
        GOOD + "data: {synthetic: {rows: 100}}\n",
        "4:26: data.synthetic.rows: must exceed data.eval_rows (10000), the rows held out of it",
    ),
    "dense features of Criteo": (
        MODEL + "{preset: tiny, dense_features: 14}\ndata: {path: a.tsv}\n",
        "3:39: model.dense_features: the Criteo text 'a.tsv' (data.path) has 13 integer columns, "
        "too few for 14 dense features",
    ),
    "tables of Criteo": (
        MODEL + "{preset: tiny, tables: {count: 27, rows: 3}}\ndata: {path: a.tsv}\n",
        "has 26 categorical columns, too few for 27 tables",
    ),
    "bags from Criteo": (
        MODEL + "{preset: tiny, tables: [3, {rows: 4, ids: 2}]}\ndata: {path: a.tsv}\n",
        "3:35: model.tables[1]: the Criteo text 'a.tsv' (data.path) has one id per column, but "
        "table 1 takes 2 ids",
    ),
    # the YAML itself
    "duplicate key": (
        GOOD + "name: again\n",
        "4:1: name: duplicate key, first written on line 1",
    ),
    "tab": ("name: x\nroles:\n\ttrainers: 2\n", "3:1: not valid YAML: a tab in the indentation"),
    "open bracket": ("name: x\nstrategy: [flat_ps\n", "the text ends inside an open bracket"),
    "stray colon": ("name: x\n  model: tiny\n", "2:8: not valid YAML: unexpected ':'"),
    "no colon": ("name: x\nmodel tiny\nseed: 1\n", "not valid YAML: expected 'key: value'"),
    "two documents": (GOOD + "---\n" + GOOD, "expected one document, but a second one starts"),
    "list": ("- name: x\n", "1:1: expected an experiment: a mapping of keys to values at the top"),
    "scalar": ("quickstart\n", "not a single value"),
    "tag": ("name: !!python/name:os.system x\n", "tags such as '!!python/name:os.system' are not"),
    "alias of itself": ("name: &a [*a]\n", "an alias (*name) contains itself"),
    "unknown alias": ("name: *x\n", "not valid YAML: found undefined alias"),
    "key that is a list": ("[a, b]: 3\n", "expected a plain key, not a list or a mapping"),
    "empty": ("", "the file is empty; expected an experiment in YAML"),
    "only comments": ("# name: x\n", "the file is empty; expected an experiment in YAML"),
    "control character": ("name: a\nx: \x07\n", "2:4: not valid YAML: control character 0x07"),
}


@pytest.mark.parametrize(("text", "fragment"), BAD.values(), ids=BAD)
def test_bad_experiments_are_explained(tmp_path: Path, text: str, fragment: str) -> None:
    path = write(tmp_path, text)
    message = failure(path)
    assert fragment in message
    assert str(path) in message


def test_the_good_one_is_good(tmp_path: Path) -> None:
    assert load_points(write(tmp_path, GOOD), (), schemas())[0].experiment.name == "good"


def test_shows_place_line_and_caret(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "roles:\n  trainers: 0   # none\n")
    assert failure(path) == (
        f"{path}:5:13: roles.trainers: expected an integer of at least 1 and at most 100000, "
        "got 0\n"
        "      trainers: 0   # none\n"
        "                ^\n"
        f"1 problem in {path}"
    )


def test_a_caret_in_a_long_line_stays_under_its_value(tmp_path: Path) -> None:
    widths = ", ".join(["7"] * 200)
    lines = failure(write(tmp_path, MODEL + f"{{preset: tiny, bottom_mlp: [{widths}, x]}}\n"))
    _, source, caret, _ = lines.splitlines()
    assert len(source) < 140
    assert source[caret.index("^")] == "x"


def test_all_problems_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: 3\nmodel: {preset: nope, dtype: f32}\nroles: {trainers: 0}\nsteps: 5\n"
        "strategy: {kind: flat_ps, every: no}\n",
    )
    with pytest.raises(ConfigErrors) as caught:
        load_points(path, ["training.threads=0"], schemas())[0]
    keys = [problem.key for problem in caught.value.problems]
    assert keys == [
        "name",
        "model.preset",
        "model.dtype",
        "roles.trainers",
        "steps",
        "strategy.every",
        "training.threads",
    ]
    assert str(caught.value).endswith(f"7 problems in {path}")


def test_no_duplicated_problems(tmp_path: Path) -> None:
    message = failure(write(tmp_path, MODEL + "{preset: tiny, tables: {count: 26, rows: x}}\n"))
    assert message.endswith(f"1 problem in {tmp_path / 'e.yaml'}")


def test_duplicate_keys_are_all_found(tmp_path: Path) -> None:
    message = failure(write(tmp_path, GOOD + "roles: {readers: 0, readers: 1}\nname: y\n"))
    assert "roles.readers: duplicate key, first written on line 4" in message
    assert "name: duplicate key, first written on line 1" in message


class TestFiles:
    def test_absent_with_a_suggestion(self, tmp_path: Path) -> None:
        (tmp_path / "quickstart.yaml").touch()
        wrong = tmp_path / "quikstart.yaml"
        assert failure(wrong).endswith("No such file or directory; did you mean 'quickstart.yaml'?")

    def test_absent(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere" / "e.yaml"
        absent = "cannot be read as an experiment: No such file or directory"
        assert failure(path) == f"{path}: {absent}"

    def test_directory(self, tmp_path: Path) -> None:
        assert failure(tmp_path) == f"{tmp_path}: cannot be read as an experiment: Is a directory"

    def test_binary(self, tmp_path: Path) -> None:
        path = tmp_path / "x.png"
        path.write_bytes(b"\x89PNG\r\n\0\0")
        assert failure(path).startswith(f"{path}: has zero bytes, as UTF-16 and binary files have")

    def test_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "latin.yaml"
        path.write_bytes(b"seed: 1\nname: caf\xe9\n")
        assert "not UTF-8 text (byte 0xe9 on line 2)" in failure(path)

    def test_utf16(self, tmp_path: Path) -> None:
        path = tmp_path / "u.yaml"
        path.write_text(GOOD, encoding="utf-16")
        assert failure(path).endswith(
            "as UTF-16 and binary files have; expected an experiment in UTF-8"
        )

    def test_byte_order_mark_is_fine(self, tmp_path: Path) -> None:
        path = tmp_path / "u.yaml"
        path.write_text(GOOD, encoding="utf-8-sig")
        assert load_points(path, (), schemas())[0].experiment.name == "good"

    def test_a_data_file_by_mistake(self, tmp_path: Path) -> None:
        path = tmp_path / "train.txt"
        path.write_bytes(b"0\t1\n" * 4_400_000)
        assert "larger than 16 MiB, so not an experiment" in failure(path)

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(self: Path, *_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        path = write(tmp_path, GOOD)
        monkeypatch.setattr(Path, "open", refuse)
        assert failure(path) == f"{path}: cannot be read as an experiment: Permission denied"

    def test_deep_nesting(self, tmp_path: Path) -> None:
        assert "nested too deeply" in failure(write(tmp_path, "name: " + "[" * 5000))

    def test_an_explosion_of_aliases(self, tmp_path: Path) -> None:
        lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
        assert "more than 200,000 values" in failure(write(tmp_path, "\n".join(lines)))
