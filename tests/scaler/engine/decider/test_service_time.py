"""Tests engines without counters of tokens: the time of a request sizes the workload, from response to decision."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from exporter.catalog import KINDS
from scaler.config import Config, Endpoint, Objectives, Workload
from scaler.config.workload import Slo
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.capacity import Estimate
from scaler.policy.columns import Signal
from scaler.workloads import targets


def tgi(served, running, waiting):
    """TGI: docs/source/reference/metrics.md."""
    return f"tgi_request_success {served}\ntgi_batch_current_size {running}\ntgi_queue_size {waiting}\n"


def tensorrt(served, running, waiting):
    """Triton with TensorRT-LLM: triton_backend/inflight_batcher_llm."""
    return f"""
nv_inference_request_success{{model="m",version="1"}} {served}
nv_inference_pending_request_count{{model="m",version="1"}} 0
nv_trt_llm_request_metrics{{model="m",request_type="waiting",version="1"}} {waiting}
nv_trt_llm_request_metrics{{model="m",request_type="scheduled",version="1"}} {running}
"""


def trtllm(served, running, waiting):
    """trtllm-serve 1.3: tensorrt_llm/metrics/collector.py."""
    labels = '{engine_type="trtllm",model_name="m"}'
    return f"""
trtllm_num_requests_running{labels} {running}
trtllm_num_requests_waiting{labels} {waiting}
trtllm_request_success_total{labels} {served}
trtllm_prompt_tokens_total{labels} {500 * served}
trtllm_generation_tokens_total{labels} {200 * served}
"""


TIMED = {"tgi": tgi, "triton": tensorrt, "trtllm": trtllm}


def spec_of(kind, jobs=False, **keys):
    workload = Workload(namespace="ai", name="chat", engine=kind, pods=Endpoint(url="http://10.0.0.1:8000"), **keys)
    (found,) = targets.Plans(Config(workloads=(workload,))).take([workload], jobs=[workload.key] if jobs else ())
    return found


class Service:
    """One engine of `chat`, which serves steady traffic."""

    def __init__(self, stage, pod, text):
        self.stage, self.pod, self.text, self.served = stage, pod, text, 0.0
        stage.has(pods=[pod], wanted=1)

    def run(self, seconds, rate, in_hand, waiting=0):
        for _ in range(round(seconds / 5.0)):
            self.served += 5.0 * rate
            self.stage.round({self.pod: self.text(self.served, in_hand - waiting, waiting).lstrip("\n")})
        return self

    @property
    def evidence(self):
        return self.stage.decision().evidence

    def estimate(self, column):
        return float(self.stage.decider.columns()["sizing.estimates"][0, column])

    def explained(self):
        board = Board(1, self.stage.now, dict(self.stage.decisions))
        explain = DecisionExplainer(self.stage.decider).explain
        document = explain(self.stage.decision().workload, board, self.stage.now, None, None, None)()
        (step,) = [step for step in document["chain"] if step["step"] == "objectives"]
        return document["summary"], step["sentences"]


@pytest.fixture
def service(scene, pod):
    """`service("tgi")`: an engine of this kind in the workload `ai/chat`, as the configuration plans it."""

    def make(kind, text=None, **keys):
        return Service(scene(spec_of(kind, **keys)), pod(kind=kind), text or TIMED[kind])

    return make


@pytest.mark.parametrize("kind", TIMED)
def test_engine_without_counters_of_tokens_is_sized_by_the_time_of_its_requests(service, kind):
    """10 in hand at 2 per second take 5 s: with 0.25 more for each further one a request takes 0.51 replica-seconds."""
    chat = service(kind).run(900, rate=2.0, in_hand=10)
    (objective,) = chat.evidence.objectives
    evidence = chat.evidence
    assert objective.name == "slo"
    assert evidence.request_s == pytest.approx(5.0, rel=0.01)
    assert evidence.replica_requests == pytest.approx(10.0)
    assert evidence.replica_full == pytest.approx(10.0, rel=0.01)
    assert evidence.request_replica_s == pytest.approx(0.5, rel=0.01)
    assert objective.value == pytest.approx(1.0, rel=0.01)
    assert chat.stage.outcome() == (ceil(chat.estimate(Estimate.SIZE)), True, "serving")


def test_requests_in_hand_count_until_a_request_has_come_and_gone(service):
    chat = service("tgi")
    chat.run(60, rate=0.0, in_hand=40)
    assert [each.name for each in chat.evidence.objectives if each.replicas] == ["work"]
    assert chat.evidence.request_s is None
    chat.run(60, rate=1.0, in_hand=40)
    assert [each.name for each in chat.evidence.objectives] == ["slo"]


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("tei", "te_queue_size 4\nte_request_success {served}\n"),
        ("llamacpp", "llamacpp:requests_processing 4\nllamacpp:requests_deferred 0\n"),
    ],
)
def test_engine_without_requests_in_hand_or_a_counter_is_sized_by_requests_in_hand(service, kind, lines):
    chat = service(kind, lambda served, _running, _waiting: lines.format(served=served)).run(600, rate=2.0, in_hand=4)
    assert [each.name for each in chat.evidence.objectives if each.replicas] == ["work"]
    assert chat.evidence.request_s is None


def test_engine_that_should_count_tokens_and_does_not_is_sized_by_the_time_of_its_requests(service, page):
    def vllm(served, running, waiting):
        return page.vllm(waiting=waiting, running=running, finished=served)

    chat = service("vllm", vllm).run(900, rate=2.0, in_hand=10)
    assert chat.evidence.request_s == pytest.approx(5.0, rel=0.01)
    assert [each.name for each in chat.evidence.objectives] == ["slo"]
    assert chat.evidence.slo.endswith("It is not used for sizing: an engine exposes no counters of requests and tokens")


def test_tokens_size_a_workload_once_its_engine_counts_them(service, page):
    counted = False

    def vllm(served, running, waiting):
        tokens = {"tokens": 200 * served, "prompt": 500 * served, "first_tokens": served}
        return page.vllm(waiting=waiting, running=running, finished=served, **(tokens if counted else {}))

    chat = service("vllm", vllm).run(300, rate=2.0, in_hand=10)
    counted = True
    chat.run(300, rate=2.0, in_hand=10)
    assert chat.evidence.request_s is None
    assert chat.evidence.step_s is not None


def test_silence_is_held_and_never_a_lower_size(service):
    chat = service("tgi").run(900, rate=2.0, in_hand=30)
    replicas, size = chat.stage.outcome()[0], chat.estimate(Estimate.SIZE)
    chat.stage.rounds(120, {chat.pod: None})
    assert chat.stage.outcome()[0] == replicas
    assert chat.estimate(Estimate.SIZE) == size


def test_configured_work_wins(service):
    chat = service("tgi", objectives=Objectives(work=8.0)).run(600, rate=2.0, in_hand=20)
    assert [each.name for each in chat.evidence.objectives if each.replicas] == ["work"]
    assert chat.evidence.request_s is None


def test_times_survive_a_restart(service):
    chat = service("tgi").run(900, rate=2.0, in_hand=30)
    before = chat.evidence.request_s, chat.estimate(Estimate.SIZE)
    plan, state = chat.stage.decider.plans[0], unpack(pack(chat.stage.decider.state(chat.stage.now)))
    chat.stage.now += 10.0
    chat.stage.decider = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    chat.stage.decider.restore(state, chat.stage.now)
    chat.stage.decisions = {}
    chat.stage.has(pods=[chat.pod], wanted=1)
    chat.run(5, rate=2.0, in_hand=30)
    assert (chat.evidence.request_s, chat.estimate(Estimate.SIZE)) == before


def test_checkpoint_of_a_version_without_times_is_read(service):
    chat = service("tgi").run(900, rate=2.0, in_hand=30)
    state = unpack(pack(chat.stage.decider.state(chat.stage.now)))
    del state.columns["sizing.residence"]
    decider = Decider([chat.stage.decider.plans[0]], interval_s=5.0, fresh_intervals=3.0)
    decider.restore(state, chat.stage.now + 10.0)
    assert not decider.columns()["sizing.residence"].any()
    assert decider.columns()["sizing.estimates"][0, Estimate.SIZE] == chat.estimate(Estimate.SIZE)


def test_impossible_times_of_a_checkpoint_are_forgotten(service):
    chat = service("tgi").run(300, rate=2.0, in_hand=30)
    state = unpack(pack(chat.stage.decider.state(chat.stage.now)))
    state.columns["sizing.residence"][:] = -1e300
    decider = Decider([chat.stage.decider.plans[0]], interval_s=5.0, fresh_intervals=3.0)
    decider.restore(state, chat.stage.now + 10.0)
    assert not decider.columns()["sizing.residence"].any()


@pytest.mark.parametrize("kind", sorted(TIMED))
def test_engine_that_counts_finished_requests_is_sized_by_their_time_by_default(kind):
    spec = spec_of(kind).spec
    assert (spec.by_time, spec.falls_back, spec.itl) == (True, True, None)
    assert dict(spec.targets)[Signal.SLO] == 1.0
    assert dict(spec.targets)[Signal.WORK] == KINDS[kind].work


@pytest.mark.parametrize(
    ("kind", "keys"),
    [("tei", {}), ("llamacpp", {}), ("tgi", {"objectives": Objectives(work=8.0)}), ("tgi", {"jobs": True})],
)
def test_other_engines_a_configured_work_and_jobs_are_not_sized_by_the_time_of_a_request(kind, keys):
    spec = spec_of(kind, **keys).spec
    assert (spec.by_time, spec.falls_back, Signal.SLO in dict(spec.targets)) == (False, False, False)


def test_explanation_says_how_the_size_follows(service):
    chat = service("tgi").run(900, rate=2.0, in_hand=10)
    summary, sentences = chat.explained()
    size = chat.estimate(Estimate.SIZE)
    assert summary.endswith(f"and it needs {size:.3g}")
    assert sentences[-2] == (
        "No tokens are counted. 10 requests in hand per replica at 2 requests per second, the means of the last ones: "
        "a request takes 5 s (Little's law)."
    )
    assert sentences[-1] == (
        "Each further one adds 25 % of the time of one alone, so a replica is full at 10 requests, and serves 2 per "
        "second."
    )


def test_measured_slo_bounds_the_wait_of_an_engine_that_the_time_of_a_request_sizes(service):
    """200 requests that wait are 100 replica-seconds: more than half of 2 s on one replica, less than half of 600 s."""
    sizes = []
    for ttft in (2.0, 600.0):
        chat = service("trtllm", slo=Slo(ttft=ttft)).run(900, rate=2.0, in_hand=10)
        chat.run(30, rate=2.0, in_hand=210, waiting=200)
        sizes.append(chat.estimate(Estimate.SIZE))
    assert np.isfinite(sizes).all()
    assert sizes[0] > sizes[1]
