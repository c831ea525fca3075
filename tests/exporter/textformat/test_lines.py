"""Both readers read valid lines and give the same reasons for invalid ones."""

import math

import pytest

from exporter.model import Dropped
from exporter.textformat import MAX_DROPPED, PlainScanner, Scanner, parse


@pytest.fixture(params=["parse", "plain", "numba", "plain, second sight", "numba, second sight"])
def read(request):
    if request.param == "parse":
        return parse
    scanner = Scanner() if request.param.startswith("numba") else PlainScanner()
    if "second" not in request.param:
        return scanner.scan

    def twice(body):
        scanner.scan(body)
        return scanner.scan(body)

    return twice


def only(page):
    assert (len(page.layout), page.dropped) == (1, ())
    name, labels = page.layout.read(0)
    return name, dict(labels), page.values[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"up 1", ("up", {}, 1.0)),
        (b"up\t1", ("up", {}, 1.0)),
        (b"  up  1  ", ("up", {}, 1.0)),
        (b"vllm:num_requests_waiting 0.0", ("vllm:num_requests_waiting", {}, 0.0)),
        (b"up{} 1", ("up", {}, 1.0)),
        (b'up{a="b"}1', ("up", {"a": "b"}, 1.0)),
        (b'up {a="b"} 1', ("up", {"a": "b"}, 1.0)),
        (b'up{a="b",} 1', ("up", {"a": "b"}, 1.0)),
        (b'up{gpu="0", UUID="GPU-1"} 139', ("up", {"gpu": "0", "UUID": "GPU-1"}, 139.0)),
        (b'up{ a = "b" , c = "d" } 1', ("up", {"a": "b", "c": "d"}, 1.0)),
        (b'up{a="} # {,="} 1', ("up", {"a": "} # {,="}, 1.0)),
        (
            rb'up{a="q\"q",b="back\\slash",c="line\nfeed"} 1',
            ("up", {"a": 'q"q', "b": "back\\slash", "c": "line\nfeed"}, 1),
        ),
        ('up{a="Größe"} 1'.encode(), ("up", {"a": "Größe"}, 1.0)),
        (b'{"my.metric", l="v"} 1', ("my.metric", {"l": "v"}, 1.0)),
        (b'{"my.metric"} 1', ("my.metric", {}, 1.0)),
        (b'up{"a.b"="c"} 1', ("up", {"a.b": "c"}, 1.0)),
        (b'up{a="\x00"} 1', ("up", {"a": "\x00"}, 1.0)),
    ],
)
def test_line_has_a_name_labels_and_a_value(read, line, expected):
    assert only(read(line)) == expected


