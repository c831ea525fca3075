"""Tests a workload with an SLO: the work that arrives sizes it, as its engines count it."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.config import Config, Endpoint, Objectives, Workload
from scaler.config.workload import Slo
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.capacity import (
    STEP_S,
    Estimate,
)
from scaler.policy.columns import Signal
from scaler.workloads import targets

SLO = (2.0, 0.06)
HOUR_S = 3600.0


class Service:
    """Engines that serve steady traffic, each its part, and the text of their targets and of the gateway.

    rate: requests per second. in_hand: running requests, over all engines; of no effect on what arrives.
    gap_s: mean time between two tokens. The default is too long to say anything of the capacity, so that it stays as
    assumed: a request of 500 and 200 tokens takes 0.143 replica-seconds.
    """

    def __init__(self, stage, page, engines, front=None, prompt=500, output=200, gap_s=0.1):
        self.stage, self._page, self.engines, self.front = stage, page, list(engines), front
        self.prompt, self.output, self.gap_s = prompt, output, gap_s
        self.served = dict.fromkeys(engines, 0.0)
        self.counted = True

    def pages(self, in_hand=0, without=()):
        """The responses now. without: counters that are missing in all of them."""
        texts = {}
        for engine in self.engines:
            served = self.served[engine]
            counters = {
                "tokens": served * self.output,
                "prompt": served * self.prompt,
                "first_tokens": served,
                "gaps": served * (self.output - 1),
                "gap_seconds": served * (self.output - 1) * self.gap_s,
            }
            known = {name: value for name, value in counters.items() if self.counted and name not in without}
            share = in_hand / len(self.engines)
            texts[engine] = self._page.vllm(waiting=0, running=share, finished=served, kv=0.001 * share, **known)
        if self.front is not None:
            texts[self.front] = self._page.epp(held=0, ready=len(self.engines))
        return texts

    def run(self, seconds, rate, in_hand=0, **pages):
        """Rounds with steady traffic. Returns every outcome that differs from the one before."""
        outcomes = []
        for _ in range(round(seconds / 5.0)):
            for engine in self.engines:
                self.served[engine] += 5.0 * rate / len(self.engines)
            outcome = self.stage.round(self.pages(in_hand, **pages))
            if not outcomes or outcomes[-1] != outcome:
                outcomes.append(outcome)
        return outcomes

    def silence(self, seconds):
        """Rounds in which no engine responds."""
        return self.stage.rounds(seconds, dict.fromkeys(self.engines))


def estimate(stage, column):
    return float(stage.decider.columns()["sizing.estimates"][0, column])


@pytest.fixture
def service(scene, plan, pod, page):
    """`service(engines=2)`: a workload with an SLO, on so many engines."""

    def make(engines=1, front=None, slo=SLO, traffic=None, **spec):
        stage = scene(plan(slo=slo, gateway=front is not None, **spec))
        pods = [pod(number) for number in range(engines)]
        stage.has(pods=pods, gateway=front, wanted=engines)
        return Service(stage, page, pods, front, **(traffic or {}))

    return make


def restarted(chat, plan, gone_s=10.0, changed=lambda state: state):
    """Kills the daemon and starts it after `gone_s`, with the state at the kill."""
    stage = chat.stage
    state = unpack(pack(changed(stage.decider.state(stage.now))))
    stage.now += gone_s
    stage.decider = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(state, stage.now)
    stage.decisions = {}
    return chat


class TestArrivingWork:
    def test_requests_in_hand_do_not_size_it(self, service):
        few, many = service(), service()
        few.run(300, rate=8.0, in_hand=10)
        many.run(300, rate=8.0, in_hand=100)  # 6.25 replicas at 16 a replica
        assert few.stage.outcome() == many.stage.outcome() == (2, True, "serving")

    def test_work_that_doubles_needs_more_replicas(self, service):
        chat = service(maximum=50)
        replicas = []
        for rate in (2.0, 8.0, 16.0, 32.0):
            chat.run(300, rate=rate)
            replicas.append(chat.stage.outcome()[0])
        # x is 0.143 replicas for each request per second. With sqrt(0.7**2 * x * 0.143 / 10 + 0.1**2 * x), 1.12 times
        # as much for starts of 120 s, the sizes are 0.39, 1.35, 2.58 and 4.98.
        assert replicas == [1, 2, 3, 5]

    def test_rise_counts_at_the_next_tick_and_a_fall_after_the_hold(self, service):
        chat = service(maximum=50)
        chat.run(600, rate=3.0)
        low = chat.stage.outcome()[0]
        chat.run(60, rate=30.0)
        assert chat.stage.outcome()[0] > 2 * low
        # A start that was never measured takes 120 s: what lasts for longer is no burst, for which replicas stay.
        chat.run(120, rate=30.0)
        high = chat.stage.outcome()[0]
        # The size is held for four starts.
        assert {replicas for replicas, *_ in chat.run(470, rate=3.0)} == {high}
        assert chat.run(300, rate=3.0)[-1][0] == low

    def test_traffic_on_eight_engines_needs_what_it_needs_on_one(self, service):
        one, eight = service(1, maximum=50), service(8, maximum=50)
        for chat in (one, eight):
            chat.run(600, rate=16.0)
            assert chat.stage.outcome()[0] == 3

    def test_requests_at_the_gateway_wake_it_and_are_arriving_work(self, service, gateway, page):
        front = gateway()
        chat = service(1, front=front, keep_warm=30.0)
        chat.stage.has(pods=[], gateway=front, wanted=0)
        chat.stage.rounds(60, {front: page.epp(held=0, ready=0)})
        assert chat.stage.outcome() == (0, False, "asleep")
        assert chat.stage.round({front: page.epp(held=1, ready=0)}) == (1, True, "queued")


class TestFallback:
    def test_engine_without_token_counters_is_sized_by_its_requests_in_hand(self, service):
        chat = service()
        chat.counted = False
        chat.run(300, rate=1.0, in_hand=40)
        assert chat.stage.outcome() == (3, True, "serving")
        assert np.isnan(estimate(chat.stage, Estimate.SIZE))

    def test_one_uncounted_engine_of_three_makes_all_fall_back(self, service, page):
        chat = service(3)
        chat.run(900, rate=1.0, in_hand=3)
        assert chat.stage.outcome()[0] == 1
        old, pages = chat.engines[-1], chat.pages(in_hand=30)
        pages[old] = page.vllm(waiting=0, running=40, finished=100)
        chat.stage.rounds(900, pages)
        assert chat.stage.outcome() == (4, True, "serving")  # 10 + 10 + 40 requests

    def test_without_fallback_the_larger_of_work_and_slo_wins(self, service):
        chat = service(falls_back=False, maximum=50)
        chat.run(900, rate=1.0, in_hand=100)
        assert chat.stage.outcome()[0] == 7, "100 requests at 16 a replica; the SLO needs 1"
        chat.run(900, rate=60.0, in_hand=16)
        assert chat.stage.outcome()[0] > 7, "the SLO needs more; 16 requests need 1"

    def test_kv_cache_counts_only_while_the_slo_is_unknown(self, service):
        chat = service(kv=0.001)  # with 5 requests in hand 0.005 of the cache is used: 5 replicas
        chat.run(HOUR_S / 2, rate=1.0, in_hand=5)
        assert chat.stage.outcome()[0] == 1
        assert np.isnan(chat.stage.decider.past(chat.stage.decision().workload).entry(-1).given.verdicts.demand[0, 1])


class TestUnknown:
    def test_stale_targets_hold_the_decision_and_never_lower_it(self, service):
        chat = service(2, maximum=50, hold=300.0)
        chat.run(600, rate=16.0)
        busy = chat.stage.outcome()[0]
        assert busy > 2
        outcomes = chat.silence(310)
        assert {replicas for replicas, *_ in outcomes} == {busy}
        assert outcomes[-1][2] == "held"
        assert chat.silence(60)[-1] == (None, True, "unknown")

    def test_stale_targets_do_not_change_the_estimates(self, service):
        chat = service()
        chat.run(600, rate=4.0)
        chat.silence(20)
        before = chat.stage.decider.columns()["sizing.estimates"].copy()
        chat.silence(600)
        np.testing.assert_array_equal(chat.stage.decider.columns()["sizing.estimates"], before)

    @pytest.mark.parametrize("missing", ["tokens", "first_tokens"])
    def test_response_without_a_counter_does_not_lower_the_decision(self, service, missing):
        chat = service(2, maximum=50)
        chat.run(600, rate=16.0, in_hand=2)
        busy = chat.stage.outcome()[0]
        assert {replicas for replicas, *_ in chat.run(15, rate=16.0, in_hand=2, without=[missing])} == {busy}
        assert {replicas for replicas, *_ in chat.run(60, rate=16.0, in_hand=2)} == {busy}

    def test_engine_that_loses_its_counters_for_good_is_sized_by_its_requests_after_the_hold(self, service):
        chat = service(2, maximum=50, hold=300.0)
        chat.run(600, rate=16.0, in_hand=40)
        busy = chat.stage.outcome()[0]
        chat.counted = False
        assert {replicas for replicas, *_ in chat.run(300, rate=16.0, in_hand=80)} == {busy}
        chat.run(60, rate=16.0, in_hand=80)
        assert chat.stage.outcome() == (5, True, "serving")

    def test_restart_of_an_engine_is_no_burst(self, service):
        chat = service(maximum=50)
        chat.run(900, rate=8.0)
        before = chat.stage.outcome()[0]
        chat.served[chat.engines[0]] = 0.0
        assert {replicas for replicas, *_ in chat.run(300, rate=8.0)} == {before}


class TestSleepAndRestart:
    def test_workload_that_slept_overnight_wakes_to_one_replica(self, service, gateway, page):
        front = gateway()
        chat = service(2, front=front, keep_warm=300.0, maximum=50)
        chat.run(900, rate=30.0, in_hand=60)
        assert chat.stage.outcome()[0] > 4
        chat.run(1500, rate=0.0)
        assert chat.stage.outcome() == (0, False, "asleep")
        for engine in chat.engines:
            chat.stage.decider.retire(engine)
        chat.stage.has(pods=[], gateway=front, wanted=0)
        chat.stage.rounds(300, {front: page.epp(held=0, ready=0)})
        chat.stage.now += 8 * HOUR_S  # a laptop that slept too
        chat.stage.round({front: page.epp(held=0, ready=0)})
        assert chat.stage.round({front: page.epp(held=1, ready=0)}) == (1, True, "queued")

    def test_restart_keeps_the_learned_capacity_and_the_size(self, service, plan):
        chat = service(2, maximum=50, traffic={"gap_s": 0.013})
        chat.run(HOUR_S, rate=2.0, in_hand=60)
        step, replicas = estimate(chat.stage, Estimate.STEP_SUM), chat.stage.outcome()[0]
        assert estimate(chat.stage, Estimate.STEP_SUM) / estimate(chat.stage, Estimate.STEP_WEIGHT) < 0.95 * STEP_S
        restarted(chat, plan(slo=SLO, maximum=50))
        assert estimate(chat.stage, Estimate.STEP_SUM) == step
        chat.stage.has(pods=chat.engines, wanted=2)
        assert {outcome[0] for outcome in chat.run(300, rate=2.0, in_hand=60)} == {replicas}

    def test_restart_after_a_night_does_not_publish_the_size_of_the_day_before(self, service, plan):
        chat = service(2, maximum=50, work=1000.0)
        chat.run(900, rate=30.0, in_hand=60)
        assert chat.stage.outcome()[0] > 4
        restarted(chat, plan(slo=SLO, maximum=50, work=1000.0), gone_s=10 * HOUR_S)
        chat.stage.has(pods=chat.engines, wanted=2)
        assert max(replicas for replicas, *_ in chat.run(60, rate=0.5, in_hand=1) if replicas) <= 2

    def test_outage_of_a_night_does_not_publish_the_size_of_the_day_before(self, service):
        chat = service(2, maximum=50, work=1000.0)
        chat.run(900, rate=30.0, in_hand=60)
        chat.silence(3 * HOUR_S)
        assert chat.stage.outcome() == (None, True, "unknown")
        for _ in range(3):
            chat.stage.now += 5.0
            for engine, text in chat.pages().items():
                chat.stage.land(engine, text)
                assert (chat.stage.outcome()[0] or 0) <= 2
            chat.stage.sweep()
            assert (chat.stage.outcome()[0] or 0) <= 2

    def test_restored_estimates_with_absurd_numbers_begin_anew(self, service, plan):
        chat = service(maximum=50)
        chat.run(300, rate=4.0)

        def absurd(state):
            state.columns["sizing.estimates"][:, Estimate.PEAKS_FROM] = -1e300
            return state

        restarted(chat, plan(slo=SLO, maximum=50), changed=absurd)
        assert np.isnan(estimate(chat.stage, Estimate.SIZE))
        chat.stage.has(pods=chat.engines, wanted=1)
        chat.run(60, rate=9.0, in_hand=1)
        assert chat.stage.outcome() == (2, True, "serving")


class TestConfiguration:
    @staticmethod
    def spec(jobs=(), **keys):
        keys = {"engine": "vllm", "pods": Endpoint(url="http://10.0.0.1:8000"), **keys}
        workload = Workload(namespace="ai", name="chat", **keys)
        (found,) = targets.Plans(Config(workloads=(workload,))).take([workload], jobs=jobs and [workload.key])
        return found.spec

    def test_engine_that_counts_tokens_has_the_default_slo(self):
        spec = self.spec()
        assert (spec.ttft, spec.itl, spec.falls_back) == (2.0, 0.06, True)
        assert dict(spec.targets)[Signal.SLO] == 1.0

    @pytest.mark.parametrize("keys", [{"engine": "llamacpp"}, {"objectives": Objectives(work=8.0)}])
    def test_other_engines_and_a_configured_work_have_no_slo_by_default(self, keys):
        spec = self.spec(**keys)
        assert (spec.ttft, spec.itl) == (None, None)
        assert Signal.SLO not in dict(spec.targets)
        assert not spec.falls_back

    def test_work_and_slo_together_are_two_objectives(self):
        spec = self.spec(objectives=Objectives(work=8.0), slo=Slo(itl=0.1))
        assert (spec.ttft, spec.itl, spec.falls_back) == (2.0, 0.1, False)
        assert {Signal.WORK: 8.0, Signal.SLO: 1.0}.items() <= dict(spec.targets).items()

    @pytest.mark.parametrize("keys", [{}, {"slo": Slo()}])
    def test_scaled_job_has_no_slo(self, keys):
        spec = self.spec(jobs=True, **keys)
        assert (spec.ttft, spec.itl) == (None, None)
        assert (Signal.SLO in dict(spec.targets), spec.falls_back) == (False, False)


def explained(stage):
    board = Board(1, stage.now, dict(stage.decisions))
    return DecisionExplainer(stage.decider).explain(stage.decision().workload, board, stage.now, None, None, None)()


def sentences(document, step):
    (found,) = [each for each in document["chain"] if each["step"] == step]
    return found["sentences"]


NOT_MEASURED = (  # the engines of these tests have no buckets
    "The SLO is not measured: an engine exposes no histogram with a bucket near its ttft of 2s and near its itl of "
    "60ms."
)


class TestExplanation:
    def test_arriving_work_is_named(self, service):
        chat = service(maximum=50)
        chat.run(900, rate=9.0, in_hand=20)
        replicas = chat.stage.outcome()[0]
        work, size = estimate(chat.stage, Estimate.WORK), estimate(chat.stage, Estimate.SIZE)
        evidence = chat.stage.decision().evidence
        rate, step = f"{1.0 / evidence.request_replica_s:.3g}", f"{1000.0 * evidence.step_s:.3g} ms"
        document = explained(chat.stage)
        assert document["summary"] == (
            f"{replicas} replicas, serving: 20 requests wait or run; work for {work:.3g} replicas arrives, "
            f"and the SLO needs {size:.3g}"
        )
        assert sentences(document, "objectives") == [
            f"slo: work for {work:.3g} replicas arrives; with headroom, rounding and the hold it needs {size:.3g}.",
            NOT_MEASURED,
            f"One replica serves {rate} requests per second: an empty decode step takes {step}, as the engine shows.",
        ]
        assert sentences(document, "winner") == [f"The only one, slo: {size:.3g}, so {replicas} replicas."]

    def test_fallback_is_explained_by_the_objectives_that_count(self, service):
        chat = service()
        chat.counted = False
        chat.run(60, rate=1.0, in_hand=40)
        assert sentences(explained(chat.stage), "objectives") == [
            "work: 40 requests / 16 per replica = 2.5.",
            f"{NOT_MEASURED} It is not used for sizing: an engine exposes no counters of requests and tokens.",
        ]
