"""A scanner reads only the selected metrics, and the lines of all others cost no memory."""

import gc
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.budget import Budget
from exporter.textformat import PlainScanner, Scanner, Selection, TooManySeries, parse
from exporter.textformat.parser import SHOWN_BYTES
from exporter.textformat.selection import MAX_SIGN_NAMES, MAX_STATES

SELECTION = Selection(frozenset({"up", "vllm:waiting"}), ("DCGM_FI_",), ("vllm:", "DCGM_FI_", "go_"))
LINES = 20_000


@pytest.fixture(params=[Scanner, PlainScanner])
def new_scanner(request):
    return request.param


def new_series(turn, name="other_%d"):
    """Returns a response with two selected series and `LINES` series that are new in it."""
    unselected = "".join(f"{name % (turn * LINES + i)} 1\n" for i in range(LINES))
    return f"up 1\n{unselected}vllm:waiting 3\n".encode()


@pytest.mark.parametrize(
    ("line", "is_selected"),
    [
        (b"up 1", True),
        (b"  up 1", True),
        (b'up{a="b"} 1', True),
        (b'up {a="b"} 1', True),
        (b'{"up"} 1', True),
        (b'{ "up" , a="b" } 1', True),
        (b"up", True),  # without a value: the line is read and dropped
        (b"up_total 1", False),
        (b"u 1", False),
        (b'{"up.x"} 1', False),
        (b'{"up', False),
        (b'{a="up"} 1', False),
        (b"DCGM_FI_DEV_X 1", True),
        (b'{"DCGM_FI_DEV.X"} 1', True),
        (b"DCGM_FI 1", False),
        (b"# TYPE up gauge", True),
        (b'#TYPE "up" gauge', True),
        (b"# TYPE up_total counter", False),
        (b"# TYPEup gauge", False),
        (b"# HELP up Is up.", False),
        (b"#", False),
        (b"", False),
        (b"\xff", False),
        (b"<html>", False),
    ],
)
def test_line_is_selected_by_the_name_that_it_begins_with(new_scanner, line, is_selected):
    for body in (line, line + b"\n", b"x 1\n" + line + b"\ny 1"):
        assert bool(SELECTION.lines(body).numbers.size) is is_selected
        page = new_scanner(SELECTION).scan(body)
        assert bool(len(page.layout) or page.dropped or page.layout.types) is is_selected


def test_lines_of_other_metrics_are_neither_read_nor_checked(new_scanner):
    scanner = new_scanner(SELECTION)
    for _ in range(2):
        page = scanner.scan(b"oops\nup 1\nother ERROR\nother{ 1\nother 1\nother 1\n")
        assert (page.layout.names, page.dropped_total, page.lines.tolist()) == (("up",), 0, [2])


def test_line_numbers_are_those_of_the_response(new_scanner):
    scanner = new_scanner(SELECTION)
    first = scanner.scan(b"other 1\nup 1\nvllm:waiting ERROR\n")
    later = scanner.scan(b"new 1\nother 1\nup 2\nvllm:waiting ERROR\n")
    moved = scanner.scan(b"up 2\nnew 1\nnew 1\nvllm:waiting ERROR\n")
    assert [page.lines.tolist() for page in (first, later, moved)] == [[2], [3], [1]]
    assert [page.dropped[0].line for page in (first, later, moved)] == [3, 4, 4]
    assert first.layout is later.layout is moved.layout


def test_added_or_removed_selected_series_is_noticed(new_scanner):
    scanner = new_scanner(SELECTION)
    bodies = [b"up 1\nother 2\n", b"up 1\nvllm:waiting 2\n", b"vllm:waiting 2\nother 1\n", b"other 1\nother_2 1\n"]
    names = [scanner.scan(body).layout.names for body in bodies]
    assert names == [("up",), ("up", "vllm:waiting"), ("vllm:waiting",), ()]


