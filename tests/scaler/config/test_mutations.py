"""Mutates a configuration: the result is always a configuration or a list of problems in our own format."""

import copy
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scaler.config import Config, ConfigErrors, parse
from scaler.config.pydantic_errors import salvage, sentence

_FULL = (Path(__file__).parent / "full.yaml").read_text()
_NASTY = [None, True, 5, -1, 0, 1e300, 1.5, "", "x y", "{}", "%s", [], [1], [[]], {}, {"a": 1}, {"url": None}, [{}]]
_OURS = re.compile(r"must |unknown key; ")


def _places(value, way=()):
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from _places(child, (*way, key))


_DOCUMENT = yaml.safe_load(_FULL)
_PLACES = [way for way in _places(_DOCUMENT) if way]


@pytest.mark.parametrize("way", _PLACES, ids=lambda way: ".".join(map(str, way)))
def test_every_invalid_value_gives_a_message_in_our_format(way):
    for value in _NASTY:
        document = copy.deepcopy(_DOCUMENT)
        holder = document
        for part in way[:-1]:
            holder = holder[part]
        holder[way[-1]] = copy.deepcopy(value)
        config, errors, _ = salvage(document, Config)

        assert config is not None  # the rest was salvaged
        assert [sentence(error) for error in errors if not _OURS.match(sentence(error))] == []


_LINES = [
    number for number, line in enumerate(_FULL.splitlines()) if re.search(r"[a-z_]: [^\[]", line) and line[0] != "#"
]


@pytest.mark.parametrize("number", _LINES)
def test_error_points_at_the_invalid_value(number):
    lines = _FULL.splitlines()
    key = lines[number].index(": ") + 2
    lines[number] = lines[number][:key] + "[[]]"  # no key takes a list of lists

    with pytest.raises(ConfigErrors) as caught:
        parse("\n".join(lines), "c.yaml")
    assert [
        (problem.line, problem.column) for problem in caught.value.problems if problem.message.endswith("got a list")
    ] == [(number + 1, key + 1)]


@st.composite
def _mutants(draw):
    """Draws the full configuration with one to six random edits."""
    text = _FULL
    for _ in range(draw(st.integers(1, 6))):
        lines = text.splitlines(keepends=True) or [""]
        at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "copy", "swap", "insert", "cut", "indent", "replace"]))
        column = draw(st.integers(0, len(lines[at])))
        splinter = draw(st.text(st.sampled_from("a1.:-,[]{}&*!|>'\"%@`#?~<\t\n \\\x00\x85é=/_"), max_size=4))
        if kind == "drop":
            del lines[at]
        elif kind == "copy":
            lines.insert(other, lines[at])
        elif kind == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "insert":
            lines[at] = lines[at][:column] + splinter + lines[at][column:]
        elif kind == "cut":
            lines[at:] = [lines[at][:column]]
        elif kind == "indent":
            lines[at] = "  " + lines[at]
        else:
            lines[at] = lines[at].split(":")[0] + ": " + splinter + "\n"
        text = "".join(lines)
    return text


def _problems(text):
    try:
        return parse(text, "c.yaml")[1]
    except ConfigErrors as errors:
        return errors.problems


def _assert_problems_are_readable(text):
    lines = len(re.findall(r"\r\n|[\n\r\x85\u2028\u2029]", text)) + 1
    for problem in _problems(text):
        assert "Input should" not in problem.message
        assert 1 <= problem.line <= lines
        assert "\n" not in str(problem)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_mutants())
def test_mutated_configuration_never_raises(text):
    _assert_problems_are_readable(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
@example("? ? a")
@example("- *a\n- &a\n- !b c\n")
@example("%TAG ! tag:x,2000:\n---\n!a b")
@example("a: [1, 2")
@example("{" * 200)
@example("- " * 200)
@example("? " * 200)
def test_arbitrary_text_never_raises(text):
    _assert_problems_are_readable(text)
