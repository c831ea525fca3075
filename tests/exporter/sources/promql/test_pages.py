"""One page as it was at one moment."""

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


def test_of_each_line_the_newest_sample_counts_with_its_own_time():
    assert now(scrape(up(1, 1), line(b"a", 10.0, 20.0), line(b"b", 20.0))) == b"a 20.0 20000\nb 20.0 20000\n"


def test_page_at_a_moment_knows_nothing_of_later_nor_what_is_too_old():
    source = [scrape(up(1, 1, 0, 1), line(b"a", *TENS), line(b"b", 5.0))]
    assert page_at(source, -inf, 25.0) == b"a 20.0 20000\nb 5.0 5000\n"
    assert page_at(source, 5.0, 25.0) == b"a 20.0 20000\n"
    assert page_at(source, 5.0, 20.0) == b"a 20.0 20000\n"
    assert page_at(source, 5.0, 30.0).kind is FailureKind.REFUSED
    assert page_at(source, 40.0, 50.0) is None
    assert page_at(source, -inf, 5.0) is None


@pytest.mark.parametrize("with_up", [up(1, 1, 1, 1), None])
def test_line_that_two_later_scrapes_do_not_have_is_gone(with_up):
    others = line(b"a", *TENS)
    for last, there in ((40.0, True), (30.0, True), (20.0, False), (10.0, False)):
        page = now(scrape(with_up, others, line(b"b", *(time for time in TENS if time <= last))))
        assert (b"b" in page) == there


def test_line_with_a_time_of_its_own_is_not_gone_by_the_scrapers():
    assert b"b 12.5 12500" in now(scrape(up(1, 1, 1, 1), line(b"a", *TENS), line(b"b", 12.5)))


def test_scrape_that_failed_is_a_failure_and_not_the_page_before_it():
    failure = now(scrape(up(1, 0), line(b"a", 10.0)))
    assert failure == Failure(FailureKind.REFUSED, "`up` is 0: the server cannot scrape it (of i)")


def test_scrape_without_any_line_of_ours_is_a_failure_and_not_an_empty_page():
    assert now(scrape(up(1, 1))).kind is FailureKind.EMPTY
    assert now(scrape(up(1, 1, 1), line(b"a", 10.0))).kind is FailureKind.EMPTY


def test_target_whose_up_has_ended_is_not_there():
    assert now(scrape(up(1, 1, nan), line(b"a", 10.0, 20.0))) is None


def test_source_is_there_without_an_up_as_long_as_a_line_is():
    source = [scrape(None, line(b"a", 10.0))]
    assert page_at(source, 5.0, 15.0) == b"a 10.0 10000\n"
    assert page_at(source, 10.0, 15.0) is None


def test_what_the_page_said_was_no_number_stays_so():
    assert now(scrape(up(1, 1), line(b"a", 20.0, values=(nan,)))) == b"a nan 20000\n"


def test_page_seen_by_two_servers_is_one_page():
    mine, theirs = scrape(up(1, 1), line(b"a", 10.0, 20.0)), scrape(up(1, times=(15.0,)), line(b"a", 15.0))
    assert now(mine, theirs) == now(theirs, mine) == b"a 20.0 20000\n"
    # One of them cannot reach it, the other can.
    assert now(mine, scrape(up(0), line(b"a", 5.0))) == b"a 20.0 20000\n"
    # One of them has only a part of it.
    more = scrape(up(1, times=(15.0,)), line(b"a", 15.0), line(b"b", 15.0))
    assert now(mine, more) == b"a 15.0 15000\nb 15.0 15000\n"


def test_pod_with_two_servers_has_a_page_only_if_both_answer():
    first, second = scrape(up(1, 1), line(b"a", 20.0)), scrape(up(1, 1), line(b"b", 20.0), instance="j")
    assert now(first, second) == b"a 20.0 20000\nb 20.0 20000\n"
    assert now(first, scrape(up(1, 0), line(b"b", 10.0), instance="j")).kind is FailureKind.REFUSED
    # Its server scrapes it no more: what is left of the pod is whole.
    assert now(first, scrape(up(1, nan), line(b"b", 10.0), instance="j")) == b"a 20.0 20000\n"
