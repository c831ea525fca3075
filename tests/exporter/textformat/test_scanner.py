"""A scanner reuses the layout of the previous response."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from exporter.jit import kernel as compiled
from exporter.textformat import PlainScanner, Scanner, kernel, parse
from exporter.textformat.kernel.common import COUNT

POD = 'engine_active{{gpu="{gpu}",pod="chat-{pod}"}} {value}\n'
HELP = b"# HELP engine_active How busy.\n# TYPE engine_active gauge\n"


def dcgm(*pods, value=0.5):
    return HELP + "".join(POD.format(gpu=i, pod=pod, value=value + i) for i, pod in enumerate(pods)).encode()


@pytest.fixture(params=[Scanner, PlainScanner])
def scanner(request):
    return request.param()


def test_response_of_the_same_series_has_the_same_layout(scanner):
    first, second = scanner.scan(dcgm("a", "b")), scanner.scan(dcgm("a", "b", value=7.25))
    assert first.layout is second.layout
    assert (first.values.tolist(), second.values.tolist()) == ([0.5, 1.5], [7.25, 8.25])


def test_another_help_line_changes_line_numbers_and_not_the_layout(scanner):
    first, second = scanner.scan(dcgm("a")), scanner.scan(b"# HELP up Is up.\n" + dcgm("a"))
    assert first.layout is second.layout
    assert (first.lines.tolist(), second.lines.tolist()) == ([3], [4])


def test_another_type_is_another_layout(scanner):
    first, second = scanner.scan(dcgm("a")), scanner.scan(dcgm("a").replace(b"gauge", b"counter"))
    assert first.layout is not second.layout
    assert second.layout.types == {"engine_active": "counter"}


def test_new_pod_costs_only_the_parsing_of_its_labels(scanner):
    first = scanner.scan(dcgm("a", "b", "c"))
    labels = [first.layout.labels(i) for i in range(3)]
    second = scanner.scan(dcgm("a", "new", "c"))
    assert [second.layout.labels(i) is labels[i] for i in range(3)] == [True, False, True]
    assert second.layout.labels(1)["pod"] == "chat-new"
    assert [second.layout.labels_once(i) for i in range(3)] == [second.layout.labels(i) for i in range(3)]


def test_value_is_never_that_of_the_series_at_the_same_position(scanner):
    scanner.scan(dcgm("a", "b", "c", "d"))
    page = scanner.scan(dcgm("d", "c", "b"))
    pods = [page.layout.labels(i)["pod"] for i in range(len(page.layout))]
    assert list(zip(pods, page.values.tolist(), strict=True)) == [("chat-d", 0.5), ("chat-c", 1.5), ("chat-b", 2.5)]


def test_longer_name_is_not_its_prefix(scanner):
    scanner.scan(b"queue 1\n")
    assert scanner.scan(b"queue_size 2\n").layout.names == ("queue_size",)
    assert scanner.scan(b'queue {name="a"} 3\n').layout.labels(0) == {"name": "a"}


def test_same_timestamp_is_another_time_in_openmetrics(scanner):
    assert scanner.scan(b"a 1 5000\n").at.tolist() == [5.0]
    assert scanner.scan(b"a 1 5000\n# EOF\n").at.tolist() == [5000.0]
    assert scanner.scan(b"a 1 5e3\n").dropped_total == 1
    assert scanner.scan(b"a 1 5e3\n# EOF\n").at.tolist() == [5000.0]


def test_empty_response_of_another_format_has_no_series(scanner):
    first = scanner.scan(b"a 1\nb\n# EOF\n")
    second = scanner.scan(b"")
    assert (len(first.layout), first.dropped_total) == (1, 1)
    assert (len(second.layout), second.dropped_total) == (0, 0)


def test_invalid_value_removes_its_series_from_one_response(scanner):
    scanner.scan(b"a 1\nb 2\n")
    page = scanner.scan(b"a 1\nb ERROR\n")
    assert (page.layout.names, page.dropped_total) == (("a",), 1)
    assert scanner.scan(b"a 1\nb 3\n").values.tolist() == [1.0, 3.0]


def test_number_that_only_python_reads_is_read_in_every_response(scanner):
    long = b"0.1" + b"0" * 30 + b"1"
    for _ in range(3):
        page = scanner.scan(b"a " + long + b" 1000\nb 2\n")
        assert (page.values.tolist(), page.at[0]) == ([0.1, 2.0], 1.0)
    assert scanner.scan(b"a 1e999\nb 2\n").values.tolist() == [2.0]


def test_two_scans_do_not_share_their_values(scanner):
    first = scanner.scan(dcgm("a"))
    kept = first.values.copy()
    scanner.scan(dcgm("a", value=9.0))
    assert first.values.tolist() == kept.tolist()


def test_labels_are_parsed_on_first_use():
    layout = Scanner().scan(dcgm("a", "b") + b"up 1\n").layout
    assert layout.select({"engine_active"}) == [0, 1]
    assert layout.select({"nothing"}) == []
    assert len(layout) == 3
    assert layout.parsed == {}
    assert layout.labels(1) == {"gpu": "1", "pod": "chat-b"}
    assert len(layout.parsed) == 1


def test_series_whose_labels_are_written_alike_share_them():
    body = b"".join(b'field_%d{gpu="%d"} 1\n' % (field, gpu) for field in range(30) for gpu in range(8))
    layout = Scanner().scan(body).layout
    assert len({id(layout.labels(index)) for index in range(240)}) == len(layout.parsed) == 8


def test_equal_hashes_do_not_make_equal_series(same_page):
    # All hashes are equal, so only the comparisons decide.
    body = b'a{x="1"} 1\na{x="2"} 2\nb{y="1",x="1"} 3\nb{x="1",y="1"} 4\n'
    scanner = Scanner()
    scanner.scan(body)
    scanner._memory.lines.hash[:] = 1
    for page in (body[11:], body[22:] + body[:22], body):
        same_page(parse(page), scanner.scan(page))
        scanner._memory.lines.hash[:] = 1


def test_kernels_run_without_the_gil_in_many_threads(same_page):
    assert all(k.targetoptions["nogil"] for k in (kernel.follow, kernel.survey, kernel.measure))
    bodies = [dcgm(*map(str, range(200)), value=i) for i in range(4)]
    pages = [[] for _ in bodies]

    def scan(body, into):
        scanner = Scanner()
        into.extend(scanner.scan(body) for _ in range(20))

    threads = [threading.Thread(target=scan, args=pair) for pair in zip(bodies, pages, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for body, into in zip(bodies, pages, strict=True):
        assert len(into) == 20
        for page in into:
            same_page(parse(body), page)


def test_kernel_compiles_without_a_cache():
    # A function without a source file cannot be cached, like one on a read-only file system.
    room = {}
    exec(compile("def double(n):\n    return 2 * n", "<nowhere>", "exec"), room)
    with pytest.raises(RuntimeError, match="no locator available"):
        __import__("numba").njit(COUNT(COUNT), cache=True)(room["double"])
    assert compiled(COUNT(COUNT))(room["double"])(21) == 42


def test_plain_reader_never_imports_numba():
    program = (
        "import sys, exporter.textformat as t; p = t.parse(b'a 1'); "
        "sys.exit('numba' in sys.modules or p.values.tolist() != [1.0])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_large_response_is_read_whole():
    count = 20_000
    body = "".join(f'a{{i="{i}",path="/items/{i % 7}"}} {i}\n' for i in range(count)).encode()
    scanner = Scanner()
    for _ in range(2):
        page = scanner.scan(body)
        assert np.array_equal(page.values, np.arange(count))
        assert np.array_equal(page.lines, np.arange(count) + 1)
        assert page.dropped_total == 0