def test_signs_are_counted_by_distinct_names_whether_selected_or_not(new_scanner):
    body = b'vllm:waiting{a="1"} 1\nvllm:waiting{a="2"} 1\nvllm:other 1\ngo_x 1\n# TYPE go_y gauge\nDCGM_FI_A 1\n'
    assert new_scanner(SELECTION).scan(body).layout.rest.signs == {"vllm:": 2, "go_": 1, "DCGM_FI_": 1}


def test_new_sign_makes_a_new_layout(new_scanner):
    scanner = new_scanner(SELECTION)
    before, after = scanner.scan(b"up 1\n"), scanner.scan(b"up 1\ngo_x 1\n")
    assert before.layout is not after.layout
    assert after.layout.rest.signs == {"go_": 1}
    assert scanner.scan(b"up 2\ngo_x 1\n").layout is after.layout


def test_number_of_names_counted_for_a_sign_is_bounded(new_scanner):
    body = b"".join(b"go_%d 1\n" % i for i in range(MAX_SIGN_NAMES + 100)) + b"vllm:x 1\n"
    assert new_scanner(SELECTION).scan(body).layout.rest.signs == {"go_": MAX_SIGN_NAMES, "vllm:": 1}


def test_response_without_a_selected_series_shows_a_few_names(new_scanner):
    scanner = new_scanner(SELECTION)
    assert scanner.scan(b"# HELP a A.\noops\na 1\na 2\nb{} 1\nc 1\nd 1\n").layout.rest.names == ("a", "b", "c")
    assert scanner.scan(b"a 1\nup 1\n").layout.rest.names == ()
    assert scanner.scan(b"<html>\n").layout.rest.names == ()
    assert scanner.scan(b"x" * SHOWN_BYTES + b" 1\n").layout.rest.names == ()


def test_memory_does_not_grow_with_series_that_are_not_selected():
    scanner = Scanner(SELECTION)
    scanner.scan(new_series(0))  # one-time allocations
    bodies = [new_series(turn) for turn in range(1, 4)]
    gc.collect()
    tracemalloc.start()
    try:
        for body in bodies:
            scanner.scan(body)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An entry for each line would be 33 bytes in arrays alone: 660 kB a response, and 15 MB with names and labels.
    assert kept < 20_000
    assert peak < 200_000


def test_labels_of_an_earlier_layout_are_not_kept(new_scanner):
    scanner = new_scanner(SELECTION)
    for turn in range(3):
        page = scanner.scan(b'up{a="%d"} 1\nvllm:waiting 1\n' % turn)
        assert len([page.layout.labels(i) for i in range(len(page.layout))]) == 2
    assert set(page.layout._earlier) <= {b'a="2"}', b""}


def test_response_with_more_selected_lines_than_the_budget_allows_is_refused():
    scanner = Scanner(SELECTION, Budget(20))
    body = b"".join(b'up{i="%d"} 1\n' % i for i in range(11))
    with pytest.raises(TooManySeries, match="11 lines of metrics that are read"):
        scanner.scan(body)
    small = b"".join(body.splitlines(keepends=True)[:10])
    assert len(scanner.scan(small).layout) == 10
    with pytest.raises(TooManySeries):
        scanner.scan(body)
    assert len(scanner.scan(small).layout) == 10


def test_one_target_with_many_series_leaves_budget_to_the_others():
    budget = Budget(20)
    scanners = [Scanner(SELECTION, budget) for _ in range(10)]
    body = b"".join(b'up{i="%d"} 1\n' % i for i in range(10))
    scanners[0].scan(body)
    with pytest.raises(TooManySeries):
        scanners[1].scan(body)
    for scanner in scanners[2:]:
        assert len(scanner.scan(b"up 1\n").layout) == 1
    del scanner
    scanners.clear()
    assert budget.used == 0


def test_layout_depends_on_selected_series_only():
    scanner = Scanner(SELECTION)
    layouts = {id(scanner.scan(new_series(turn)).layout) for turn in range(3)}
    assert len(layouts) == 1