def test_backslash_that_escapes_nothing_is_kept_because_dcgm_exporter_escapes_nothing(read):
    assert only(read(rb'up{path="C:\temp\q"} 1')) == ("up", {"path": r"C:\temp\q"}, 1.0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"...", "not a sample"),
        (b"9lives 1", "not a sample"),
        (b"my.metric 1", "not a sample"),
        (b'"up" 1', "not a sample"),
        (b"\x00", "not a sample"),
        (b'{a="b"} 1', "no metric name"),
        (b'{""} 1', "bad label"),
        (b"up", "no value"),
        (b"up # 1", "no value"),
        (b'up{a="b"}', "no value"),
        (b"up{", "bad label"),
        (b"up{a} 1", "bad label"),
        (b"up{a=b} 1", "bad label"),
        (b'up{a:b="c"} 1', "bad label"),
        (b'up{,a="b"} 1', "bad label"),
        (b'up{a="b",,} 1', "bad label"),
        (b'up{a="b" c="d"} 1', "bad label"),
        (b'up{a="say "hi""} 1', "bad label"),
        (b'up{a="b","late.name"} 1', "bad label"),
        (b'up{"second.name"} 1', "bad label"),
        (b'up{a="b', "unterminated label value"),
        (rb'up{a="b\"} 1', "unterminated label value"),
        (b'up{a="b",a="c"} 1', "duplicate label"),
        (b'up{a="b","a"="c"} 1', "duplicate label"),
        (rb'up{"a\\"="b","a\"="c"} 1', "bad label"),
        (b'up{a="\xff"} 1', "not UTF-8"),
        (b"up ERROR - FAILED TO CONVERT TO STRING", "bad value: ERROR - FAILED TO CONVERT TO STRING"),
        (b"up 1_0", "bad value: 1_0"),
        (b"up 0x1p3", "bad value: 0x1p3"),
        (b"up +nan", "bad value: +nan"),
        (b"up 1e400", "bad value: 1e400"),
        (b"up 1.8e308", "bad value: 1.8e308"),
        (b"up 1e999999999", "bad value: 1e999999999"),
        (b"up 1e", "bad value: 1e"),
        (b"up .", "bad value: ."),
        (b"up -", "bad value: -"),
        (b"up 1.2.3", "bad value: 1.2.3"),
        (b"up\r\r", "not a sample"),
        (b'up{a="b"}\r\r', "bad value: \ufffd"),
        (b"up 1\r2", "bad value: 1\ufffd2"),
        (b"up \x1b[31m", "bad value: \ufffd[31m"),
        (b"up " + b"x" * 100, "bad value: " + "x" * 39 + "…"),
        (b"up 1 soon", "bad timestamp: soon"),
        (b"up 1 1e3", "bad timestamp: 1e3"),
        (b"up 1 2 3", "bad timestamp: 2 3"),
        (b"up 1 9223372036854775808", "bad timestamp: 9223372036854775808"),
    ],
)
def test_bad_line_is_dropped_with_its_reason(read, line, reason):
    page = read(b"before 1\n" + line + b"\nafter 2\n")
    assert page.dropped == (Dropped(2, reason),)
    assert page.values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"NaN", math.nan),
        (b"nan", math.nan),
        (b"+Inf", math.inf),
        (b"-Inf", -math.inf),
        (b"inf", math.inf),
        (b"-INFINITY", -math.inf),
        (b"+5", 5.0),
        (b"5.", 5.0),
        (b".5", 0.5),
        (b"1E3", 1000.0),
        (b"-0", -0.0),
        (b"9223372036854775794", 2.0**63),
        (b"1e-400", 0.0),
        (b"-1e-400", -0.0),
        (b"0e999999999", 0.0),
        (b"1e-999999999", 0.0),
        (b"0." + b"0" * 200_000 + b"1e200005", 10_000.0),
        (b"0" * 400 + b"1", 1.0),
    ],
)
def test_number_has_the_syntax_of_prometheus(read, text, value):
    page = read(b"up " + text)
    assert page.dropped == ()
    assert repr(float(page.values[0])) == repr(value)


def test_text_format_has_timestamps_in_milliseconds(read):
    page = read(b"a 1 1700000000123\nb 1 -1500\nc 1\nd 1 -0\ne 1 9007199254740993\n")
    assert page.at[:2].tolist() == [1700000000.123, -1.5]
    assert math.isnan(page.at[2])
    assert page.at[3:].tolist() == [0.0, 9007199254740.992]


def test_every_int64_is_a_timestamp_and_no_larger_number(read):
    least, most = -(2**63), 2**63 - 1
    page = read(f"a 1 {least - 1}\nb 1 {least}\nc 1 {most}\nd 1 {most + 1}\n".encode())
    assert [each.line for each in page.dropped] == [1, 4]
    assert page.at.tolist() == [least / 1000, most / 1000]


def test_openmetrics_has_timestamps_in_seconds(read):
    page = read(b"a 1 1700000000.123\nb 1 1700000000\nc 1\n# EOF\n")
    assert page.at[:2].tolist() == [1700000000.123, 1700000000.0]
    assert math.isnan(page.at[2])


def test_timestamp_with_a_decimal_point_is_in_seconds(read):
    assert read(b"a 1 1700000000.5\n").at.tolist() == [1700000000.5]


def test_eof_counts_only_as_the_last_line(read):
    assert read(b"# EOF\na 1 1500\n").at.tolist() == [1.5]
    assert read(b"a 1 1500\n# EOF" + b"\r\n" * 3).at.tolist() == [1500.0]


def test_infinite_timestamp_is_invalid(read):
    assert read(b"a 1 +Inf\n# EOF\n").dropped == (Dropped(1, "bad timestamp: +Inf"),)


def test_exemplar_is_not_read(read):
    page = read(b'a_bucket{le="1"} 7 # {trace_id="}x"} 0.5 1700000000.0\nb_total 1 2.5 # {} 1\nc 1 # anything\n# EOF\n')
    assert page.values.tolist() == [7.0, 1.0, 1.0]
    assert page.at[1] == 2.5
    assert page.dropped == ()


def test_created_series_are_series_like_any_other(read):
    assert read(b"a_total 1\na_created 1.7e9\n# EOF\n").layout.names == ("a_total", "a_created")


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\n  \n", b"# only a comment", b"#", b"# EOF\n"])
def test_response_may_be_empty(read, body):
    page = read(body)
    assert len(page.layout) == len(page.values) == len(page.at) == len(page.lines) == page.dropped_total == 0


