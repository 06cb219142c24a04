"""Data that is not what it seems, through the command line: refused before anything starts."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from recsim_train.cli.main import app

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 26, rows: 500}}
data: {path: good.tsv, eval_rows: 20}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 16, threads: 1, steps: 20, warmup_steps: 2}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""


def rows(count: int, seed: int = 1, separator: str = "\t") -> str:
    draw = random.Random(seed)
    lines = [
        [str(draw.randint(0, 1)), *(str(draw.randint(0, 99)) for _ in range(13))]
        + [f"{draw.getrandbits(32):08x}" for _ in range(26)]
        for _ in range(count)
    ]
    return "".join(separator.join(line) + "\n" for line in lines)


TEXT = rows(60)
HEADER = "\t".join(["label", *(f"I{n}" for n in range(13)), *(f"C{n}" for n in range(26))])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "good.tsv").write_text(TEXT)
    (tmp_path / "other.tsv").write_text(rows(60, seed=2))
    return tmp_path


def asked(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def planned(*sets: str, command: str = "run") -> Any:
    words = [word for text in sets for word in ("--set", text)]
    return asked(command, "small.yaml", "--dry-run", *words)


def refusal(done: Any) -> str:
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.stderr


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("train.txt", TEXT)
    return target.getvalue()


def tarred(mode: Any = "w") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:
        member = tarfile.TarInfo("train.txt")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT.encode()))
    return target.getvalue()


def parquet() -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"label": [0, 1], "I1": [3, 4], "C1": [5, 6]}), target)
    return target.getvalue()


def columns(change: Callable[[list[str]], list[str]]) -> bytes:
    lines = [change(line.split("\t")) for line in TEXT.splitlines()]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


REFUSED: dict[str, tuple[bytes, str]] = {
    "comma": (rows(9, separator=",").encode(), "a CSV file, whose 40 columns are separated by com"),
    "comma and header": (
        (HEADER.replace("\t", ",") + "\n" + rows(9, separator=",")).encode(),
        "a CSV file with a header, whose 40 columns",
    ),
    "few commas": (b"a,b,c\n1,2,3\n4,5,6\n", "a CSV file with a header, whose 3 columns"),
    "semicolons": (rows(9, separator=";").encode(), "separated by semicolons"),
    "blanks": (rows(9, separator=" ").encode(), "separated by blanks"),
    "parquet": (b"PAR1\x15\x04\x15" * 99, "x: is no whole Parquet file (Parquet magic bytes not"),
    "parquet without columns": (parquet(), "x: is Parquet, of which data.columns has to say what"),
    "parquet in gzip": (gzip.compress(b"PAR1\0\x15" * 99), "gzip data that holds a Parquet file"),
    "zip": (zipped(), "x: a zip archive"),
    "tar": (tarred(), "x: a tar archive"),
    "tar.gz": (tarred("w:gz"), "x: gzip data that holds a tar archive"),
    "gz twice": (gzip.compress(gzip.compress(TEXT.encode())), "gzip data that holds gzip data"),
    "bz2": (bz2.compress(TEXT.encode()), "data compressed by bzip2"),
    "xz": (lzma.compress(TEXT.encode()), "data compressed by xz"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x58" + bytes(range(256)), "data compressed by zstd"),
    "utf-16": (TEXT.encode("utf-16"), "x: UTF-16 text"),
    "utf-16 without a mark": (TEXT.encode("utf-16-le"), "x: UTF-16 text"),
    "utf-16, other way round": (TEXT.encode("utf-16-be"), "x: UTF-16 text"),
    "page": (b"<!DOCTYPE html>\n<html>Sign in</html>\n", "an HTML or XML page"),
    "json": (b'{"label": 1}\n' * 9, "x: JSON"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer"),
    "no label": (columns(lambda f: f[1:]), "they have 39: is the label missing?"),
    "index": (columns(lambda f: ["7", *f]), "they have 41: is there an index?"),
    "random": (random.Random(1).randbytes(9999), "x: a binary file"),
    "header and floats": (
        HEADER.encode() + b"\n" + columns(lambda f: [f[0], f[1], f[2] + ".0", *f[3:]]),
        "x is not Criteo text: not one of its first lines is well-formed (line 2, column 3: \"",
    ),
    "all floats": (
        columns(lambda f: [f[0], f[1], "1.0", *f[3:]]),
        '(line 1, column 3: "1.0", written as a float, as pandas does with columns that have',
    ),
    "missing values": (
        columns(lambda f: [*f[:5], "nan", *f[6:]]),
        '(line 1, column 6: "nan", where an empty field is a missing value)',
    ),
    "header alone": (HEADER.encode(), "(line 1 seems to be a header)"),
    "only numbers that are too long": (
        columns(lambda f: [*f[:5], "9" * 19, *f[6:]]),
        f'column 6: "{"9" * 19}", of too many digits',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_likely_cause_is_named(folder: Path, name: str) -> None:
    content, part = REFUSED[name]
    (folder / "x").write_bytes(content)
    for setting in ("data.path=x", "data.eval_path=x"):
        assert part in refusal(planned(setting))


def test_a_name_in_gz_that_is_something_else(folder: Path) -> None:
    (folder / "x.gz").write_bytes(b"PAR1" * 99)
    assert "the file is not gzip data but a Parquet file" in refusal(planned("data.path=x.gz"))


@pytest.mark.parametrize("key", ["path", "eval_path"])
@pytest.mark.parametrize("url", ["https://a.b/day_0.gz", "s3://a/b", "hdfs://n:9/b", "file:///x"])
def test_a_url_is_shown_whole_and_refused(folder: Path, key: str, url: str) -> None:
    for command in ("run", "simulate"):
        said = refusal(planned(f"data.{key}={url}", command=command))
        assert f"data.{key}: expected a file of this machine, got the URL '{url}'" in said


def test_a_pattern_names_several_files(folder: Path) -> None:
    done = planned("data.path=*.tsv", "data.eval_rows=119")
    assert done.exit_code == 0, done.output
    assert "  data: *.tsv; held out: the first 119 rows of it\n" in done.stdout
    assert "all of which are held out" in refusal(planned("data.path=*.tsv", "data.eval_rows=120"))
    assert "x*.tsv: no file has a name like this" in refusal(planned("data.path=x*.tsv"))
    (folder / "[1].tsv").write_text(TEXT)  # its name is a pattern, too, of another file
    assert planned("data.path='[1].tsv'").exit_code == 0


def test_a_shell_s_signs_stand_for_themselves(folder: Path) -> None:
    for name in ("~/x.tsv", "a.tsv,b.tsv", "$CRITEO/x"):
        said = refusal(planned(f"data.path={name}"))
        assert f"{name}: no such file of that very name" in said
    assert "no such file; expected" in refusal(planned("data.path=x.tsv"))


def test_a_folder_names_the_files_in_it(folder: Path) -> None:
    (folder / "logs").mkdir()
    assert "logs: the folder has no file *.parquet" in refusal(planned("data.path=logs"))
    for name in ("part-1.tsv", "part-0.txt", "_SUCCESS", ".part-0.txt.crc", "notes.md"):
        (folder / "logs" / name).write_text(TEXT if "part-" in name else "")
    assert planned("data.path=logs", "data.eval_rows=119").exit_code == 0
    assert "120 rows, all of which" in refusal(planned("data.path=logs", "data.eval_rows=120"))
    twice = planned("data.path=[logs, logs/part-1.tsv]")
    assert "logs/part-1.tsv: is named twice in data.path" in refusal(twice)


@pytest.mark.parametrize("key", ["path", "eval_path"])
def test_what_a_reader_would_wait_for_is_refused(folder: Path, key: str) -> None:
    """In no time: the test's own limit is what a hang would meet."""
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("fifo")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    end, other = os.pipe()
    opened = os.open(folder / "good.tsv", os.O_RDONLY)
    (folder / "own").symlink_to(f"/dev/fd/{opened}")
    try:
        for name, what in (
            ("fifo", "a pipe"),
            ("link", "a pipe"),
            ("socket", "a socket"),
            ("/dev/null", "a device"),
            ("/dev/zero", "a device"),
            (f"/dev/fd/{end}", "a pipe"),
            (f"/dev/fd/{opened}", "what one process has open"),
            (f"/proc/self/fd/{opened}", "what one process has open"),
            ("own", "what one process has open"),
        ):
            said = refusal(planned(f"data.{key}={name}"))
            assert f"{name}: is {what}; expected a regular file, because each process" in said
    finally:
        listening.close()
        for number in (end, other, opened):
            os.close(number)


