"""Lints arbitrary manifests: the result is a list of problems, never a traceback."""

import re
from copy import deepcopy
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from scaler.lint.autoscalers import number
from scaler.lint.objects import Container, objects_in, value_of
from scaler.lint.promql import parse_query, seconds
from scaler.lint.run import lint_objects
from tests.scaler.lint.manifests import sides

NOW = 1795420800.0
PAGES = (Path(__file__).parents[3] / "docs/reference/rules").glob("TG*.md")
EXAMPLES = [
    [document for document in yaml.safe_load_all(block) if "apiVersion" in document]
    for page in sorted(PAGES)
    for block in sides(page.read_text(encoding="utf-8"))
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 500) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def paths(document, at=()):
    """The paths of all values in a document."""
    yield at
    if isinstance(document, dict | list):
        keys = document if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield from paths(document[key], (*at, key))


@given(st.data())
def test_example_with_arbitrary_values_never_raises(data):
    documents = deepcopy(data.draw(st.sampled_from([each for each in EXAMPLES if each])))
    for _ in range(data.draw(st.integers(1, 3))):
        document = data.draw(st.sampled_from(documents))
        *way, last = data.draw(st.sampled_from([at for at in paths(document) if at]))
        holder = document
        for part in way:
            holder = holder[part]
        holder[last] = data.draw(ANYTHING)
    found = [one for document in documents for one in objects_in(value_of(document), "m")]

    for live in (False, True):
        for problem in lint_objects(found, None, NOW, frozenset(), live=live).problems:
            assert str(problem)


@given(st.text(alphabet="abd:_019 {}[]()\"'`=~,*/\\\n5m$", max_size=60))
def test_arbitrary_text_is_a_query_with_valid_metric_names(text):
    assert all(re.fullmatch(r"[a-zA-Z_:][\w:]*", name) for name in parse_query(text).names)


@given(st.text(max_size=40))
def test_arbitrary_text_is_a_command_with_arguments(text):
    container = Container(value_of({"command": ["sh", "-c", text]}), ())
    assert [word for word, _ in container.arguments][:2] == ["sh", "-c"]
    assert container.option("--a") is None or "--a" in text


def test_query_is_parsed_to_metrics_windows_and_labels():
    query = parse_query(
        'sum by (pod) (rate(a:b_total{pod=~"x{y}", le!="1"}[5m:30s] offset 1h)) / on(pod) group_left c > bool 1e3'
    )
    assert query.names == {"a:b_total", "c"}
    assert query.windows == (300.0,)
    assert query.labels == {"pod", "le"}
    assert (query.has_arithmetic, query.sums, query.fills, query.on_engines) == (True, True, False, False)


def test_zero_for_missing_series_is_detected_in_every_notation():
    for zero in ("vector(0)", "on() vector(0)", "vector( 0.0 )"):
        assert parse_query(f"a or {zero}").fills
    for no_zero in ("vector(1)", "b"):
        assert not parse_query(f"a or {no_zero}").fills


def test_durations_are_parsed_like_promql():
    assert seconds("1y2w3d4h5m6s7ms") == 365 * 86400 + 14 * 86400 + 3 * 86400 + 4 * 3600 + 5 * 60 + 6 + 0.007
    assert seconds("soon") == 0.0


def test_quantity_is_parsed_like_kubernetes():
    quantities = ["1", "1000m", " 0.5 ", "2k", "1Ki", "3M", "1Mi", "1G", "1Gi", "-1", "1e3"]
    assert [number(each) for each in quantities] == [1, 1, 0.5, 2000, 1024, 3e6, 2**20, 1e9, 2**30, -1, 1000]
    assert [number(each) for each in ("", "much", "1e", "1 k", "0x1")] == [None] * 5
