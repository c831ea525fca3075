"""Formatted lines are read back unchanged by textformat, whatever the labels contain."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from exporter.sources.promql.pages import format_line, format_series
from exporter.textformat import parse

# Any text except lone surrogates, which UTF-8 lacks; often characters with a meaning in the format.
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"\n\r{},=# '), max_size=12)
NAME = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABEL = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
NAMES = NAME | TEXT.filter(bool)
LABELS = st.dictionaries(LABEL | TEXT.filter(bool), TEXT, max_size=4)
MILLISECONDS = st.integers(0, 4 * 10**12)


@given(NAMES, LABELS, st.floats(), MILLISECONDS)
@example("up", {}, 1.0, 1001)  # 1.001 * 1000 is a little less than 1001
def test_formatted_line_is_read_back_unchanged(name, labels, value, at):
    page = parse(format_line(format_series(name, labels), value, at / 1000))
    assert page.dropped == ()
    assert len(page.layout) == 1
    assert page.layout.read(0) == (name, labels)
    assert page.values[0] == value or (math.isnan(page.values[0]) and math.isnan(value))
    assert page.at[0] == at / 1000


def test_head_of_a_series_does_not_depend_on_the_label_order():
    assert format_series("a", {"x": "1", "b": "2"}) == format_series("a", {"b": "2", "x": "1"}) == b'a{b="2",x="1"}'


def test_series_without_labels_has_no_braces():
    assert format_line(format_series("up", {}), 1.0, 1700000000.5) == b"up 1.0 1700000000500\n"


def test_utf8_names_of_prometheus_3_are_quoted():
    assert format_series("my.metric", {"a.b": "c"}) == b'{"my.metric","a.b"="c"}'
