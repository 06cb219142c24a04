"""Plain data of YAML text, by the rules of YAML 1.2."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.dump import dump_yaml
from recsim_train.config.errors import UserError
from recsim_train.config.problems import ConfigErrors, Mark
from recsim_train.config.yaml_source import parse_document


def value(text: str) -> object:
    return parse_document(f"x: {text}\n", "f.yaml", "a test").data["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e3", 1000),
        ("1.5e3", 1500),
        ("1e-3", 0.001),
        ("4.0", 4.0),
        ("1_000_000", 1_000_000),
        ("1_000.5", 1000.5),
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        ("-7", -7),
        ("+7", 7),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("2026-11-20", "2026-11-20"),
        ("1:30", "1:30"),
        ("_1", "_1"),
        ("1__0", "1__0"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'5'", "5"),
        ('"on"', "on"),
        ("25 Gbit/s", "25 Gbit/s"),
        ("5 %", "5 %"),
        ("!!str 5", "5"),
        ("[1, a, {b: 2}]", [1, "a", {"b": 2}]),
    ],
)
def test_values(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_keys_are_text() -> None:
    document = parse_document("on: 1\n5: 2\n", "f", "a test")
    assert document.data == {"on": 1, "5": 2}


@pytest.mark.parametrize("text", ["!!int abc", "!!float x", "!!bool yes", "!!set {a}", "!x y"])
def test_tags_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(ConfigErrors, match=r"f\.yaml:1:4: x: .*tag"):
        value(text)


@pytest.mark.parametrize("text", ["1e999", "9" * 30, "-9223372036854775809", "9" * 5000])
def test_numbers_beyond_64_bits_are_refused(text: str) -> None:
    with pytest.raises(ConfigErrors, match="too large"):
        value(text)


def test_marks() -> None:
    text = "a: 1\nb:\n  - x\n  - {c: 2}\n"
    marks = parse_document(text, "f.yaml", "a test").marks
    assert str(marks.locate(("a",))) == "f.yaml:1:4"
    assert str(marks.locate(("a",), at_key=True)) == "f.yaml:1:1"
    assert str(marks.locate(("b", 1, "c"))) == "f.yaml:4:9"
    assert str(marks.locate(("b", 1, "missing"))) == "f.yaml:4:5"
    assert str(marks.locate(("elsewhere",))) == "f.yaml:1:1"
    assert marks.locate(("b", 0)) == Mark("f.yaml", 3, 5, "  - x")


def test_an_anchor_may_be_used_twice() -> None:
    assert parse_document("a: &v [1]\nb: *v\n", "f", "a test").data == {"a": [1], "b": [1]}


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]))
    | st.sampled_from(
        ["on", "1e3", "0o7", "010", "1_0", "null", "~", "5 %", "2026-01-01", "=", "<<"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc10", min_size=1), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz.1e", min_size=1), PLAIN, min_size=1))
def test_what_we_write_reads_back(data: dict[str, object]) -> None:
    assert parse_document(dump_yaml(data), "f", "a test").data == data


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back(number: float) -> None:
    found = parse_document(dump_yaml({"x": number}), "f", "a test").data["x"]
    assert isinstance(found, float | int)
    assert math.isclose(found, number, rel_tol=0, abs_tol=0)


@given(st.text())
def test_any_text_gives_data_or_one_of_our_errors(text: str) -> None:
    message = "f.yaml:"
    try:
        parse_document(text, "f.yaml", "a test")
    except UserError as error:
        message = str(error)
    assert message.startswith("f.yaml:")
