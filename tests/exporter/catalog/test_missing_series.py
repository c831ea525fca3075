"""Missing series are restored in the next process, by the table of `exporter.catalog.completeness`."""

import json
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.catalog.completeness import GPU_FORGOTTEN_AFTER_S, UNLOADED_AFTER_S, UNLOADED_BUSY_AFTER_S
from exporter.catalog.missing_series import (
    MAX_IDENTITY_BYTES,
    MAX_STORED,
    Identity,
    read,
    read_label,
    write,
    write_label,
)
from exporter.catalog.plan import ESSENTIAL
from exporter.model import Attribution, GapReason, Gpu, PodKey, Quantity, Queue
from tests.exporter.catalog.test_completeness import Engine, gaps, line, whole

WAITING = Quantity.REQUESTS_WAITING
START = "process_start_time_seconds {}".format
GPU = (
    'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="GPU-{}",modelName="H100",namespace="ai",pod="p-{}",container="c"}} {}'.format
)


def restarted(engine, away_s=10.0, kind="vllm"):
    """Returns the engine in another process that continues with the stored series after `away_s` seconds."""
    after = Engine(kind)
    after.now = engine.now + away_s
    after.reader.restore(engine.reader.missing)
    return after


@pytest.fixture
def engine():
    """A target whose engine 1 had 30 requests; its waiting series is missing."""
    engine = Engine()
    engine.read(*whole(0), *whole(1, 30), START(100.0))
    engine.read(*whole(0), *whole(1)[1:], START(100.0))
    return engine


def test_series_that_is_missing_at_a_restart_stays_missing(engine):
    since = engine.read(*whole(0), *whole(1)[1:], START(100.0)).gaps[0].since
    for _ in range(3):
        engine = restarted(engine)
        samples = engine.read(*whole(0), *whole(1)[1:], START(100.0))
        assert gaps(samples) == [(WAITING, GapReason.MISSING, 0.0)]
        assert "vllm:num_requests_waiting" in samples.gaps[0].series
        assert samples.gaps[0].since == since, "the gap must keep its age"


def test_restored_series_survives_a_restart_before_the_first_response(engine):
    assert restarted(restarted(engine)).read(*whole(0), *whole(1)[1:]).gaps != ()


def test_complete_target_stores_nothing(engine):
    samples = engine.read(*whole(0), *whole(1, 30), START(100.0))
    assert (samples.missing, engine.reader.missing) == ((), ())


class TestRestoredSeriesIsClosed:
    def test_after_its_return(self, engine):
        after = restarted(engine)
        assert after.read(*whole(0), *whole(1, 30), START(100.0)).gaps == ()

    def test_after_a_restart_by_the_start_time(self, engine):
        after = restarted(engine)
        assert after.read(*whole(0), *whole(1)[:2], START(900.0)).gaps == ()

    @pytest.mark.parametrize(("tokens", "closed"), [(7, True), (100, False)])
    def test_after_a_decreasing_counter_without_a_start_time(self, tokens, closed):
        before = Engine()
        before.read(*whole(0, tokens=100), *whole(1, 30))
        before.read(*whole(0, tokens=100), *whole(1)[:2])
        after = restarted(before)
        assert (after.read(*whole(0, tokens=tokens), *whole(1)[:2]).gaps == ()) is closed

    @pytest.mark.parametrize(("waiting", "after_s"), [(0, UNLOADED_AFTER_S), (30, UNLOADED_BUSY_AFTER_S)])
    def test_after_its_engine_is_unloaded(self, waiting, after_s):
        before = Engine()
        before.read(*whole(0), *whole(1, waiting))
        before.read(*whole(0))
        after = restarted(before, away_s=0.0)
        assert WAITING in {gap.quantity for gap in after.read(*whole(0), after=after_s / 2).gaps}
        assert WAITING not in {gap.quantity for gap in after.read(*whole(0), after=after_s / 2).gaps}

    def test_after_its_gpu_is_missing_for_a_day(self):
        before = Engine("dcgm")
        before.read(GPU(1, 1, 0), GPU(2, 2, 0.9))
        before.read(GPU(1, 1, 0))
        after = restarted(before, kind="dcgm")
        (gap,) = after.read(GPU(1, 1, 0)).gaps
        assert gap.reason is GapReason.MISSING
        assert after.read(GPU(1, 1, 0), after=GPU_FORGOTTEN_AFTER_S).gaps == ()


def test_missing_gpu_keeps_its_pod_after_a_restart():
    before = Engine("dcgm")
    before.read(GPU(1, 1, 0), GPU(2, 2, 0.9))
    before.read(GPU(1, 1, 0))
    samples = restarted(before, kind="dcgm").read(GPU(1, 1, 0))
    gpu = samples.subjects[samples.gaps[0].row]
    assert (gpu.uuid, gpu.pods, gpu.attribution) == ("GPU-2", (PodKey("ai", "p-2"),), Attribution.EXCLUSIVE)
    assert samples.gaps[0].series.startswith("DCGM_FI_PROF_GR_ENGINE_ACTIVE{")


