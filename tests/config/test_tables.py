"""Tables of a model: lists, mappings that stand for several, and CSV files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Table
from recsim_train.config.load import load_points
from recsim_train.strategy.registry import schemas


def tables(folder: Path, written: str, more: str = "") -> tuple[Table, ...]:
    path = folder / "e.yaml"
    path.write_text(
        "name: x\nstrategy: flat_ps\nmodel:\n  preset: tiny\n  embedding_dim: 8\n"
        f"  tables: {written}\n{more}",
        encoding="utf-8",
    )
    return load_points(path, (), schemas())[0].experiment.model.tables


def problem(folder: Path, written: str, more: str = "") -> str:
    with pytest.raises(UserError) as caught:
        tables(folder, written, more)
    return str(caught.value)


def test_entries_that_stand_for_several(tmp_path: Path) -> None:
    found = tables(
        tmp_path,
        "[50M, {count: 2, rows: 1.5k, ids: 3}, 7, {count: 1, rows: 2G, ids: 4, variable: true}]",
    )
    assert found == (
        Table(rows=50_000_000),
        *[Table(rows=1500, ids=3)] * 2,
        Table(rows=7),
        Table(rows=2_000_000_000, ids=4, variable=True),
    )


def test_a_mistake_is_shown_where_it_stands_and_once(tmp_path: Path) -> None:
    said = problem(tmp_path, "\n    - {count: 3, rows: -1}\n    - 5\n    - {rows: 5, ids: 0}")
    assert said.count("expected") == 2
    assert "e.yaml:7:" in said
    assert "e.yaml:9:" in said
    assert "50Q" in problem(tmp_path, "[50Q]")
    assert "at least 1 and at most 100000, got 0" in problem(tmp_path, "[{count: 0, rows: 3}]")
    fed = "data: {path: train.tsv}\n"
    said = problem(tmp_path, "\n    - {count: 3, rows: 9}\n    - {rows: 5, ids: 2}", fed)
    assert "e.yaml:8:" in said
    assert "table 3 takes 2 ids" in said


def test_names_of_torchrec(tmp_path: Path) -> None:
    said = "[{name: a, num_embeddings: 9, embedding_dim: 8}]"
    assert tables(tmp_path, said) == (Table(rows=9),)
    wide = "[{name: a, num_embeddings: 9, embedding_dim: 4}]"
    assert "is 4 wide, and model.embedding_dim is 8" in problem(tmp_path, wide)


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(
        "\ufeffname, rows, dim, ids, variable\na, 50M, 8, 3, true\n\nb, 7, 8, 2, false\nc, 5,,,\n",
        encoding="utf-8",
    )
    found = (Table(rows=50_000_000, ids=3, variable=True), Table(rows=7, ids=2), Table(rows=5))
    assert tables(tmp_path, "t.csv") == found
    (tmp_path / "m.csv").write_text("rows,max_ids\n9,30\n8,1\n", encoding="utf-8")
    of_bags = Table(rows=9, ids=30, variable=True), Table(rows=8, ids=1, variable=True)
    assert tables(tmp_path, "m.csv") == of_bags
    assert tables(tmp_path, "m.csv\n  max_rows: 8") == tuple(
        table.model_copy(update={"rows": 8}) for table in of_bags
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv:1:1: expected a first line with the column 'rows'"),
        ("rows\n", "t.csv:1:1: expected 1 to 100000 tables"),
        ("rows,idz\n5,1\n", "t.csv:1:1: unknown column 'idz'"),
        ("rows,ids,max_ids\n5,1,1\n", "got both"),
        ("rows,rows\n5,1\n", "twice"),
        ("rows,ids\n5,1\n6\n", "t.csv:3:1: model.tables[1]: expected 2 columns"),
        ("rows,ids\n5,1\n\n-6,2\n", "t.csv:4:1: model.tables[1].rows: expected an integer of"),
        (
            "rows,ids\n5,\n6,x\n",
            "t.csv:3:1: model.tables[1].ids: expected an integer",
        ),
        ("rows,variable\n5,perhaps\n", "t.csv:2:1: model.tables[0].variable"),
        ("rows,ids\n,3\n", "t.csv:2:1: model.tables[0].rows: missing"),
        ("rows,dim\n5,16\n", "t.csv:2:1: model.tables[0]: is 16 wide"),
        *(
            (
                f"rows,ids\n5,1\n{wrong},1\n",
                "t.csv:3:1: model.tables[1].rows: expected an integer of at least 1 "
                f"(in short: 50k, 1.5M, 2G), got {wrong!r}",
            )
            for wrong in ("50_000_", "50__000", "_5", "2B", "5 M", "0x", "\u00b2")
        ),
        (
            "rows\n1.5\n",
            "t.csv:2:1: model.tables[0].rows: expected an integer of at least 1, got 1.5",
        ),
        ("rows\n" + "9" * 5000, "t.csv:2: the number 9999"),
        (
            "rows\n" + "9" * 5000 + "G",
            "model.tables[0].rows: expected an integer of at least 1 (in",
        ),
        ('rows,ids\n"50,000",1\n', "t.csv:2:1: model.tables[0].rows: expected an integer"),
        ('rows,ids\n"50,000",1\n', '    "50,000",1'),
        ("name;rows\na;5\n", "; here columns are separated by semicolons: expected commas"),
        ("name\trows\na\t5\n", "; here columns are separated by tabs: expected commas"),
        ("sep=,\nname,rows\na,5\n", "; 'sep=' is a spreadsheet's own line: leave it out"),
        ("SEP=;\nrows\n5\n", "; 'sep=' is a spreadsheet's own line: leave it out"),
        ("Name,Rows\na,5\n", "; names of columns are in lower case"),
        ("ROWS\n5\n", "; names of columns are in lower case"),
    ],
)
def test_mistakes_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert said in problem(tmp_path, "t.csv")


def test_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = problem(tmp_path, "t.csv")
    assert "t.csv: cannot be read as CSV of tables: No such file or directory" in said
    assert "e.yaml:6:" in said
    (tmp_path / "t.csv").write_bytes(b"rows\n\xff\n")
    assert "t.csv: not UTF-8 text (byte 0xff on line 2)" in problem(tmp_path, "t.csv")


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.yaml"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, encoding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("rows\n5\n", encoding=encoding)
    said = problem(tmp_path, name)
    assert f"{name}: has zero bytes, as UTF-16 and binary files have; expected" in said


def test_numbers_in_a_file_are_those_of_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("rows,variable\n50_000,true\n 1e3 ,False\n010,TRUE\n2.5k,\n")
    found = tables(tmp_path, "t.csv")
    assert [table.rows for table in found] == [50_000, 1000, 10, 2500]
    assert [table.variable for table in found] == [True, False, True, False]


@pytest.mark.parametrize("indent", ["\t", "\t\t", "  \t"])
def test_json_may_be_indented_by_tabs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [{"rows": 50, "ids": 2}, "3k", 7]
    (tmp_path / "t.json").write_text(json.dumps(given, indent=indent).replace(",", ",\t"))
    assert tables(tmp_path, "t.json") == (Table(rows=50, ids=2), Table(rows=3000), Table(rows=7))
    (tmp_path / "t.json").write_text(json.dumps([1, {"rows": -2}], indent=indent))
    assert f"t.json:4:{2 * len(indent) + 9}: model.tables[1].rows" in problem(tmp_path, "t.json")
    (tmp_path / "t.yaml").write_text("- {rows: 5,\n\tids: 1}\n")  # which is YAML
    assert "a tab in the indentation" in problem(tmp_path, "t.yaml")


def torchrec(**more: object) -> str:
    """As json.dump(..., default=str) writes dataclasses.asdict of an EmbeddingBagConfig."""
    known = {
        "num_embeddings": 50, "embedding_dim": 8, "name": "t0", "data_type": "DataType.FP32",
        "feature_names": ["f0"], "weight_init_max": None, "init_fn": "functools.partial(...)",
        "need_pos": False, "use_virtual_table": False, "pooling": "PoolingType.SUM",
    }  # fmt: skip
    return json.dumps(known | more)


def test_configurations_of_torchrec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(f"[{torchrec()},\n {torchrec(ids=4)}]")
    assert tables(tmp_path, "t.json") == (Table(rows=50), Table(rows=50, ids=4))
    (tmp_path / "t.yaml").write_text("- 7\n- {count: 2, rows: 1k}\n")
    assert tables(tmp_path, "t.yaml") == (Table(rows=7), *[Table(rows=1000)] * 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"[1,\n{torchrec(pooling='PoolingType.MEAN')}]",
            "model.tables[1].pooling: expected SUM, as all tables are here, got MEAN",
        ),
        (f"[{torchrec(data_type='DataType.FP16')}]", "t.json:1:"),
        (f"[{torchrec(data_type='DataType.FP16')}]", "data_type: expected FP32"),
        (
            f"[{torchrec(feature_names=['f0', 'f1'])}]",
            "feature_names: 2 features share this table",
        ),
        (f"[1,\n {torchrec(idz=4)}]", "t.json:2:"),
        ("[1, -5]", "t.json:1:5: model.tables[1]"),
        ("[1", "t.json:1:"),
        ("[" * 100_000, "values are nested too deeply"),
        (
            '[{"rows": "2B"}]',
            "model.tables[0].rows: expected an integer of at least 1 (in short: 50k",
        ),
        ('["2B"]', "t.json:1:2: model.tables[0].rows: expected an integer of at least 1 (in short"),
        ('"many"', "expected a list of row counts"),
        ("", "expected a list of row counts"),
    ],
)
def test_mistakes_in_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(text)
    assert said in problem(tmp_path, "t.json")
    (tmp_path / "t.json").unlink()
    assert "t.json: cannot be read as a list of tables: No such file" in problem(tmp_path, "t.json")
