"""Responses of a query API are decoded strictly: an invalid series costs only itself, any other error the response."""

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


def test_series_has_its_name_labels_and_ordered_samples():
    response = body(with_values([2, "NaN"], [1.5, "1e3"], [3, "+Inf"]))
    (series,) = decode_series(response)
    assert (series.name, series.labels, series.times) == ("up", {"job": "a"}, (1.5, 2.0, 3.0))
    assert repr(series.values) == "(1000.0, nan, inf)"


def test_missing_value_is_nan_and_never_zero():
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
def test_invalid_series_costs_only_itself(bad):
    assert decode_series(body(UP, bad)) == (PromqlSeries("up", {"job": "a"}, (1.5,), (1.0,)),)


def test_response_with_a_warning_is_partial():
    failure = decode_series(body(UP, warnings=["store-2: \x1b[31mtime-out", "more"]))
    detail = "the server warns that its response is incomplete: store-2: \ufffd[31mtime-out"
    assert failure == Failure(FailureKind.PARTIAL, detail)


def test_response_with_infos_or_empty_warnings_is_complete():
    for more in ({"warnings": []}, {"warnings": None}, {"infos": ["metric might not be a counter"]}):
        assert len(decode_series(body(UP, **more))) == 1


def test_response_without_series_is_empty():
    assert decode_series(body()) == ()


@pytest.mark.parametrize("kind", ["vector", "scalar", "string", None])
def test_error_of_another_result_type_names_the_selector(kind):
    failure = decode_series(body(UP, kind=kind))
    assert failure.kind is FailureKind.UNREADABLE
    assert "selector" in failure.detail


@pytest.mark.parametrize(
    "response",
    [b"", b"<html>", b"\xff", b"null", b"[]", b"{}", b"[" * 100_000, b'{"status": "success"', b'{"status": 7}'],
)
def test_invalid_response_is_unreadable(response):
    assert decode_series(response).kind is FailureKind.UNREADABLE
    assert decode_error(response) is None


def test_error_has_the_servers_message():
    response = {"status": "error", "errorType": "execution", "error": "query timed out\n" + "a" * 1000}
    assert decode_series(json.dumps(response).encode()).detail.startswith("execution: query timed out aaa")
    assert len(decode_error(json.dumps(response).encode())) == 300
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
def test_no_response_raises_an_exception(response):
    for outcome in (
        decode_series(json.dumps(response).encode()),
        decode_series(body(response)),
        decode_series(body(UP, data=response)),
    ):
        assert isinstance(outcome, tuple | Failure)
    decode_error(json.dumps(response).encode())
