"""Probes that count as requests keep nothing awake; a steady client is put to sleep once at most. From real pages."""

import pytest

IDLE_S = 300.0


class TestBehindEnvoy:
    """An engine without counters of its own (TorchServe) behind Envoy, which counts whatever passes."""

    @pytest.fixture
    def stage(self, scene, plan, pod, gateway):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S, about={"probe_period": 60.0}))
        stage.engine, stage.front, stage.asked = pod(), gateway(kind="envoy"), 0
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
        return stage

    @staticmethod
    def pages(stage, page, asked, refused=0, tokens=None, active=0):
        front = (
            f'envoy_cluster_upstream_rq_completed{{envoy_cluster_name="chat"}} {asked}\n'
            f'envoy_cluster_upstream_rq_active{{envoy_cluster_name="chat"}} {active}\n'
            f'envoy_cluster_upstream_rq_pending_active{{envoy_cluster_name="chat"}} 0\n'
            f'envoy_cluster_upstream_cx_none_healthy{{envoy_cluster_name="chat"}} {refused}\n'
        )
        return {stage.engine: page.vllm(waiting=0, running=0, tokens=tokens), stage.front: front}

    def asked_every(self, stage, page, period, seconds, **more):
        """Rounds while somebody asks every so often; stops where the workload falls asleep."""
        begun = stage.now
        while stage.now - begun < seconds:
            stage.asked = int((stage.now + 5.0 - 1000.0) // period)
            tokens = stage.asked if more.get("generates") else None
            if not stage.round(self.pages(stage, page, stage.asked, tokens=tokens, active=more.get("active", 0)))[1]:
                break
        return stage.answer(), stage.now - begun

    def test_a_load_balancer_that_asks_every_ten_seconds_keeps_nothing_awake(self, stage, page):
        answer, took = self.asked_every(stage, page, 10.0, 3600)
        # 30 rises to know it by, then the keep-warm time.
        assert (answer, took) == ((0, False, "asleep"), pytest.approx(300 + IDLE_S, abs=20))
        assert stage.decision().evidence.notes == (
            "requests as regular as a clock, one each 10 s at the rarest, are taken for probes and keep nothing awake",
        )

    @pytest.mark.parametrize("work", [{"generates": True}, {"active": 1}])
    def test_a_steady_client_that_makes_tokens_or_is_seen_in_flight_is_none(self, stage, page, work):
        answer, _ = self.asked_every(stage, page, 10.0, 3600, **work)
        assert answer[:2] == (1, True)

    def test_one_request_each_7_minutes_is_none(self, stage, page):
        answer, _ = self.asked_every(stage, page, 420.0, 8 * 3600)
        assert answer[:2] == (0, False), "5 minutes after each it may sleep, as its keep-warm time says"
        assert stage.decision().evidence.notes == ()

    def test_with_a_period_of_0_every_request_counts(self, scene, plan, pod, gateway, page):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S))
        stage.engine, stage.front = pod(), gateway(kind="envoy")
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
        assert self.asked_every(stage, page, 10.0, 3600)[0] == (1, True, "warm")

    def test_a_steady_client_that_was_put_to_sleep_wakes_it_and_is_believed_for_good(self, stage, page):
        assert self.asked_every(stage, page, 10.0, 3600)[0] == (0, False, "asleep")
        # Its pod takes a minute to go, and answers meanwhile.
        asked = stage.asked
        for _ in range(12):
            asked += stage.now % 10.0 == 0.0
            assert stage.round(self.pages(stage, page, asked)) == (0, False, "asleep")
        stage.decider.retire(stage.engine)
        stage.has(pods=[], wanted=0)
        # Then there is nobody: the next question, 10 s later, is turned away.
        stage.round({stage.front: self.pages(stage, page, asked)[stage.front]})
        assert stage.round({stage.front: self.pages(stage, page, asked, refused=1)[stage.front]}) == (1, True, "queued")
        stage.has(pods=[stage.engine], wanted=1)
        stage.asked = asked
        answer, _ = self.asked_every(stage, page, 10.0, 3600)
        assert answer == (1, True, "warm")
        assert stage.decision().evidence.notes == (
            "its regular requests count: taken for probes once, they woke it right after it fell asleep",
        )