def test_a_regular_file_behind_a_link_is_taken(folder: Path) -> None:
    (folder / "link.tsv").symlink_to("good.tsv")
    assert planned("data.path=link.tsv").exit_code == 0


@pytest.mark.parametrize("setting", ["data.path", "data.eval_path", "data.limit_rows", "name"])
def test_an_unset_variable_is_not_taken_for_null(folder: Path, setting: str) -> None:
    for command in ("run", "simulate"):
        for text in ("", "  "):
            said = refusal(planned(f"{setting}={text}", command=command))
            assert f"expected a value, got empty text; to have none: {setting}=null" in said


@pytest.mark.parametrize(
    ("key", "otherwise"),
    [("path", "null: the generator feeds"), ("eval_path", "null: the first data.eval_rows rows")],
)
def test_empty_text_in_a_file_is_refused_too(folder: Path, key: str, otherwise: str) -> None:
    expected = f"data.{key}: expected a file, got empty text; {otherwise}"
    assert expected in refusal(planned(f"data.{key}=''"))
    (folder / "small.yaml").write_text(EXPERIMENT.replace("eval_rows", f'{key}: " ", eval_rows')
                                       .replace("path: good.tsv, path", "path"))  # fmt: skip
    assert expected in refusal(planned())
    (folder / "small.yaml").write_text(EXPERIMENT + f"sweep: {{data.{key}: ['', other.tsv]}}\n")
    assert expected in refusal(planned())


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", ""),
        ("run", " "),
        ("run", "small.yaml", "--out", ""),
        ("report", ""),
        ("report", ".", "--out", ""),
        ("report", ".", "--measured", ""),
        ("calibrate", "--output", ""),
        ("calibrate", "--for", ""),
        ("calibrate", "--for", "small.yaml", "--into", ""),
        ("data", "describe", ""),
        ("data", "generate", "small.yaml", "--out", ""),
        ("validate", ""),
    ],
    ids=" ".join,
)
def test_empty_text_is_not_the_current_folder(folder: Path, words: tuple[str, ...]) -> None:
    assert "expected a path, got empty text" in refusal(asked(*words))


