"""Repeated Events form a series, and token buckets keep a fleet-wide outage from filling the API server."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.api.events import FLEET, MOST, NEW, SERIES_S, WORKLOAD, Again, EventBudget
from scaler.explain.event_text import EventReason

CHAT = WorkloadKey("ai", "chat")


def workload(number):
    return WorkloadKey("ai", f"w{number}")


def test_same_event_within_six_minutes_extends_a_series_with_a_count():
    budget = EventBudget()
    assert budget.take(CHAT, EventReason.HELD, 0.0) == NEW
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    assert budget.take(CHAT, EventReason.HELD, 60.0) == Again("chat.1", 2)
    assert budget.take(CHAT, EventReason.HELD, 60.0 + SERIES_S) == Again("chat.1", 3)
    assert budget.take(CHAT, EventReason.HELD, 60.1 + 2 * SERIES_S) == NEW


def test_other_reasons_and_other_workloads_have_separate_series():
    budget = EventBudget()
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    assert budget.take(CHAT, EventReason.CAPPED, 1.0) == NEW
    assert budget.take(workload(0), EventReason.HELD, 1.0) == NEW


def test_event_after_a_deleted_one_is_new():
    budget = EventBudget()
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    budget.gone(CHAT, EventReason.HELD)
    assert budget.take(CHAT, EventReason.HELD, 1.0) == NEW


def test_flapping_workload_has_25_events_then_one_per_five_minutes_and_an_exact_count():
    budget = EventBudget()
    assert budget.take(CHAT, EventReason.HELD, 0.0) == NEW
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    results = [budget.take(CHAT, EventReason.HELD, float(second)) for second in range(1, 302)]
    # 24 of the 25 tokens are left, and one returns after 300 s: its event counts all 301 occurrences.
    assert [index for index, each in enumerate(results) if each is not None] == [*range(24), 299]
    assert results[299] == Again("chat.1", 301)


def test_outage_of_ten_thousand_workloads_writes_fifty_events_and_then_five_per_second():
    budget = EventBudget()
    at_once = [budget.take(workload(number), EventReason.HELD, 100.0) for number in range(10_000)]
    assert at_once == [NEW] * int(FLEET.burst) + [None] * (10_000 - int(FLEET.burst))
    later = [budget.take(workload(number), EventReason.HELD, 101.0) for number in range(10_000)]
    assert sum(each is not None for each in later) == 5


def test_refusal_by_the_fleets_bucket_takes_no_token_of_the_workload():
    budget = EventBudget()
    for number in range(50):
        budget.take(workload(number), EventReason.HELD, 0.0)
    assert [budget.take(CHAT, EventReason.HELD, 0.0) for _ in range(100)] == [None] * 100
    assert budget.take(CHAT, EventReason.HELD, 10.0) == NEW
    assert budget._workloads[CHAT].left == WORKLOAD.burst - 1


def test_number_of_stored_series_is_bounded_and_the_oldest_is_dropped_first():
    budget = EventBudget()
    for number in range(MOST + 1):
        budget.written(workload(number), EventReason.HELD, f"e{number}", 0.0)
    assert budget.take(workload(1), EventReason.HELD, 100.0) == Again("e1", 2)
    assert budget.take(workload(0), EventReason.HELD, 100.0) == NEW


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 30.0)), max_size=400))
def test_no_interval_has_more_events_than_the_buckets_allow(attempts):
    budget, now, results = EventBudget(), 0.0, []
    for number, pause in attempts:
        now += pause
        if budget.take(workload(number), EventReason.HELD, now) is not None:
            results.append((now, number))
    for index, (since, _) in enumerate(results):
        for until, _ in results[index:]:
            within = [number for at, number in results if since <= at <= until]
            assert len(within) <= FLEET.burst + (until - since) * FLEET.per_s + 1e-6
            most = max(within.count(number) for number in range(4))
            assert most <= WORKLOAD.burst + (until - since) * WORKLOAD.per_s + 1e-6