@pytest.mark.parametrize(
    ("names", "prefixes", "signs"),
    [
        ({"a b"}, (), ()),
        ({""}, (), ()),
        ((), ("a.",), ()),
        ((), ("a_",), ("a_b_",)),
    ],
)
def test_selection_that_one_pass_over_a_name_cannot_decide_is_refused(names, prefixes, signs):
    with pytest.raises(ValueError, match="selection"):
        Selection(frozenset(names), prefixes, signs)


def test_selection_of_more_states_than_a_table_numbers_is_refused():
    names = frozenset(map("".join, product("ab", repeat=15)))  # 2^16 - 1 texts begin one of them
    tables = Selection(names).tables
    assert np.flatnonzero(tables.flags).size == len(names)
    assert tables.step.max() == MAX_STATES == 2**16 - 1
    with pytest.raises(ValueError, match="must have at most 65535 states, got 65536"):
        _ = Selection(names | {"c"}).tables


def test_name_counts_for_the_longest_sign_that_it_begins_with():
    selection = Selection(frozenset({"a_b_c"}), signs=("a_", "a_b_"))
    body = b"a_b_c 1\na_b_d 1\na_x 1\na_ 1\na_b 1\n"
    assert dict(selection.lines(body).signs) == {"a_b_": 2, "a_": 3}
    assert dict(Scanner(selection).scan(body).layout.rest.signs) == {"a_b_": 2, "a_": 3}


NAMES = st.text("ab_", min_size=1, max_size=4)
PART = st.sampled_from(
    [b"a", b"ab", b"a_b", b"_", b" ", b"{", b'"', b"}", b"1", b"#", b"TYPE", b"\t", b"\\", b"\xff", b"=", b"\r"]
)


@settings(max_examples=300, deadline=None)
@given(
    st.frozensets(NAMES, max_size=4),
    st.lists(NAMES, max_size=2),
    st.lists(st.lists(st.lists(PART, max_size=8).map(b"".join), max_size=8).map(b"\n".join), min_size=1, max_size=3),
)
@example(frozenset(), ["_", "_a_"], [b"_a"])  # a prefix within a prefix
def test_kernel_selects_the_lines_of_the_plain_form(same_page, names, prefixes, bodies):
    selection = Selection(names, tuple(prefixes), ("b",) if not any("b".startswith(each) for each in prefixes) else ())
    numba, plain = Scanner(selection), PlainScanner(selection)
    for body in bodies:
        expected = selection.lines(body)
        actual = numba._select(body, selection)
        assert expected.body == actual.body
        assert expected.numbers.tolist() == actual.numbers.tolist()
        assert expected.signs == actual.signs
        same_page(plain.scan(body), numba.scan(body))


def test_selecting_everything_equals_no_selection(same_page):
    body = b'up{b="1"} 1\nup{b="1"} 2\nup ERROR\nup 3 4\n'
    same_page(parse(body), Scanner(SELECTION).scan(body))


def test_response_of_many_series_is_read_by_offsets_that_stay_exact():
    body = new_series(1)
    page = Scanner(SELECTION).scan(body)
    assert page.lines.tolist() == [1, LINES + 2]
    assert np.array_equal(page.values, [1.0, 3.0])


HISTOGRAMS = Selection(
    frozenset({"up"}), signs=("vllm:",), ranged=(frozenset({"t_bucket"}), frozenset({"o_bucket", "i_bucket"}))
)
RANGES = np.array([0.8, 5.0, 0.024, 0.15])


def ranged(new_scanner, ranges=RANGES):
    return new_scanner(HISTOGRAMS, ranges=lambda: ranges)