def test_a_list_of_files_is_one_log(folder: Path) -> None:
    done = planned("data.path=[good.tsv, other.tsv]", "data.eval_rows=119")
    assert done.exit_code == 0, done.output
    assert "  data: good.tsv and 1 more; held out: the first 119 rows of it\n" in done.stdout
    for key in ("path", "eval_path"):
        said = refusal(planned(f"data.{key}=[]"))
        assert f"data.{key}: expected a file, got an empty list; null: " in said
    said = refusal(planned("data.path=[good.tsv, ./good.tsv]"))
    assert "good.tsv: is named twice in data.path" in said
    said = refusal(planned("data.eval_path=[other.tsv, good.tsv]"))
    assert "good.tsv holds the rows of good.tsv (data.path) itself" in said
    (folder / "small.yaml").write_text(EXPERIMENT.replace("good.tsv", "[good.tsv, other.tsv]"))
    assert "  data: good.tsv and 1 more;" in planned().stdout


def test_points_of_a_sweep_have_files_of_their_own(folder: Path) -> None:
    done = planned(
        "sweep.points=[{data.path: good.tsv}, {data.path: other.tsv}]", command="simulate"
    )
    assert done.exit_code == 0, done.output
    assert "small: 2 points" in done.stdout
    assert "  data: good.tsv; held out: the first 20 rows of it" in done.stdout
    assert "  data: other.tsv; held out" in done.stdout


def test_held_out_rows_are_not_the_training_files(folder: Path) -> None:
    (folder / "link.tsv").symlink_to("good.tsv")
    os.link(folder / "good.tsv", folder / "hard.tsv")
    (folder / "copy.tsv").write_text(TEXT)
    (folder / "cut.tsv").write_text(TEXT.removesuffix("\n"))
    (folder / "one.gz").write_bytes(gzip.compress(TEXT.encode(), 1))
    (folder / "nine.gz").write_bytes(gzip.compress(TEXT.encode(), 9))
    pairs = [("good.tsv", other) for other in (
        "good.tsv", "./good.tsv", str(folder / "good.tsv"), "link.tsv", "hard.tsv", "copy.tsv",
        "cut.tsv", "one.gz",
    )]  # fmt: skip
    for path, other in [*pairs, ("one.gz", "nine.gz"), ("nine.gz", "copy.tsv")]:
        sets = [f"data.path={path}", f"data.eval_path={other}"]
        said = refusal(planned(*sets))
        assert f"data.eval_path: {other} holds the rows of {path} (data.path) itself" in said
        assert planned(*sets, "data.eval_rows=0").exit_code == 0
    assert planned("data.eval_path=other.tsv").exit_code == 0  # as long, and other rows
    damaged = bytearray(gzip.compress(TEXT.encode()))
    damaged[-6] ^= 1
    (folder / "damaged.gz").write_bytes(damaged)
    (folder / "again.gz").write_bytes(damaged)
    assert "holds the rows of" in refusal(
        planned("data.path=damaged.gz", "data.eval_path=again.gz")
    )