def test_lines_end_with_or_without_a_carriage_return_and_the_last_one_need_not_end(read):
    page = read(b'# TYPE a gauge\r\na 1\r\n\r\nb{c="d"} 2 1000\r\nc 3')
    assert page.values.tolist() == [1.0, 2.0, 3.0]
    assert page.lines.tolist() == [2, 4, 5]
    assert page.layout.types == {"a": "gauge"}


def test_types_may_be_absent_blank_late_repeated_or_quoted(read):
    page = read(
        b"# HELP a\n# TYPE b\nb 1\n# TYPE c counter\n# TYPE c gauge\n"
        b'#TYPE d gauge\n# TYPE "e.f" summary\n# TYPE \xff gauge\n'
    )
    assert page.layout.types == {"c": "counter", "d": "gauge", "e.f": "summary"}


def test_repeated_series_with_different_values_conflict_and_keep_the_largest_in_any_label_order(read):
    page = read(b'a{x="1",y="2"} 1\na{x="1",y="2"} 2\na{ y="2", x="1" } 4\na{"x"="1",y="2",} 3\na{x="2",y="1"} 5\n')
    assert page.values.tolist() == [4.0, 5.0]
    assert page.conflicts == (0,)
    assert page.dropped == tuple(Dropped(line, "duplicate series") for line in (2, 3, 4))


def test_number_beside_a_nan_is_a_conflict_and_counts(read):
    page = read(b"a NaN\na 30\nb 1\nb 1\nc NaN\nc nan\n")
    assert page.conflicts == (0,)
    assert page.values.tolist()[:2] == [30.0, 1.0]


@pytest.mark.parametrize("new_scanner", [Scanner, PlainScanner])
def test_repeated_series_with_a_new_difference_conflicts(new_scanner):
    scanner = new_scanner()
    assert scanner.scan(b"a 3\na 3\n").conflicts == ()
    assert scanner.scan(b"a 0\na 3\n").conflicts == (0,)
    assert scanner.scan(b"a 0\na 0\n").conflicts == ()


def test_families_of_unparsable_lines_are_listed(read):
    page = read(b'a{x="1"} 30O\nb{x="\xff"} 1\n{"c.d",x="1"} e\n  e{x=1} 2\n!\nf 1\nf 1\n')
    assert page.broken == {"a", "b", "c.d", "e"}


def test_bad_line_leaves_a_valid_line_of_its_series(read):
    page = read(b"a oops\na 2\n")
    assert page.values.tolist() == [2.0]
    assert page.dropped == (Dropped(1, "bad value: oops"),)


def test_labels_beyond_the_kernels_limit_are_read(read):
    labels = ",".join(f'l{i}="{i}"' for i in range(100))
    backwards = ",".join(f'l{i}="{i}"' for i in reversed(range(100)))
    page = read(f'a{{{labels}}} 1\na{{{labels},l99="x"}} 2\na{{{backwards}}} 1\n'.encode())
    assert page.values.tolist() == [1.0]
    assert len(page.layout.labels(0)) == 100
    assert page.dropped == (Dropped(2, "duplicate label"), Dropped(3, "duplicate series"))


def test_all_bad_lines_are_counted_and_some_are_listed(read):
    page = read(b"!\n" * (MAX_DROPPED + 500) + b"a 1\n")
    assert page.dropped_total == MAX_DROPPED + 500
    assert len(page.dropped) == MAX_DROPPED
    assert page.dropped[-1] == Dropped(MAX_DROPPED, "not a sample")
    assert page.broken == {""}
    assert page.values.tolist() == [1.0]


@pytest.mark.parametrize(
    "line",
    [
        b"a " + b"1" * 200_000,
        b"a " + b"1" * 200_000 + b"x",
        b"a 0." + b"0" * 200_000 + b"1",
        b"a 1 " + b"1" * 200_000,
        b"a{" + b'x="\\' * 50_000,
        b"a{" + b"x" * 200_000,
        b" " * 200_000 + b"!",
        b"a{" + b"".join(b'l%d="",' % i for i in range(20_000)) + b"} 1",
    ],
    ids=["digits", "digits and a letter", "zeros", "timestamp", "quotes", "name", "blanks", "labels"],
)
def test_line_that_would_backtrack_is_parsed_in_linear_time(read, line):
    # Quadratic time would take minutes here.
    assert read(line + b"\nafter 2\n").values[-1] == 2.0
