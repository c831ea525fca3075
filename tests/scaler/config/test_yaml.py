"""Checks errors about files that are unreadable, or whose text is not a configuration."""

import pytest

from scaler.config import Config, ConfigErrors, load, parse

_KEYS = (
    "known here: listen, scrape, freshness, tick, state, log, explain, links, otlp, prices, sharing, gpus, gateways, "
    "kubernetes, mode, brake, workloads"
)


@pytest.mark.parametrize(("text", "expected"), [
    ("", ["1:1: must not be empty: see docs/reference/configuration.md for its keys"]),
    ("# nothing\n---\n", ["1:1: must not be empty: see docs/reference/configuration.md for its keys"]),
    ("- tick", ["1:1: must be a mapping of keys to values, got a list"]),
    ("tick", ["1:1: must be a mapping of keys to values, got tick"]),
    ("tick: 1s: 2s", ["1:9: not valid YAML: mapping values are not allowed here"]),
    ("log:\n\tlevel: info", ["2:1: a tab cannot stand here: YAML is indented with spaces"]),
    ('tick: "1s', ["1:10: not valid YAML: found unexpected end of stream while scanning a quoted scalar"]),
    ("tick: 1\x00s", ["1:8: must be printable text, got U+0000"]),
    ("gpus: " + "[" * 5000, ["1:27: must be nested at most 20 deep"]),
    ("gpus: [{dns: a}]\n---\ntick: 1s", ["2:1: must be one YAML document: a second one begins here"]),
    ("tick: 1s\ngpus: [{dns: a}]\ntick: 2s", ["3:1: tick: duplicate key: already given on line 1"]),
    ("tick: !!python/object/apply:os.system 1\ngpus: [{dns: a}]",
     ["1:7: tick: tags (!!python/object/apply:os.system) are not supported: write the plain value, in quotes if text"]),
    ("gpus: [&a {dns: a}]", ["1:8: gpus.0: anchors (&a) are not supported: write each value out"]),
    ("gpus: [{dns: a}, *a]", ["1:18: gpus.1: aliases (*a) are not supported: write the value out"]),
    ("*a", ["1:1: aliases (*a) are not supported: write the value out"]),
    ("gpus: [{<<: {dns: a}}]", ["1:9: gpus.0.<<: merge keys (<<) are not supported: write the values out"]),
    ("? [a]\n: 1\n? tick\n: 1s\n? gpus\n: [{dns: a}]", ["1:3: a key must be a plain word"]),
    ("gpus: [{dns: a}]\non: 1", [f"2:1: on: unknown key; {_KEYS}"]),
    ("gpus: [{dns: a}]\n1: 1", [f"2:1: 1: unknown key; {_KEYS}"]),
])  # fmt: skip
def test_invalid_text_is_reported_with_position_and_reason(check, text, expected):
    assert check(text) == [f"c.yaml:{line}" for line in expected]


def test_alias_bomb_is_refused_without_expansion(check):
    # Ten levels of ten aliases would be 10^10 values.
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 11)]
    lines = check("\n".join(["a0: &a0 [x]", *levels]))

    assert sum("aliases" in line for line in lines) == 100
    assert sum("anchors" in line for line in lines) == 11


def test_yaml_1_1_booleans_are_text():
    text = "workloads: [{namespace: on, name: no, engine: vllm, model: off, pods: {dns: y}}]"
    (workload,) = parse(text, "c.yaml")[0].workloads

    assert (workload.namespace, workload.name, workload.model) == ("on", "no", "off")


def test_byte_order_mark_and_crlf_are_accepted():
    assert parse("\ufefftick: 2s\r\n", "c.yaml")[0] == parse("tick: 2s\n", "c.yaml")[0]


def test_file_is_loaded(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xef\xbb\xbftick: 2s\n")

    assert load(file) == Config(tick=2.0)


def test_error_names_the_file_as_given(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("tick: 2h\n")

    with pytest.raises(ConfigErrors) as caught:
        load(file)
    assert str(caught.value).splitlines()[-1] == f"{file}:1:7: tick: must be at most 1m, got 2h"


def _problems(path):
    with pytest.raises(ConfigErrors) as caught:
        load(path)
    return [str(problem) for problem in caught.value.problems]


def test_unreadable_file_is_a_problem(tmp_path):
    (missing,) = _problems(tmp_path / "none.yaml")
    (folder,) = _problems(tmp_path)
    (nul,) = _problems("a\0b")

    assert missing == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"
    assert folder == f"{tmp_path}: cannot be read: Is a directory"
    assert nul.startswith("a\0b: cannot be read: ")


def test_byte_that_is_not_utf_8_is_reported_with_its_position(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes("tick: 1s\nü: ".encode() + b"\xff\n")

    assert _problems(file) == [f"{file}:2:4: must be UTF-8, got the byte 0xff"]


def test_file_larger_than_a_config_map_is_not_parsed(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes(b"#" * (2**20 + 1))

    assert _problems(file) == [f"{file}: must be at most 1MiB"]


def test_problem_converts_to_a_plain_document():
    with pytest.raises(ConfigErrors) as caught:
        parse("tick: 2h", "c.yaml")

    assert caught.value.problems[-1].to_document() == {
        "file": "c.yaml",
        "line": 1,
        "column": 7,
        "key": "tick",
        "message": "must be at most 1m, got 2h",
        "severity": "error",
        "rule": None,
    }


def test_problems_are_sorted_by_position(check):
    positions = [
        tuple(map(int, line.split(":")[1:3])) for line in check("tick: x\nlog: 5\ngpus: 5\nlisten: 5\ntick: 5\n")
    ]

    assert positions == sorted(positions)
    assert len(positions) == 5
