"""Series and buckets: an outage of everybody does not fill the API server."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.api.events import FLEET, MOST, NEW, SERIES_S, WORKLOAD, Again, EventBudget
from scaler.explain.event_text import EventReason

CHAT = WorkloadKey("ai", "chat")


def workload(number):
    return WorkloadKey("ai", f"w{number}")


def test_the_same_within_six_minutes_is_one_series_that_counts():
    budget = EventBudget()
    assert budget.take(CHAT, EventReason.HELD, 0.0) == NEW
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    assert budget.take(CHAT, EventReason.HELD, 60.0) == Again("chat.1", 2)
    assert budget.take(CHAT, EventReason.HELD, 60.0 + SERIES_S) == Again("chat.1", 3)
    assert budget.take(CHAT, EventReason.HELD, 60.1 + 2 * SERIES_S) == NEW


def test_other_news_and_other_workloads_are_other_series():
    budget = EventBudget()
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    assert budget.take(CHAT, EventReason.CAPPED, 1.0) == NEW
    assert budget.take(workload(0), EventReason.HELD, 1.0) == NEW


def test_of_an_event_that_is_gone_the_next_is_new():
    budget = EventBudget()
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    budget.gone(CHAT, EventReason.HELD)
    assert budget.take(CHAT, EventReason.HELD, 1.0) == NEW


def test_one_that_flaps_has_25_and_then_one_in_five_minutes_and_nothing_is_lost_from_the_count():
    budget = EventBudget()
    assert budget.take(CHAT, EventReason.HELD, 0.0) == NEW
    budget.written(CHAT, EventReason.HELD, "chat.1", 0.0)
    taken = [budget.take(CHAT, EventReason.HELD, float(second)) for second in range(1, 302)]
    # 24 are left of the 25, and after 300 s one is there again: it counts all 301 before it, and itself.
    assert [place for place, each in enumerate(taken) if each is not None] == [*range(24), 299]
    assert taken[299] == Again("chat.1", 301)


def test_an_outage_of_ten_thousand_is_fifty_events_and_five_a_second():
    budget = EventBudget()
    at_once = [budget.take(workload(number), EventReason.HELD, 100.0) for number in range(10_000)]
    assert at_once == [NEW] * int(FLEET.burst) + [None] * (10_000 - int(FLEET.burst))
    later = [budget.take(workload(number), EventReason.HELD, 101.0) for number in range(10_000)]
    assert sum(each is not None for each in later) == 5


def test_who_is_refused_by_the_fleets_bucket_keeps_its_own():
    budget = EventBudget()
    for number in range(50):
        budget.take(workload(number), EventReason.HELD, 0.0)
    assert [budget.take(CHAT, EventReason.HELD, 0.0) for _ in range(100)] == [None] * 100
    assert budget.take(CHAT, EventReason.HELD, 10.0) == NEW
    assert budget._workloads[CHAT].left == WORKLOAD.burst - 1


def test_what_is_remembered_is_bounded_and_the_oldest_is_forgotten_first():
    budget = EventBudget()
    for number in range(MOST + 1):
        budget.written(workload(number), EventReason.HELD, f"e{number}", 0.0)
    assert budget.take(workload(1), EventReason.HELD, 100.0) == Again("e1", 2)
    assert budget.take(workload(0), EventReason.HELD, 100.0) == NEW


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 30.0)), max_size=400))
def test_in_no_stretch_of_time_are_there_more_than_the_buckets_allow(happened):
    budget, now, taken = EventBudget(), 0.0, []
    for number, pause in happened:
        now += pause
        if budget.take(workload(number), EventReason.HELD, now) is not None:
            taken.append((now, number))
    for place, (since, _) in enumerate(taken):
        for until, _ in taken[place:]:
            within = [number for at, number in taken if since <= at <= until]
            assert len(within) <= FLEET.burst + (until - since) * FLEET.per_s + 1e-6
            most = max(within.count(number) for number in range(4))
            assert most <= WORKLOAD.burst + (until - since) * WORKLOAD.per_s + 1e-6
