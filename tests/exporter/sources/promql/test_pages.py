"""A page is rebuilt from series as it was at one moment."""

from math import inf, nan

import pytest

from exporter.model import Failure, FailureKind
from exporter.sources.promql.decode import PromqlSeries
from exporter.sources.promql.pages import PageLine, ScrapedTarget, page_at

TENS = (10.0, 20.0, 30.0, 40.0)


def up(*values, times=TENS):
    return PromqlSeries("up", {}, times[: len(values)], tuple(float(value) for value in values))


def line(head, *times, values=None):
    return PageLine(head, times, values or tuple(times))


def scrape(up, *lines, instance="i"):
    return ScrapedTarget(f"of {instance}", instance, up, lines)


def now(*scrapes):
    return page_at(scrapes, -inf, inf)


def test_newest_sample_of_each_line_counts_with_its_time():
    assert now(scrape(up(1, 1), line(b"a", 10.0, 20.0), line(b"b", 20.0))) == b"a 20.0 20000\nb 20.0 20000\n"


def test_page_at_a_moment_has_no_later_and_no_too_old_samples():
    source = [scrape(up(1, 1, 0, 1), line(b"a", *TENS), line(b"b", 5.0))]
    assert page_at(source, -inf, 25.0) == b"a 20.0 20000\nb 5.0 5000\n"
    assert page_at(source, 5.0, 25.0) == b"a 20.0 20000\n"
    assert page_at(source, 5.0, 20.0) == b"a 20.0 20000\n"
    assert page_at(source, 5.0, 30.0).kind is FailureKind.REFUSED
    assert page_at(source, 40.0, 50.0) is None
    assert page_at(source, -inf, 5.0) is None


@pytest.mark.parametrize("with_up", [up(1, 1, 1, 1), None])
def test_line_missing_in_two_later_scrapes_is_removed(with_up):
    other_line = line(b"a", *TENS)
    for last, there in ((40.0, True), (30.0, True), (20.0, False), (10.0, False)):
        page = now(scrape(with_up, other_line, line(b"b", *(time for time in TENS if time <= last))))
        assert (b"b" in page) == there


def test_line_with_an_explicit_timestamp_is_not_removed():
    assert b"b 12.5 12500" in now(scrape(up(1, 1, 1, 1), line(b"a", *TENS), line(b"b", 12.5)))


def test_failed_scrape_is_a_failure_and_not_the_previous_page():
    failure = now(scrape(up(1, 0), line(b"a", 10.0)))
    assert failure == Failure(FailureKind.REFUSED, "`up` is 0: the server cannot scrape it (of i)")


def test_scrape_without_any_of_our_lines_is_a_failure_and_not_an_empty_page():
    assert now(scrape(up(1, 1))).kind is FailureKind.EMPTY
    assert now(scrape(up(1, 1, 1), line(b"a", 10.0))).kind is FailureKind.EMPTY


def test_target_with_a_stale_up_is_absent():
    assert now(scrape(up(1, 1, nan), line(b"a", 10.0, 20.0))) is None


def test_target_without_up_exists_while_a_line_is_fresh():
    source = [scrape(None, line(b"a", 10.0))]
    assert page_at(source, 5.0, 15.0) == b"a 10.0 10000\n"
    assert page_at(source, 10.0, 15.0) is None


def test_nan_of_a_page_stays_nan():
    assert now(scrape(up(1, 1), line(b"a", 20.0, values=(nan,)))) == b"a nan 20000\n"


def test_page_of_two_prometheus_servers_is_one_page():
    mine, theirs = scrape(up(1, 1), line(b"a", 10.0, 20.0)), scrape(up(1, times=(15.0,)), line(b"a", 15.0))
    assert now(mine, theirs) == now(theirs, mine) == b"a 20.0 20000\n"
    # One server cannot scrape the target, the other can.
    assert now(mine, scrape(up(0), line(b"a", 5.0))) == b"a 20.0 20000\n"
    # One server has only a part of the page.
    more = scrape(up(1, times=(15.0,)), line(b"a", 15.0), line(b"b", 15.0))
    assert now(mine, more) == b"a 15.0 15000\nb 15.0 15000\n"


def test_pod_with_two_servers_has_a_page_only_if_both_respond():
    first, second = scrape(up(1, 1), line(b"a", 20.0)), scrape(up(1, 1), line(b"b", 20.0), instance="j")
    assert now(first, second) == b"a 20.0 20000\nb 20.0 20000\n"
    assert now(first, scrape(up(1, 0), line(b"b", 10.0), instance="j")).kind is FailureKind.REFUSED
    # The second target was removed, so the rest of the pod is complete.
    assert now(first, scrape(up(1, nan), line(b"b", 10.0), instance="j")) == b"a 20.0 20000\n"
