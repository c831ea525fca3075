"""Parses and writes durations, sizes, addresses and URLs."""

import contextlib
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from scaler.config.scalars import (
    GLOB,
    Address,
    read_address,
    read_duration,
    read_size,
    read_url,
    write_duration,
    write_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("1m0s", 60.0),
        ("0s", 0.0),
        ("1s1ms", 1.001),
        (5, 5.0),
        (0.25, 0.25),
    ],
)
def test_duration_is_parsed_to_seconds(text, seconds):
    assert read_duration(text) == seconds


@given(st.floats(min_value=1e-6, max_value=365 * 86400))
@example(0.0)
@example(1e-9)
@example(0.1 + 0.2)
def test_every_duration_survives_a_round_trip(seconds):
    assert read_duration(write_duration(seconds)) == seconds


def test_duration_is_written_in_its_shortest_form():
    written = [write_duration(seconds) for seconds in (0.0, 0.5, 5.0, 60.0, 90.0, 5400.0, 86400.0)]

    assert written == ["0s", "500ms", "5s", "1m", "1m30s", "1h30m", "1d"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "5",
        "5 s",
        "-5s",
        "5S",
        "1s1m",
        "1m1m",
        "1_0s",
        "\u0665s",
        "5s\n",
        "9" * 5000 + "s",
        math.nan,
        -1,
        True,
        None,
    ],
)
def test_invalid_duration_is_refused(value):
    with pytest.raises(PydanticCustomError):
        read_duration(value)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8MiB", 8 * 2**20), ("8Mi", 8 * 2**20), ("8MB", 8_000_000), ("1kB", 1000), ("1KiB", 1024), ("7B", 7), (7, 7)],
)
def test_size_is_parsed_to_bytes(text, count):
    assert read_size(text) == count


@given(st.integers(min_value=0, max_value=2**39))
def test_every_size_survives_a_round_trip(count):
    assert read_size(write_size(count)) == count


@pytest.mark.parametrize("value", ["8", "8Mb", "8.5MiB", "-1B", "8 MiB", "9" * 5000 + "B", 1.5, True, None])
def test_invalid_size_is_refused(value):
    with pytest.raises(PydanticCustomError):
        read_size(value)


@pytest.mark.parametrize("text", ["0.0.0.0:8080", "[::]:8080", "localhost:0", "[fd00::7]:65535"])
def test_address_survives_a_round_trip(text):
    assert str(read_address(text)) == text


def test_address_has_a_host_without_brackets_and_a_port():
    assert read_address("[::]:8080") == Address("::", 8080)


@pytest.mark.parametrize("text", ["http://[fd00::7]:8000/metrics", "https://a/metrics?model=b", "http://10.0.0.1"])
def test_url_is_not_changed(text):
    assert read_url(text) == text


@given(st.one_of(st.text(), st.none(), st.integers(), st.floats(), st.booleans(), st.lists(st.none())))
def test_every_value_is_read_or_refused(value):
    for read in (read_duration, read_size, read_address, read_url, GLOB.read):
        with contextlib.suppress(PydanticCustomError):
            read(value)