@pytest.mark.parametrize(
    ("line", "is_selected"),
    [
        (b't_bucket{le="1.0"} 1', True),
        (b't_bucket{le="0.8"} 1', True),
        (b't_bucket{le="5"} 1', True),
        (b't_bucket{le="5.0"} 1', True),
        (b't_bucket{le="0.75"} 1', False),
        (b't_bucket{le="5.01"} 1', False),
        (b't_bucket{le=".9"} 1', True),
        (b't_bucket{le="+Inf"} 1', True),
        (b't_bucket{le="1e-05"} 1', True),
        (b't_bucket{le="0.000000000000001"} 1', True),  # of 16 digits
        (b't_bucket{le="0.00000000000001"} 1', False),
        (b't_bucket{le=""} 1', True),
        (b't_bucket{le="."} 1', True),
        (b't_bucket{le="7', True),  # without an end: the line is read and dropped
        (b't_bucket{le="7"', False),
        (b"t_bucket 1", True),
        (b"t_bucket", True),
        (b't_bucket {a="b" , le="7.5" } 1', False),
        (b't_bucket{model="le=\\"1\\"",le="7.5"} 1', False),
        (b't_bucket{file="7.5",le="1"} 1', True),
        (b't_bucket{able="1",le="7.5"} 1', False),
        (b'{"t_bucket",le="7.5"} 1', False),
        (b'{"t_bucket",le="2.5"} 1', True),
        (b'o_bucket{le="0.1"} 1', True),
        (b'i_bucket{le="0.2"} 1', False),
        (b't_bucket_x{le="1.0"} 1', False),
        (b"# TYPE t_bucket gauge", True),
    ],
)
def test_bucket_is_selected_by_its_bound(new_scanner, line, is_selected):
    assert (HISTOGRAMS.lines(line, RANGES).body == line + b"\n") == is_selected
    page = ranged(new_scanner).scan(b"up 1\n" + line + b'\nup{a="b"} 2\n')
    told = [*page.layout.heads, *[drop.line for drop in page.dropped], *page.layout.types]
    assert (len(told) > 2) == is_selected


def test_without_ranges_every_bucket_is_selected_and_with_unknown_ones_none(new_scanner):
    body = b'up 1\nt_bucket{le="1.0"} 1\nt_bucket{le="9"} 2\nt_bucket{le="+Inf"} 3\no_bucket{le="0.1"} 4\n'
    assert len(new_scanner(HISTOGRAMS).scan(body).layout) == 5
    assert len(ranged(new_scanner, np.full(4, np.nan)).scan(body).layout) == 1


def test_range_that_moves_reads_the_buckets_that_it_reaches(new_scanner):
    now = RANGES
    scanner = new_scanner(HISTOGRAMS, ranges=lambda: now)
    body = b'up 1\nt_bucket{le="1.0"} 1\nt_bucket{le="9.0"} 2\nt_bucket{le="+Inf"} 3\n'
    assert scanner.scan(body).values.tolist() == [1.0, 1.0, 3.0]
    assert scanner.scan(body.replace(b"} 3", b"} 4")).values.tolist() == [1.0, 1.0, 4.0]
    now = np.array([3.0, 20.0, 0.024, 0.15])
    values = scanner.scan(body.replace(b"} 3", b"} 5")).values.tolist()
    assert values[-2:] == [2.0, 5.0]


NUMBER = st.sampled_from(
    ["0.1", "1", "1.0", "2.5", "5", "5.5", "0.80", "+Inf", "1e0", ".", "", "7", "1.2.3", "00009.0"]
)
LABEL = st.builds('{}="{}"'.format, st.sampled_from(["a", "le", "able", "le2", "l"]), NUMBER)
BUCKET_LINE = st.builds(
    "{}{{{}}} {}".format,
    st.sampled_from(["t_bucket", "o_bucket", "t_bucke", "up", "t_bucket ", "x", "t_buckets", "vllm:t_bucket"]),
    st.lists(LABEL, max_size=3).flatmap(
        lambda labels: st.sampled_from([",", ", ", " ,"]).map(lambda by: by.join(labels))
    ),
    st.integers(0, 9),
)


@given(st.lists(st.lists(BUCKET_LINE, max_size=8).map("\n".join), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_kernel_selects_the_buckets_that_the_plain_reader_selects(same_page, bodies):
    compiled, plain = ranged(Scanner), ranged(PlainScanner)
    for text in bodies:
        body = (text + "\n").encode()
        same_page(plain.scan(body), compiled.scan(body))