def test_a_file_that_is_still_to_be_made_is_not_held_out_too(folder: Path) -> None:
    sets = ["data.path=new.tsv", "data.generate=true", "data.eval_path=new.tsv"]
    assert "holds the rows of new.tsv (data.path) itself" in refusal(planned(*sets))


@pytest.mark.parametrize(
    ("sets", "said", "document"),
    [
        ([], "good.tsv; held out: the first 20 rows of it", (["good.tsv"], None, 20)),
        (["data.path=null"], "the generator (data.path is null), 200,000 rows of seed 7; held out: "
         "the first 20 rows of it", ("generator", None, 20)),
        (["data.eval_path=other.tsv"], "good.tsv; held out: the first 20 rows of other.tsv",
         (["good.tsv"], ["other.tsv"], 20)),
        (["data.eval_rows=7", "data.eval_from=end"], "good.tsv; held out: the last 7 rows of it",
         (["good.tsv"], None, 7)),
        (["data.eval_rows=0", "data.limit_rows=30"], "good.tsv, at most 30 rows trained on; held "
         "out: none", (["good.tsv"], None, 0)),
    ],
)  # fmt: skip
def test_the_plan_names_its_rows(
    folder: Path, sets: list[str], said: str, document: tuple[object, list[str] | None, int]
) -> None:
    for command in ("run", "simulate"):
        assert f"  data: {said}\n" in planned(*sets, command=command).stdout
    words = [word for text in sets for word in ("--set", text)]
    (plan,) = json.loads(asked("run", "small.yaml", "--dry-run", "--json", *words).stdout)["plans"]
    source, files, rows = document
    assert plan["data"]["source"] == source
    assert plan["data"]["held_out"] == {
        "files": files, "rows": rows, "share": None,
        "from": "end" if "data.eval_from=end" in sets else "start",
    }  # fmt: skip


def test_the_screen_and_the_report_name_them_too(folder: Path) -> None:
    words = ("simulate", "small.yaml", "--cluster", REFERENCE, "--set", "data.path=null")
    said = "the generator (data.path is null), 200,000 rows of seed 7; held out: the first 20 rows"
    done = asked(*words)
    assert done.exit_code == 0, done.output
    assert f"data: {said} of it\n" in done.stderr
    assert f"data: {said} of it." in asked("report", "runs").stdout
    assert said in (folder / "report" / "summary.md").read_text()
    assert said in (folder / "report" / "report.html").read_text()
    done = asked(*words, "--set", "roles.trainers=[1, 2]", "--out", "swept")
    assert done.stderr.count(f"data: {said}") == 1, done.stderr
    reported = asked("report", "swept/small-sweep", "--out", "of-sweep").stdout
    assert f"data: {said} of it." in reported
    assert said in (folder / "of-sweep" / "report.html").read_text()
    done = asked(*words, "--set", "data.eval_rows=[5, 9]", "--out", "varied")
    assert done.stderr.count("data: the generator") == 2
    reported = asked("report", "varied/small-sweep", "--out", "of-varied").stdout
    assert "data: By point: data.eval_rows." in reported


@pytest.mark.parametrize("features", [0, 1, 12, 13, 14])
def test_one_rule_for_the_features_that_criteo_text_has(folder: Path, features: int) -> None:
    sets = [f"model.dense_features={features}", "model.bottom_mlp=[8]"]
    named = ["data", "generate", "small.yaml", "--out", "made.tsv"]
    written = asked(*named, *(word for text in sets for word in ("--set", text)))
    if 1 <= features <= 13:
        assert planned(*sets).exit_code == 0
        assert written.exit_code == 0, written.output
        assert planned(*sets, "data.path=made.tsv").exit_code == 0
        return
    for done in (planned(*sets), written):
        expected = "at least 1" if not features else "13 integer columns, too few for 14 dense"
        assert expected in refusal(done)
    assert not (folder / "made.tsv").exists()
