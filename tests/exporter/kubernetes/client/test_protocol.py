"""Any bytes in the place of an API response are read, or are a failure with a cause."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes import protocol
from exporter.kubernetes.protocol import ApiFailure, Event, Garbled, Gone, Lines, ListPage, ListRequest
from exporter.kubernetes.resources import NODES, PODS

LIST = ListRequest("list", PODS, None)
WATCH = ListRequest("watch", PODS, "ai")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def shaped(*keys):
    """Returns a strategy for mappings with some of these keys and any values."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, anything))


lists = st.fixed_dictionaries({}, optional={"items": anything, "metadata": shaped("resourceVersion", "continue")})
events = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["ADDED", "BOOKMARK", "ERROR"]) | anything,
        "object": st.fixed_dictionaries({}, optional={"metadata": shaped("resourceVersion"), "code": anything})
        | anything,
    },
)


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_do_not_depend_on_the_chunks(lines, data):
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    reader, found = Lines(), []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += reader.feed(whole[begin:end])
    assert found == lines


def test_empty_line_is_no_line():
    assert Lines().feed(b"\n \n{}\n") == [b"{}"]


@given(lists | anything)
def test_any_json_is_a_page_or_a_failure(answer):
    body = json.dumps(answer).encode()
    try:
        page = protocol.page(LIST, body)
    except ApiFailure as failed:
        page, detail = None, failed.detail
    if page is None:
        assert detail.startswith("list pods of all namespaces: ")
    else:
        assert isinstance(page, ListPage)
        assert all(isinstance(item, dict) for item in page.items)
        assert page.version


@given(st.binary())
def test_any_bytes_are_a_failure(body):
    with pytest.raises(ApiFailure, match=r"^list pods of all namespaces: "):
        protocol.page(LIST, body)


@given(events | anything)
def test_line_is_an_event_or_garbled_or_the_end(line):
    try:
        event = protocol.event(WATCH, json.dumps(line).encode())
    except ApiFailure as failed:
        event, detail = None, failed.detail
    if event is None:
        assert detail.startswith(("watch pods of namespace ai: HTTP ", "watch pods of namespace ai: an error"))
    else:
        assert isinstance(event, Event | Garbled)
        assert isinstance(event, Garbled) or isinstance(event.version, str)


@given(st.integers(100, 599), st.none() | st.text(), st.binary() | anything.map(lambda body: json.dumps(body).encode()))
def test_every_status_is_a_failure_with_a_cause(status, retry_after, body):
    failure = protocol.failure(WATCH, WATCH.permission, status, body, retry_after)
    assert failure.status == status
    assert failure.detail.startswith(f"watch pods of namespace ai: HTTP {status}")


def test_null_items_are_an_empty_list():
    assert protocol.page(LIST, b'{"items":null,"metadata":{"resourceVersion":"5"}}') == ListPage([], "5", "")


def test_item_that_is_no_object_stays_one_malformed_document():
    body = b'{"items":[7,{"metadata":null}],"metadata":{"resourceVersion":"5"}}'
    assert protocol.page(LIST, body).items == [{}, {"metadata": None}]


def test_error_event_of_a_watch_has_the_cause():
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}'
    with pytest.raises(Gone, match=r"^watch pods of namespace ai: HTTP 410: the API server says: too old resource ver"):
        protocol.event(WATCH, line)


def test_cluster_scoped_resource_is_listed_without_a_namespace():
    assert str(ListRequest("list", NODES, "ai")) == "list nodes"
