"""What a server may answer, and how little of it is believed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Failure, FailureKind
from exporter.sources.promql.decode import PromqlSeries, decode_error, decode_series

UP = {"metric": {"__name__": "up", "job": "a"}, "values": [[1.5, "1"]]}


def body(*series, kind="matrix", **more):
    data = {"resultType": kind, "result": list(series)}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def with_values(*values):
    return {**UP, "values": list(values)}


def test_series_is_its_name_its_labels_and_its_samples_in_order():
    said = body(with_values([2, "NaN"], [1.5, "1e3"], [3, "+Inf"]))
    (series,) = decode_series(said)
    assert (series.name, series.labels, series.times) == ("up", {"job": "a"}, (1.5, 2.0, 3.0))
    assert repr(series.values) == "(1000.0, nan, inf)"


def test_what_has_no_value_is_nan_and_never_zero():
    (series,) = decode_series(body(with_values([1.5, None])))
    assert repr(series.values) == "(nan,)"


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        "up",
        {},
        {"metric": {}, "values": [[1.5, "1"]]},
        {"metric": {"__name__": ""}, "values": [[1.5, "1"]]},
        {"metric": {"__name__": 7}, "values": [[1.5, "1"]]},
        {"metric": {"__name__": "up", "a": None}, "values": [[1.5, "1"]]},
        {"metric": {"__name__": "up", "a": "\ud800"}, "values": [[1.5, "1"]]},
        {"metric": {"__name__": "up"}, "histograms": [[1.5, {"count": "1", "sum": "1"}]]},
        {"metric": {"__name__": "up"}, "value": [1.5, "1"]},
        with_values(),
        with_values(None),
        with_values([1.5]),
        with_values([1.5, 1]),
        with_values([1.5, "1\nup 7"]),
        with_values([1.5, "1e999"]),
        with_values(["1.5", "1"]),
        with_values([1e300, "1"]),
        with_values([float("nan"), "1"]),
        with_values([1.5, "1"], [2.5, "x"]),
    ],
)
def test_series_that_makes_no_sense_costs_itself(bad):
    assert decode_series(body(UP, bad)) == (PromqlSeries("up", {"job": "a"}, (1.5,), (1.0,)),)


def test_warning_is_an_answer_that_is_not_whole():
    failure = decode_series(body(UP, warnings=["store-2: \x1b[31mtime-out", "more"]))
    words = "the server warns that its response is incomplete: store-2: \ufffd[31mtime-out"
    assert failure == Failure(FailureKind.PARTIAL, words)


def test_no_warnings_and_any_infos_leave_an_answer_whole():
    for more in ({"warnings": []}, {"warnings": None}, {"infos": ["metric might not be a counter"]}):
        assert len(decode_series(body(UP, **more))) == 1


def test_answer_without_series_is_an_answer():
    assert decode_series(body()) == ()


@pytest.mark.parametrize("kind", ["vector", "scalar", "string", None])
def test_answer_that_is_no_range_vector_blames_the_selector(kind):
    failure = decode_series(body(UP, kind=kind))
    assert failure.kind is FailureKind.UNREADABLE
    assert "selector" in failure.detail


@pytest.mark.parametrize(
    "said",
    [b"", b"<html>", b"\xff", b"null", b"[]", b"{}", b"[" * 100_000, b'{"status": "success"', b'{"status": 7}'],
)
def test_what_is_not_prometheus_json_is_unreadable(said):
    assert decode_series(said).kind is FailureKind.UNREADABLE
    assert decode_error(said) is None


def test_error_comes_in_the_servers_words():
    said = {"status": "error", "errorType": "execution", "error": "query timed out\n" + "a" * 1000}
    assert decode_series(json.dumps(said).encode()).detail.startswith("execution: query timed out aaa")
    assert len(decode_error(json.dumps(said).encode())) == 300
    assert decode_error(b'{"error": "no tenant"}') == "no tenant"


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.sampled_from(["matrix", "success", "error"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "data", "resultType", "result", "metric", "values", "__name__", "error", "warnings"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_no_answer_whatever_makes_reading_raise(said):
    for outcome in (
        decode_series(json.dumps(said).encode()),
        decode_series(body(said)),
        decode_series(body(UP, data=said)),
    ):
        assert isinstance(outcome, tuple | Failure)
    decode_error(json.dumps(said).encode())
