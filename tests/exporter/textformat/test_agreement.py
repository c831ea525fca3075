"""The kernel, the plain reader and prometheus-client agree, and no bytes raise an exception."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from exporter.textformat import PlainScanner, Scanner, Selection, parse

# Few names and values, so that lines repeat: twice on a page, moved, or in another spelling.
HEADS = [
    *[
        f"{name}{labels}".encode()
        for name in ("a", "ab", "a:b")
        for labels in ("", "{}", '{x="1"}', '{x="2"}', ' {x="1"}')
    ],
    b'a{x="1",y="2"}',
    b'a{y="2",x="1"}',
    b'a{ x = "1" , y = "2" , }',
    b'{"a",x="1"}',
    b'{"a.b"}',
    b'a{"x"="1"}',
    rb'a{x="\\",y="\n",z="\q\""}',
    b'a{x="# {",y="}"}',
    'a{x="ü"}'.encode(),
    b"  a",
    b"\ta",
]
BAD_HEADS = [
    b"...",
    b"{",
    b"a{",
    b'a{x="1"',
    b'a{x="1',
    b'a{x="1",x="2"}',
    b'a{x="1","x"="2"}',
    b"a.b",
    b"",
    b'a{x="\xff"}',
]
VALUES = [
    b"0",
    b"1",
    b"-2.5",
    b"1e3",
    b"NaN",
    b"-Inf",
    b"infinity",
    b"9223372036854775794",
    b"0.1234567890123456789012",
]
BAD_VALUES = [b"", b"ERROR - FAILED", b"1_0", b"0x1p3", b"1e999", b"e", b"#", b"{} 1", b"\r"]
TIMES = [
    b"",
    b" 1700000000000",
    b" 1700000000.123",
    b" -1",
    b" 5e3",
    b" nan",
    b" soon",
    b" 1 2",
    b' # {t="1"} 2 3',
    b"\t5 # {",
    b" ",
]
COMMENTS = [b"", b"#", b" # x", b"# TYPE a gauge", b"# TYPE a counter", b"# HELP a b", b"# EOF", b"\r", b"\x00"]

SAMPLES = st.builds(
    lambda head, blank, value, time: head + blank + value + time,
    st.sampled_from(HEADS),
    st.sampled_from([b" ", b" ", b" ", b"", b"\t ", b"\r"]),
    st.sampled_from(VALUES * 2 + BAD_VALUES),
    st.sampled_from([b""] * 10 + TIMES),
)
NOISE = st.lists(st.sampled_from([bytes([c]) for c in b'ab{}="\\,# \t1.e+-NIf\r\x00\xc3\xbc\xff_:']), max_size=30).map(
    b"".join
)
LINES = st.one_of(
    SAMPLES, SAMPLES, SAMPLES, st.sampled_from(COMMENTS), st.sampled_from(BAD_HEADS).map(lambda h: h + b" 1"), NOISE
)


def join(lines, end):
    return b"\n".join(lines) + end


@st.composite
def edited(draw, lines):
    """Returns a later version of the page: lines removed, added, moved, or with another value."""
    lines = list(lines)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines)))
        edit = draw(st.sampled_from(["delete", "insert", "move", "number", "again"]))
        if edit == "insert" or at >= len(lines):
            lines.insert(at, draw(LINES))
        elif edit == "again":
            lines.append(lines[at])
        elif edit == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif edit == "number":
            lines[at] = lines[at].rpartition(b" ")[0] + b" " + draw(st.sampled_from(VALUES + BAD_VALUES))
        else:
            del lines[at]
    return lines


@st.composite
def page_sequences(draw):
    lines = draw(st.lists(LINES, max_size=12))
    pages = []
    for _ in range(draw(st.integers(2, 5))):
        pages.append(join(lines, draw(st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\n# EOF\n"]))))
        lines = draw(edited(lines))
    return pages


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(page_sequences())
def test_response_is_read_the_same_after_any_other(same_page, pages):
    numba, plain = Scanner(), PlainScanner()
    for body in pages:
        expected = parse(body)
        same_page(expected, numba.scan(body))
        same_page(expected, plain.scan(body))


SELECTED = Selection(frozenset({"a", "a:b"}), prefixes=("ab",), signs=("a:", "ab"))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(page_sequences())
def test_selected_series_are_read_as_without_a_selection(same_page, pages):
    numba, plain = Scanner(SELECTED), PlainScanner(SELECTED)
    for body in pages:
        expected = PlainScanner(SELECTED).scan(body)
        same_page(expected, numba.scan(body))
        same_page(expected, plain.scan(body))
        whole = parse(body)
        kept = [i for i, name in enumerate(whole.layout.names) if name in SELECTED.names or name.startswith("ab")]
        assert [whole.layout.heads[i] for i in kept] == expected.layout.heads
        assert whole.lines[kept].tolist() == expected.lines.tolist()
        assert repr(whole.values[kept].tolist()) == repr(expected.values.tolist())
        assert set(expected.dropped) <= set(whole.dropped)


@settings(max_examples=200, deadline=None)
@given(page_sequences())
def test_layout_is_the_same_object_exactly_while_the_series_are_the_same(pages):
    for scanner in (Scanner(), PlainScanner()):
        last = scanner.scan(b"").layout
        for body in pages:
            layout = scanner.scan(body).layout
            alone = parse(body).layout
            assert (layout is last) == (alone.heads == last.heads and alone.types == last.types)
            last = layout


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_raise_an_exception(same_page, first, second):
    scanner = Scanner()
    scanner.scan(first)
    same_page(parse(second), scanner.scan(second))


VALID = st.lists(
    st.builds(
        lambda name, labels, value: (name, labels, value),
        st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True),
        st.dictionaries(
            st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True).filter(
                lambda key: key[:2] != "__"
            ),  # reserved
            st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]), max_size=10),
            max_size=4,
        ),
        st.floats(),
    ),
    max_size=12,
    unique_by=lambda sample: (sample[0], frozenset(sample[1].items())),
)


def escaped(text):
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def written(name, labels, value):
    pairs = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value!r}" if labels else f"{name} {value!r}"


def series_of(page):
    """Returns the series of a page in a form that other parsers share; NaN equals itself."""
    values = page.values.tolist()
    series = map(page.layout.read, range(len(page.layout)))
    return [(name, dict(labels), repr(v)) for (name, labels), v in zip(series, values, strict=True)]


def series_of_families(families):
    return [(s.name, s.labels, repr(float(s.value))) for family in families for s in family.samples]


@settings(max_examples=150, deadline=None)
@given(VALID)
def test_valid_response_has_the_samples_of_prometheus_client(same_page, samples):
    text = "".join(written(*sample) + "\n" for sample in samples)
    page = parse(text.encode())
    assert page.dropped == ()
    assert series_of(page) == series_of_families(text_string_to_metric_families(text))
    same_page(page, Scanner().scan(text.encode()))


@settings(max_examples=150, deadline=None)
@given(VALID, st.data())
def test_broken_line_costs_only_that_line(same_page, samples, data):
    lines = [written(*sample).encode() for sample in samples] or [b"a 1"]
    at = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[at])))
    stop = data.draw(st.integers(start, min(start + 3, len(lines[at]))))
    broken = lines[at][:start] + data.draw(st.binary(max_size=3)) + lines[at][stop:]
    page = parse(b"\n".join([*lines[:at], broken, *lines[at + 1 :]]) + b"\n")
    expected = {(name, frozenset(labels.items())): repr(value) for name, labels, value in samples}
    expected.pop((samples[at][0], frozenset(samples[at][1].items())) if samples else None, None)
    found = {(name, frozenset(labels.items())): value for name, labels, value in series_of(page)}
    # The broken line may be valid for a series of another line by chance: the first one counts.
    chance = {(name, frozenset(labels.items())) for name, labels, _ in series_of(parse(broken))}
    assert {key: value for key, value in expected.items() if key not in chance} == {
        key: value for key, value in found.items() if key in expected and key not in chance
    }
    scanner = Scanner()
    scanner.scan(b"\n".join(lines) + b"\n")
    same_page(page, scanner.scan(b"\n".join([*lines[:at], broken, *lines[at + 1 :]]) + b"\n"))


@settings(max_examples=100, deadline=None)
@given(VALID, st.data())
def test_truncated_response_keeps_its_whole_lines(samples, data):
    text = "".join(written(*sample) + "\n" for sample in samples).encode()
    cut = text[: data.draw(st.integers(0, len(text)))]
    whole = cut.count(b"\n")
    assert series_of(parse(cut))[:whole] == series_of(parse(text))[:whole]


def a_registry():
    registry = CollectorRegistry()
    requests = Counter("requests", "Requests.", ["path"], registry=registry)
    for i, path in enumerate(["/", '/"quoted"', "/back\\slash", "/line\nfeed", "/größe"]):
        requests.labels(path).inc(i + 0.1)
    latency = Histogram("latency_seconds", "Latency.", registry=registry)
    latency.observe(0.3, {"trace_id": "} # {"})
    Gauge("queue", "Waiting.", registry=registry).set(math.nan)
    return registry


def test_openmetrics_response_has_the_samples_of_prometheus_client(same_page):
    body = openmetrics.generate_latest(a_registry())
    assert b"# {" in body
    page = parse(body)
    assert page.dropped == ()
    assert series_of(page) == series_of_families(openmetrics_families(body.decode()))
    assert page.layout.types == {"requests": "counter", "latency_seconds": "histogram", "queue": "gauge"}
    same_page(page, Scanner().scan(body))


def test_text_response_of_prometheus_client_is_read_whole(same_page):
    body = generate_latest(a_registry())
    page = parse(body)
    assert page.dropped == ()
    assert series_of(page) == series_of_families(text_string_to_metric_families(body.decode()))
    same_page(page, Scanner().scan(body))