class TestRunningTracker:
    """A follower gets the missing series of its leader and also scrapes."""

    def test_accepts_a_gap_older_than_its_first_response(self, engine):
        follower = Engine()
        follower.now = engine.now
        (gap,) = follower.read(*whole(0), *whole(1)[1:], START(100.0)).gaps
        assert gap.series == 'vllm:num_requests_waiting{model_name="m",engine="1"}'
        follower.reader.restore(engine.reader.missing)
        (gap,) = follower.read(*whole(0), *whole(1)[1:], START(100.0)).gaps
        assert gap.series == 'vllm:num_requests_waiting{engine="1",model_name="m"}'

    def test_keeps_its_observations(self, engine):
        follower = Engine()
        follower.read(*whole(0), *whole(1), START(100.0), after=0.0)
        follower.now = engine.now
        follower.reader.restore(engine.reader.missing)
        assert follower.read(*whole(0), *whole(1), START(100.0)).gaps == ()

    def test_ignores_series_of_a_former_process(self, engine):
        follower = Engine()
        follower.now = engine.now
        follower.read(*whole(0), START(900.0))
        follower.reader.restore(engine.reader.missing)
        assert follower.read(*whole(0), START(900.0)).gaps == ()


def test_stored_series_are_bounded_and_those_with_work_come_first():
    engine = Engine()
    engine.read(*(line(number, 1 if number == 99 else 0) for number in range(100)), *whole(100))
    samples = engine.read(*whole(100))
    assert len(samples.gaps) == 100
    assert len(samples.missing) <= MAX_STORED
    assert samples.missing[0].value == 1.0


def test_series_with_endless_labels_is_not_stored():
    engine = Engine()
    engine.read(*whole(0), line(1, 3, tenant="x" * MAX_IDENTITY_BYTES))
    samples = engine.read(*whole(0))
    assert (len(samples.gaps), samples.missing) == (1, ())


TEXT = st.text(max_size=20)
GPUS = st.builds(
    Gpu,
    uuid=TEXT,
    instance=st.none() | TEXT,
    profile=st.none() | TEXT,
    model=st.none() | TEXT,
    attribution=st.sampled_from(list(Attribution)),
    pods=st.lists(st.builds(PodKey, TEXT, TEXT), max_size=3).map(tuple),
    implied=st.booleans(),
    node=st.none() | TEXT,
)
QUANTITIES = st.sampled_from(sorted(ESSENTIAL))
KEYS = st.tuples(TEXT.filter(bool), st.lists(st.tuples(TEXT, TEXT), max_size=3)).map(
    lambda drawn: (drawn[0], *(text for pair in drawn[1] for text in pair))
)


@given(KEYS, TEXT, QUANTITIES)
def test_identity_of_a_queue_survives_a_round_trip(key, name, quantity):
    identity = Identity(key, Queue(name), quantity, "")
    record = write(identity)
    assert record is None or (read(record), b"\0" in record) == (identity, False)


@given(GPUS, QUANTITIES)
def test_identity_of_a_gpu_survives_a_round_trip(gpu, quantity):
    identity = Identity((gpu.uuid, gpu.instance or "", quantity), gpu, quantity, "DCGM{}")
    record = write(identity)
    assert record is None or read(record) == identity


@given(GPUS)
def test_label_of_a_gpu_survives_a_round_trip_and_is_no_series(gpu):
    record = write_label(gpu)
    assert record is None or (read_label(record), read(record)) == (gpu, None)


FIELDS = ["quantity", "queue", "series", "uuid", "instance", "pods", "attribution", "text", "node", "implied"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["requests_waiting", "none"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
)


@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()), st.floats(), st.booleans())
def test_damaged_record_is_dropped(record, number, had_mates):
    engine = Engine()
    engine.read(*whole(0), *whole(1))
    stored = engine.read(*whole(0)).missing[0]
    after = Engine()
    numbers = {"value": number, "gone_since": number, "process_start": number, "had_mates": had_mates}
    after.reader.restore([stored._replace(identity=record), stored._replace(**numbers)])
    assert read_label(record) is None or read(record) is None
    identity = read(record)
    found = {gap.quantity for gap in after.read(*whole(0)).gaps}
    assert found <= {Quantity(json.loads(stored.identity)["quantity"]), identity and identity.quantity}


def test_start_time_in_the_far_future_does_not_hide_a_restart(engine):
    after = Engine()
    after.now = engine.now
    after.reader.restore(each._replace(process_start=1e11) for each in engine.reader.missing)
    assert after.read(*whole(0), START(900.0)).gaps != ()
    assert after.read(*whole(0), START(950.0)).gaps == ()


def test_value_that_was_never_valid_counts_as_work_in_hand(engine):
    (record,) = engine.reader.missing
    after = Engine()
    after.reader.restore([record._replace(value=nan, had_mates=True, gone_since=nan)])
    after.read(*whole(0), START(100.0))
    assert after.read(*whole(0), START(100.0), after=UNLOADED_AFTER_S).gaps != ()
