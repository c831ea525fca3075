"""Converts counters over time to a load."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.replay.traces import BadLoad
from scaler.replay.traces.history import COUNTERS, OUTPUT, PROMPT, REQUESTS, CountedSample, increases, load_of

NAN = float("nan")
BEGIN = 1_700_000_000.0


def counted(*sources, available=None, prompt=100, output=10):
    """Each source is its counter of requests at moments 15 s apart; tokens are a multiple of the requests."""
    requests = np.array(sources, dtype=float)
    counters = np.stack([requests, prompt * requests, output * requests], axis=-1)
    moments = requests.shape[1]
    is_available = np.ones(moments, dtype=bool) if available is None else np.array(available, dtype=bool)
    return CountedSample(BEGIN + 15.0 * np.arange(moments), is_available, counters)


def finished(*sources, **more):
    return increases(counted(*sources, **more))[:, REQUESTS].tolist()


STILL = [7, 7, 7, 7, 7]  # a minute of an idle pod: a pod that appears later is new


def test_increase_between_two_samples_is_their_difference():
    assert finished([10, 12, 12, 15]) == [0, 2, 0, 3]


def test_count_before_the_beginning_is_not_part_of_the_load():
    assert sum(finished([1_000_000, 1_000_001])) == 1
    # Nor is the count before a pod's first successful scrape.
    assert sum(finished([5, 6, 7], [NAN, 1_000_000, 1_000_001])) == 3


def test_falling_counter_restarted_from_zero():
    assert finished([10, 12, 3, 4]) == [0, 2, 3, 1]


def test_later_pod_began_at_zero():
    assert finished([*STILL, 7, 7], [NAN] * 5 + [4, 6]) == [0, 0, 0, 0, 0, 4, 2]


def test_workload_that_returns_from_zero_began_at_zero():
    assert finished([*STILL, NAN, NAN, NAN], [NAN] * 7 + [4]) == [0, 0, 0, 0, 0, 0, 0, 4]


def test_increase_across_failed_scrapes_is_spread_evenly():
    assert finished([10, NAN, NAN, 16, 17]) == [0, 2, 2, 2, 1]


def test_pod_that_appeared_while_the_server_was_down_counts_from_then_on():
    available = [1, 1, 1, 1, 1, 0, 0, 1]
    assert finished([*STILL, NAN, NAN, 7], [NAN] * 7 + [6], available=available) == [0, 0, 0, 0, 0, 2, 2, 2]


def test_requests_arrive_in_the_step_before_they_were_counted_with_its_mean_lengths():
    load = load_of("ai/chat", counted([10, 12, 12, 15]), seed=0).load
    assert load.name == "ai/chat"
    assert np.floor(load.at / 15.0).tolist() == [0, 0, 2, 2, 2]
    assert load.prompt.tolist() == [100] * 5
    assert load.output.tolist() == [10] * 5


def test_tokens_of_a_long_response_belong_to_the_next_finished_request():
    one = counted([0, 0, 0, 1, 2, 2])
    one.counters[0, :, PROMPT] = [0, 50, 50, 50, 57, 57]
    one.counters[0, :, OUTPUT] = [0, 5, 10, 15, 18, 20]
    load = load_of("ai/chat", one, seed=0).load
    assert load.prompt.tolist() == [50, 7]
    assert load.output.tolist() == [15, 5]  # with the tokens after the last finished request


def test_gap_is_noted_and_is_no_silence():
    available = [1, 1, 1, 1, 1, 0, 0, 0, 1]
    recorded = load_of("ai/chat", counted([*STILL, NAN, NAN, NAN, 15], available=available), seed=0)
    assert np.histogram(recorded.load.at, bins=[0, 60, 75, 90, 105, 120])[0].tolist() == [0, 2, 2, 2, 2]
    expected = "ai/chat: the server knew nothing for 45s in 1 gap, the longest from 2023-11-14 22:14:35Z"
    assert any(note.startswith(expected) for note in recorded.notes)


def test_workload_at_zero_is_silence_and_no_gap():
    recorded = load_of("ai/chat", counted([0, 2, NAN, NAN, NAN, NAN, NAN, NAN]), seed=0)
    assert recorded.load.at.max() < 15.0
    assert not any("knew nothing" in note for note in recorded.notes)


def test_load_begins_with_the_data_of_the_server():
    recorded = load_of("ai/chat", counted([NAN, NAN, 3, 4], available=[0, 0, 1, 1]), seed=0)
    assert 0.0 <= recorded.load.at[0] < 15.0
    assert "ai/chat: the server knows nothing from before 2023-11-14 22:13:50Z" in recorded.notes


def test_missing_generated_tokens_are_noted():
    notes = load_of("ai/embed", counted([0, 3], output=NAN), seed=0).notes
    assert "ai/embed: its pages count no generated tokens: each request has 1" in notes


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (counted([NAN, NAN]), "no counter of its requests is known in this time"),
        (counted([3, 3]), "no request was finished in this time"),
        (counted([3, 5], prompt=NAN, output=NAN), "its pages count 2 requests and no tokens"),
    ],
)
def test_history_without_a_load_is_reported(history, expected):
    with pytest.raises(BadLoad, match=f"ai/chat: {expected}"):
        load_of("ai/chat", history, seed=0)


COUNTER = st.lists(st.one_of(st.just(NAN), st.integers(0, 40)), min_size=9, max_size=9)


@given(st.lists(COUNTER, min_size=1, max_size=3), st.integers(0, 5))
def test_every_counted_request_and_token_is_in_the_load(sources, seed):
    history = counted(*sources, prompt=7, output=3)
    rises = increases(history)
    assert rises.shape == (9, COUNTERS)
    assert (rises >= 0.0).all()
    try:
        load = load_of("ai/chat", history, seed).load
    except BadLoad:
        assert round(rises[:, REQUESTS].sum()) == 0
        return
    assert len(load.at) == round(rises[:, REQUESTS].sum())
    assert load.prompt.sum() == round(rises[:, PROMPT].sum()) == 7 * len(load.at)
    assert (load.at <= 8 * 15.0).all()
