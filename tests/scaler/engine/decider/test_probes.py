"""Probes that count as requests keep no workload awake; a steady client is put to sleep once at most."""

import pytest

from exporter.model import WorkloadKey
from scaler.engine.checkpoint_format import pack, unpack
from scaler.explain.document import DecisionExplainer
from scaler.explain.formats import clock
from scaler.model import Board
from scaler.policy.overrides import written

CHAT = WorkloadKey("ai", "chat")
IDLE_S = 300.0


class TestBehindEnvoy:
    """An engine without request counters (TorchServe) behind Envoy, which counts all requests."""

    @pytest.fixture
    def stage(self, scene, plan, pod, gateway):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S, about={"probe_period": 60.0}))
        stage.engine, stage.front, stage.requests = pod(), gateway(kind="envoy"), 0
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
        return stage

    @staticmethod
    def pages(stage, page, requests, refused=0, tokens=None, active=0):
        front = (
            f'envoy_cluster_upstream_rq_completed{{envoy_cluster_name="chat"}} {requests}\n'
            f'envoy_cluster_upstream_rq_active{{envoy_cluster_name="chat"}} {active}\n'
            f'envoy_cluster_upstream_rq_pending_active{{envoy_cluster_name="chat"}} 0\n'
            f'envoy_cluster_upstream_cx_none_healthy{{envoy_cluster_name="chat"}} {refused}\n'
        )
        return {stage.engine: page.vllm(waiting=0, running=0, tokens=tokens), stage.front: front}

    def request_every(self, stage, page, period, seconds, **more):
        """Rounds with one request per period; stops when the workload falls asleep."""
        begun = stage.now
        while stage.now - begun < seconds:
            stage.requests = int((stage.now + 5.0 - 1000.0) // period)
            tokens = stage.requests if more.get("generates") else None
            if not stage.round(self.pages(stage, page, stage.requests, tokens=tokens, active=more.get("active", 0)))[1]:
                break
        return stage.outcome(), stage.now - begun

    def test_load_balancer_with_a_probe_every_ten_seconds_keeps_nothing_awake(self, stage, page):
        outcome, took = self.request_every(stage, page, 10.0, 3600)
        # 30 rises to detect the period, then the keep-warm time.
        assert (outcome, took) == ((0, False, "asleep"), pytest.approx(300 + IDLE_S, abs=20))
        assert stage.decision().evidence.notes == (
            "requests as regular as a clock, one each 10 s at the rarest, count as probes and keep nothing awake",
        )

    @pytest.mark.parametrize("work", [{"generates": True}, {"active": 1}])
    def test_steady_client_with_tokens_or_requests_in_flight_is_no_probe(self, stage, page, work):
        outcome, _ = self.request_every(stage, page, 10.0, 1800, **work)
        assert outcome[:2] == (1, True)

    def test_one_request_each_7_minutes_is_no_probe(self, stage, page):
        outcome, _ = self.request_every(stage, page, 420.0, 8 * 3600)
        assert outcome[:2] == (0, False), "5 minutes after each request it may sleep: that is its keep-warm time"
        assert stage.decision().evidence.notes == ()

    def test_every_request_counts_with_a_period_of_zero(self, scene, plan, pod, gateway, page):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S))
        stage.engine, stage.front = pod(), gateway(kind="envoy")
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
        assert self.request_every(stage, page, 10.0, 1800)[0] == (1, True, "warm")

    def gone(self, stage, page):
        """Its pod takes a minute to terminate and serves the requests meanwhile; then no pod is left."""
        for _ in range(12):
            stage.requests += stage.now % 10.0 == 0.0
            assert stage.round(self.pages(stage, page, stage.requests)) == (0, False, "asleep")
        stage.decider.retire(stage.engine)
        stage.has(pods=[], wanted=0)

    def turned_away(self, stage, page):
        """The next request of the stream, 10 s later, wakes it."""
        stage.round({stage.front: self.pages(stage, page, stage.requests)[stage.front]})
        refused = self.pages(stage, page, stage.requests, refused=1)[stage.front]
        assert stage.round({stage.front: refused}) == (1, True, "queued")
        stage.has(pods=[stage.engine], wanted=1)

    def explained(self, stage):
        document = DecisionExplainer(stage.decider).explain(
            CHAT, Board(1, stage.now, stage.decisions), stage.now, None, None, None
        )()
        return [sentence for step in document["chain"] for sentence in step["sentences"]]

    def test_steady_client_that_was_put_to_sleep_wakes_it_and_counts_for_an_hour(self, stage, page):
        assert self.request_every(stage, page, 10.0, 3600)[0] == (0, False, "asleep")
        self.gone(stage, page)
        self.turned_away(stage, page)
        woken = stage.now
        assert self.request_every(stage, page, 10.0, 3590)[0] == (1, True, "warm")
        evidence = stage.decision().evidence
        assert (evidence.regular_requests_count_until, evidence.probe_period_s) == (woken + 3600.0, None)
        (note,) = evidence.notes
        assert note.startswith(f"its regular requests count until {written(woken + 3600.0)}: as probes")
        assert any(f"Regular requests count until {clock(woken + 3600.0)}" in text for text in self.explained(stage))

    def test_probes_counted_as_a_client_let_it_sleep_again_after_an_hour(self, stage, page):
        assert self.request_every(stage, page, 10.0, 3600)[0] == (0, False, "asleep")
        self.gone(stage, page)
        self.turned_away(stage, page)
        outcome, took = self.request_every(stage, page, 10.0, 8 * 3600)
        assert (outcome, took) == ((0, False, "asleep"), pytest.approx(3600 + 300 + IDLE_S, abs=20))
        assert stage.decision().evidence.regular_requests_count_until is None
        assert stage.decision().evidence.probe_period_s == pytest.approx(10.0, abs=0.5)
        assert "Regular requests, one each 10 s, are probes and do not count." in self.explained(stage)

    def test_restart_does_not_extend_the_hour_in_which_probes_count(self, stage, page, scene, plan):
        assert self.request_every(stage, page, 10.0, 3600)[0] == (0, False, "asleep")
        self.gone(stage, page)
        self.turned_away(stage, page)
        until = stage.now + 3600.0
        state = unpack(pack(stage.decider.state(stage.now)))
        after = scene(stage.decider.plans[0])
        after.now, after.engine, after.front, after.requests = stage.now, stage.engine, stage.front, stage.requests
        after.decider.restore(state, after.now)
        after.has(pods=[after.engine], gateway=after.front, wanted=1)
        assert self.request_every(after, page, 10.0, 600)[0][1] is True
        assert after.decision().evidence.regular_requests_count_until == until
        outcome, took = self.request_every(after, page, 10.0, 8 * 3600)
        assert (outcome, took) == ((0, False, "asleep"), pytest.approx(3000 + 300 + IDLE_S, abs=20))

    def test_one_request_between_probes_right_after_falling_asleep_does_not_make_them_count(
        self, scene, plan, pod, gateway, page
    ):
        """A probe arrives each minute, and the request 25 s after the last of them."""
        stage = scene(plan(gateway=True, keep_warm=IDLE_S, about={"probe_period": 60.0}))
        stage.engine, stage.front, stage.requests = pod(), gateway(kind="envoy"), 0
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
        assert self.request_every(stage, page, 60.0, 2 * 3600)[0] == (0, False, "asleep")
        stage.decider.retire(stage.engine)
        stage.has(pods=[], wanted=0)
        while (stage.now + 5.0 - 1000.0) % 60.0 != 25.0:
            stage.requests = int((stage.now + 5.0 - 1000.0) // 60.0)
            stage.round({stage.front: self.pages(stage, page, stage.requests)[stage.front]})
        refused = self.pages(stage, page, stage.requests, refused=1)[stage.front]
        assert stage.round({stage.front: refused}) == (1, True, "queued")
        stage.has(pods=[stage.engine], wanted=1)
        assert stage.decision().evidence.regular_requests_count_until is None
        # A probe each minute is detected after half an hour, by its regular pause: an hour is far too long.
        outcome, took = self.request_every(stage, page, 60.0, 3600)
        assert outcome == (0, False, "asleep")
        assert took < 3600
