"""Checks the table of `exporter.catalog.completeness` row by row: which quantities of a response are complete."""

import pytest

from exporter.catalog import Reader
from exporter.catalog.completeness import MAX_MISSING, UNLOADED_AFTER_S, UNLOADED_BUSY_AFTER_S
from exporter.model import GapReason, Gpu, Quantity, Queue
from exporter.textformat import PlainScanner

WAITING, RUNNING = Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING


class Engine:
    """Reads responses of one vLLM target with data-parallel engines, given as lines."""

    def __init__(self, kind="vllm"):
        self.reader, self.scanner, self.now = Reader(kind), PlainScanner(), 1000.0

    def read(self, *lines, after=5.0):
        self.now += after
        body = "".join(f"{line}\n" for line in lines)
        return self.reader.read(self.scanner.scan(body.encode("latin-1")), self.now)


def line(engine, value, family="vllm:num_requests_waiting", **more):
    labels = {"model_name": "m", "engine": engine, **more}
    return family + "{" + ",".join(f'{name}="{text}"' for name, text in labels.items()) + "} " + str(value)


def whole(engine, waiting=0, running=0, tokens=100):
    return [
        line(engine, waiting),
        line(engine, running, "vllm:num_requests_running"),
        line(engine, tokens, "vllm:generation_tokens_total"),
    ]


def gaps(samples):
    return [(gap.quantity, gap.reason, gap.at_least) for gap in samples.gaps]


@pytest.fixture
def engine():
    return Engine()


def test_response_with_every_series_once_and_valid_is_complete(engine):
    for waiting in (0, 3, 0):
        samples = engine.read(*whole(0, waiting), *whole(1))
        assert samples.gaps == ()
        assert samples.column(WAITING).tolist() == [waiting]


@pytest.mark.parametrize("value", ["NaN", "-1", "1e13", "+Inf"])
def test_series_without_a_valid_value_is_incomplete_even_in_the_first_response(engine, value):
    samples = engine.read(*whole(0, 3), line(1, value), *whole(1)[1:])
    assert gaps(samples) == [(WAITING, GapReason.INVALID, 3.0)]
    assert samples.gaps[0].series == 'vllm:num_requests_waiting{model_name="m",engine="1"}'
    assert samples.column(WAITING)[0] != samples.column(WAITING)[0]
    assert samples.column(RUNNING).tolist() == [0.0]
    assert engine.read(*whole(0, 3), *whole(1, 30)).gaps == ()


def test_engine_that_shows_only_what_runs_is_incomplete_even_in_the_first_response(engine):
    samples = engine.read(*whole(0, 3), *whole(1)[1:])
    assert gaps(samples) == [(WAITING, GapReason.MISSING, 3.0)]
    assert samples.gaps[0].series == 'vllm:num_requests_waiting{model_name="m",engine="1"}'
    assert engine.read(*whole(0, 3), *whole(1, 30)).gaps == ()
    found = Engine().read(*whole(0, 3, 4), line(1, 2))
    assert (gaps(found), found.column(WAITING)[0]) == ([(RUNNING, GapReason.MISSING, 4.0)], 5.0)


def test_family_that_is_absent_is_unknown_and_not_missing(engine):
    samples = engine.read(*whole(0)[1:], *whole(1)[1:])
    assert samples.gaps == ()
    assert WAITING not in samples.quantities


def test_series_that_is_repeated_with_another_value_is_incomplete_and_at_least_the_largest(engine):
    samples = engine.read(*whole(0, 0), line(0, 30))
    assert gaps(samples) == [(WAITING, GapReason.CONFLICTING, 30.0)]
    assert engine.read(*whole(0, 30), line(0, 30)).gaps == ()


@pytest.mark.parametrize(
    "bad", [line(1, "30O"), line("\xff", 30), 'vllm:num_requests_waiting{engine="1} 30', line(1, "")]
)
def test_unparsable_line_of_a_selected_family_makes_it_incomplete(engine, bad):
    samples = engine.read(*whole(0, 3), *whole(1)[1:], bad)
    assert gaps(samples) == [(WAITING, GapReason.UNPARSABLE, 3.0)]


def test_line_that_breaks_within_its_name_may_be_of_a_selected_family(engine):
    assert gaps(engine.read(*whole(0, 3), "vllm:num_requests_wait\x00ing 3")) == [(WAITING, GapReason.UNPARSABLE, 3.0)]


def test_unparsable_line_of_another_family_changes_nothing(engine):
    assert engine.read(*whole(0, 3), "vllm:cache_config_info{ 1", "<html>", "oops").gaps == ()


def test_missing_series_is_incomplete_while_its_process_runs(engine):
    engine.read(*whole(0), *whole(1, 30))
    for _ in range(500):
        samples = engine.read(*whole(0), *whole(1)[1:])
        assert gaps(samples) == [(WAITING, GapReason.MISSING, 0.0)]
    assert engine.read(*whole(0), *whole(1, 30)).gaps == ()


def test_missing_family_is_incomplete_and_unknown(engine):
    engine.read(*whole(0, 3))
    samples = engine.read(*whole(0)[1:])
    assert [(gap.quantity, gap.reason) for gap in samples.gaps] == [(WAITING, GapReason.MISSING)]
    assert samples.gaps[0].at_least != samples.gaps[0].at_least


def test_model_that_disappears_with_work_keeps_its_row(engine):
    engine.read(line(0, 3, model_name="a"), line(0, 4, model_name="b"), "vllm:up 1")
    samples = engine.read(line(0, 3, model_name="a"), "vllm:up 1")
    assert samples.subjects == (Queue("a"), Queue("b"))
    assert [(samples.subjects[gap.row], gap.reason) for gap in samples.gaps] == [(Queue("b"), GapReason.MISSING)]
    again = engine.read(line(0, 5, model_name="a"), "vllm:up 1")
    assert again.subjects is samples.subjects


class TestBecomesCompleteAgain:
    def test_after_a_restart_by_the_start_time(self, engine):
        start = "process_start_time_seconds {}".format
        engine.read(*whole(0), *whole(1, 30), start(100.0))
        assert engine.read(*whole(0), *whole(1)[:2], start(100.01)).gaps != ()
        assert engine.read(*whole(0), *whole(1)[:2], start(900.0)).gaps == ()

    def test_after_a_restart_by_a_decreasing_counter(self, engine):
        engine.read(*whole(0, tokens=100), *whole(1, 30))
        assert engine.read(*whole(0, tokens=100), *whole(1)[:2]).gaps != ()
        assert engine.read(*whole(0, tokens=7), *whole(1)[:2]).gaps == ()

    def test_not_after_a_decreasing_counter_with_the_same_start_time(self, engine):
        start = "process_start_time_seconds 100"
        engine.read(*whole(0, tokens=100), *whole(1, 30), start)
        assert engine.read(*whole(0, tokens=7), *whole(1, tokens=7)[1:], start).gaps != ()

    @pytest.mark.parametrize("value", ["-1", "NaN", "-Inf"])
    def test_not_after_an_invalid_counter(self, engine, value):
        engine.read(*whole(0, tokens=100), *whole(1, 30))
        assert WAITING in {gap.quantity for gap in engine.read(*whole(0, tokens=value), *whole(1)[1:]).gaps}

    @pytest.mark.parametrize("value", ["+Inf", "NaN", "-1"])
    def test_not_after_an_invalid_start_time(self, engine, value):
        engine.read(*whole(0), *whole(1, 30), "process_start_time_seconds 100")
        samples = engine.read(*whole(0), *whole(1)[1:], f"process_start_time_seconds {value}")
        assert WAITING in {gap.quantity for gap in samples.gaps}

    def test_not_after_a_shorter_queue(self, engine):
        engine.read(*whole(0, 30), *whole(1, 30))
        assert engine.read(*whole(0, 0), *whole(1)[1:]).gaps != ()

    @pytest.mark.parametrize(("waiting", "after"), [(0, UNLOADED_AFTER_S), (30, UNLOADED_BUSY_AFTER_S)])
    def test_after_an_engine_is_unloaded_with_all_its_series(self, engine, waiting, after):
        engine.read(*whole(0), *whole(1, waiting))
        engine.read(*whole(0))
        samples = engine.read(*whole(0), after=after - 1.0)
        assert (WAITING, GapReason.MISSING) in [(gap.quantity, gap.reason) for gap in samples.gaps]
        assert engine.read(*whole(0), after=1.0).gaps == ()

    def test_after_an_adapter_is_unloaded_with_all_its_series(self, engine):
        adapter = [line(0, 0, family, model_name="lora") for family in ("vllm:num_requests_waiting", "vllm:loaded")]
        engine.read(*whole(0), *adapter)
        assert engine.read(*whole(0)).gaps != ()
        assert engine.read(*whole(0), after=UNLOADED_AFTER_S).gaps == ()

    def test_after_an_empty_queue_without_other_series_is_deleted(self):
        broker = Engine("redis_exporter")
        jobs, mail = 'redis_key_size{db="0",key="jobs"} 3', 'redis_key_size{db="0",key="mail"} '
        broker.read(jobs, mail + "0", "redis_up 1")
        broker.read(jobs, "redis_up 1")
        assert broker.read(jobs, "redis_up 1", after=UNLOADED_BUSY_AFTER_S - 1.0).gaps != ()
        assert broker.read(jobs, "redis_up 1", after=1.0).gaps == ()

    def test_not_after_a_nonempty_queue_without_other_series_is_deleted(self):
        broker = Engine("redis_exporter")
        broker.read('redis_key_size{db="0",key="jobs"} 3', "redis_up 1")
        broker.read("redis_up 1", 'redis_key_size{db="0",key="mail"} 0')
        assert broker.read("redis_up 1", 'redis_key_size{db="0",key="mail"} 0', after=36_000.0).gaps != ()

    def test_not_while_a_line_of_the_response_is_dropped(self, engine):
        engine.read(*whole(0), *whole(1))
        engine.read(*whole(0))
        assert engine.read(*whole(0), "oops", after=10 * UNLOADED_AFTER_S).gaps != ()

    def test_not_while_another_series_of_the_engine_exists(self, engine):
        engine.read(*whole(0), *whole(1))
        for _ in range(3):
            samples = engine.read(*whole(0), whole(1)[2], after=UNLOADED_BUSY_AFTER_S)
            assert {gap.quantity for gap in samples.gaps} == {WAITING, RUNNING}


class TestGpus:
    @staticmethod
    def gpu(uuid, active=0.9, pod="chat-0", field="DCGM_FI_PROF_GR_ENGINE_ACTIVE"):
        return f'{field}{{UUID="{uuid}",namespace="ai",pod="{pod}"}} {active}'

    def test_missing_gpu_keeps_a_row_with_the_time_of_its_last_reading(self):
        node = Engine("dcgm")
        node.read(self.gpu("a"), self.gpu("b"))
        read_at = node.now
        for _ in range(100):
            samples = node.read(self.gpu("a"), "process_start_time_seconds 9")
        assert [subject.uuid for subject in samples.subjects] == ["a", "b"]
        assert samples.at.tolist() == [node.now, read_at]
        assert [(gap.row, gap.reason) for gap in samples.gaps] == [(1, GapReason.MISSING)]
        assert node.read(self.gpu("a"), self.gpu("b")).gaps == ()

    def test_gpu_of_another_pod_is_the_same_gpu(self):
        node = Engine("dcgm")
        node.read(self.gpu("a"))
        samples = node.read(self.gpu("a", pod="other-0"))
        assert samples.gaps == ()
        assert [subject.pods[0].pod for subject in samples.subjects if isinstance(subject, Gpu)] == ["other-0"]

    def test_field_marked_as_unsupported_is_no_gap(self):
        node = Engine("dcgm")
        for _ in range(2):
            assert node.read(self.gpu("a", active="9223372036854775794")).gaps == ()

    def test_impossible_value_is_a_gap(self):
        node = Engine("dcgm")
        assert [gap.reason for gap in node.read(self.gpu("a", active=7)).gaps] == [GapReason.INVALID]

    def test_bad_line_of_an_unknown_gpu_makes_the_whole_response_incomplete(self):
        node = Engine("dcgm")
        samples = node.read(self.gpu("a"), self.gpu("b", active="0.9x"))
        assert [(gap.row, gap.reason) for gap in samples.gaps] == [(0, GapReason.UNPARSABLE)]


def test_memory_of_missing_series_is_bounded(engine):
    for generation in range(3):
        samples = engine.read(*(line(f"{generation}-{n}", 1) for n in range(MAX_MISSING)))
    assert len(samples.gaps) <= MAX_MISSING


def test_gap_names_its_series_without_control_characters(engine):
    engine.read(line(0, 1), line("\\n\x1b[2J" + "x" * 500, 3))
    (gap,) = engine.read(line(0, 1)).gaps
    assert gap.series.isprintable()
    assert len(gap.series) <= 160
