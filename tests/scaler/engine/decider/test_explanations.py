"""Tests the explanation of real decisions: the sentences and the arithmetic in them."""

from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.config.overrides import Schedule as Written
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.groups import Membership
from scaler.policy.overrides import Brake, BrakeWord, WorkloadOverrides

CHAT = WorkloadKey("ai", "chat")
IDLE_S = 30.0


def explained(stage, at=None):
    board = Board(1, stage.now, dict(stage.decisions))
    return DecisionExplainer(stage.decider).explain(CHAT, board, stage.now, at, None, None)()


def sentences(document, step):
    (found,) = [each for each in document["chain"] if each["step"] == step]
    return found["sentences"]


def rows(document, step):
    (found,) = [each for each in document["chain"] if each["step"] == step]
    return [dict(zip(found["table"]["columns"], row, strict=True)) for row in found["table"]["rows"]]


@pytest.fixture
def serving(scene, plan, pod, page):
    """40 requests on two of two pods."""
    stage = scene(plan(kv=0.9))
    stage.pods = [pod(0), pod(1)]
    stage.has(pods=stage.pods, wanted=2)
    stage.round({target: page.vllm(waiting=15, running=5, kv=0.95) for target in stage.pods})
    return stage


class TestSizing:
    def test_forty_requests_at_sixteen_are_three_replicas(self, serving):
        document = explained(serving)
        assert document["summary"] == ("3 replicas, serving: 40 requests wait or run and a replica should carry 16")
        assert sentences(document, "objectives") == [
            "work: 40 requests / 16 per replica = 2.5.",
            "kv_cache: 0.95 of the KV cache on average × 2 replicas / target 0.9 = 2.11.",
        ]
        assert sentences(document, "winner") == ["The largest, work: 2.5, so 3 replicas."]
        assert sentences(document, "clamp") == [
            "3 replicas, within 0 to 8: no bound changes it.", "So 3 replicas while it is awake."
        ]  # fmt: skip
        assert sentences(document, "published") == ["Active, and tidegate-replicas = 3 at a target of 1 per replica."]
        assert rows(document, "objectives")[0] == {
            "objective": "work", "smoothed": 40.0, "per replica": 16.0, "replicas": 2.5,
        }  # fmt: skip

    def test_each_target_is_shown_with_its_age_and_values(self, serving):
        serving.now += 4.0
        first, second = rows(explained(serving), "raw")
        assert first == {
            "target": "http://10.0.0.0:8000/metrics", "of": "pods", "age": "4 s", "waiting": 15.0, "running": 5.0,
            "held": None, "KV": 0.95, "GPUs": None, "active": None, "counts": "yes",
        }  # fmt: skip
        assert second["target"] == "http://10.0.0.1:8000/metrics"

    def test_password_in_a_target_url_is_not_shown(self, scene, plan, pod, page):
        stage, target = scene(plan()), replace(pod(0), url="http://user:secret@10.0.0.1/metrics")
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=1)})
        document = explained(stage)
        assert rows(document, "raw")[0]["target"] == "http://10.0.0.1/metrics"
        assert "secret" not in str(document)

    def test_smoothed_value_is_recomputed_from_the_window(self, scene, plan, pod, page):
        stage, target = scene(plan(up=5.0, down=60.0)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=16)})
        stage.round({target: page.vllm(waiting=0, running=32)})
        stage.sweep(5.0)
        # 16 + (32 - 16) / 2 after one half-life of 5 s.
        assert sentences(explained(stage), "smoothed") == [
            "Half-life of a rise: 5 s, of a fall: 60 s.",
            "work: 32 now, 24 smoothed.",
            "Its window gives the same: 2 values of the last 10 s.",
        ]

    def test_window_with_newer_samples_is_not_presented_as_the_reason(self, serving, page):
        serving.land(serving.pods[0], page.vllm(waiting=16, running=5, kv=0.95))  # 41 of 48: the decision is kept
        assert sentences(explained(serving), "smoothed")[1:3] == [
            "work: 40, now and smoothed.",
            "Its window has newer samples, and gives another value now.",
        ]

    def test_hysteresis_explains_why_a_decision_is_not_lower(self, serving, page):
        serving.rounds(10.0, {target: page.vllm(waiting=0, running=15, kv=0.1) for target in serving.pods})
        # 30 / 16 = 1.875 is 2 whole replicas, but is not at or below 2 - 0.2.
        document = explained(serving)
        assert document["answer"]["replicas"] == 3
        assert sentences(document, "clamp")[0] == (
            "It stays at 3: hysteresis goes lower at a demand of 2 - 0.2 = 1.8, and it is 1.88."
        )
        assert rows(document, "clamp") == [{"bound": "demand", "replicas": 2}, {"bound": "band", "replicas": 3}]

    def test_demand_above_the_maximum_is_explained_as_capped(self, serving, page):
        serving.round({target: page.vllm(waiting=90, running=5, kv=0.95) for target in serving.pods})
        document = explained(serving)
        assert document["summary"] == "8 replicas, capped: 11.88 are needed, and the maximum is 8"
        assert sentences(document, "clamp")[0] == "Not more than 8, its maximum."

    def test_unknown_kv_cache_has_no_demand(self, scene, plan, pod, page):
        stage, target = scene(plan(kv=0.9)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=15, running=5)})
        assert sentences(explained(stage), "objectives")[1] == (
            "kv_cache: unknown. It only raises, so the others decide."
        )

    def test_start_without_state_is_bounded_by_the_replicas_of_the_cluster(self, scene, plan, pod, page):
        stage, target = scene(plan(young=60.0)), pod(0)
        stage.has(pods=[target], wanted=5)
        stage.round({target: page.vllm(waiting=0, running=1)})
        assert sentences(explained(stage), "clamp")[0] == (
            "Not fewer than the 5 of the cluster: it began without state and has short windows until "
            "1970-01-01 00:17:45Z."
        )


class TestHolding:
    def test_failed_scrape_is_explained_and_the_last_decision_is_held(self, serving, page):
        first, second = serving.pods
        for _ in range(5):
            serving.round({first: page.vllm(waiting=0, running=1, kv=0.95), second: None})
        document = explained(serving)
        assert document["summary"] == (
            "3 replicas, held: readings are missing, and the last decision holds, since 1970-01-01 00:17:05Z"
        )
        assert sentences(document, "cleaned")[:2] == [
            "1 of 2 pods that must answer have fresh samples.",
            "Its demand is not completely known since 1970-01-01 00:17:05Z: fresh samples are a lower bound.",
        ]
        assert sentences(document, "raw") == ["1 of 2 targets has fresh samples."]
        assert rows(document, "raw")[1]["counts"] == "no: too old"
        assert sentences(document, "clamp") == [
            "Readings are missing since 1970-01-01 00:17:05Z, so its last decision holds.",
            "The last was 3 replicas. Fresh samples may raise it and never lower it.",
            "After 1970-01-01 00:22:05Z callers get an error.",
        ]

    def test_silent_pods_are_imputed_from_the_others(self, serving, page):
        first, second = serving.pods
        for _ in range(20):
            serving.round({first: page.vllm(waiting=0, running=10, kv=0.1), second: None})
        document = explained(serving)
        assert sentences(document, "cleaned")[1] == (
            "The others are imputed: sums over pods are multiplied by 2. That sizes it, and proves no idleness."
        )
        assert sentences(document, "objectives")[0] == "work: 20 requests / 16 per replica = 1.25."
        assert sentences(document, "winner") == ["The largest, work: 1.25, so 2 replicas."]

    def test_workload_without_any_decision_is_not_explained_as_held(self, scene, pod):
        stage = scene()
        stage.has(pods=[pod(0)])
        stage.sweep()
        assert sentences(explained(stage), "clamp") == [
            "Readings are missing since 1970-01-01 00:16:40Z, and there is no decision to hold."
        ]

    def test_error_after_the_hold_shows_its_start(self, serving):
        for _ in range(70):
            serving.round(dict.fromkeys(serving.pods))
        document = explained(serving)
        assert document["summary"].startswith("no answer, unknown: readings are missing since ")
        assert sentences(document, "published") == ["An error: without a fallback, KEDA and the HPA change nothing."]
        assert "for longer than 5 min, the time of a hold" in sentences(document, "clamp")[0]


class TestZero:
    @pytest.fixture
    def idle(self, scene, plan, pod, gateway, page):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S))
        stage.pod, stage.front = pod(0), gateway()
        stage.has(pods=[stage.pod], gateway=stage.front, wanted=1)
        stage.quiet = {stage.pod: page.vllm(waiting=0, running=0), stage.front: page.epp(held=0, ready=1)}
        stage.round(stage.quiet)
        return stage

    def test_warm_workload_shows_why_it_is_awake_and_when_it_will_sleep(self, idle):
        idle.rounds(10.0, idle.quiet)
        document = explained(idle)
        assert document["summary"] == "1 replica, warm: idle for 10 s, and kept warm for 30 s"
        assert sentences(document, "overrides") == [
            "It is idle since 1970-01-01 00:16:45Z, for 10 s.",
            "It is kept warm for 30 s. It goes to zero at 1970-01-01 00:17:15Z, in 20 s, without requests.",
            "No override is active.",
        ]

    def test_very_long_keep_warm_time_has_a_readable_end(self, scene, plan, pod, gateway, page):
        stage, target, front = scene(plan(gateway=True, keep_warm=3.6e14)), pod(0), gateway()
        stage.has(pods=[target], gateway=front, wanted=1)
        stage.round({target: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
        assert "It goes to zero at the year 10000 or later" in sentences(explained(stage), "overrides")[1]

    def test_sleeping_workload_is_explained(self, idle):
        idle.rounds(IDLE_S, idle.quiet)
        document = explained(idle)
        assert document["summary"].startswith("0 replicas, asleep: idle for 30 s, and a wake source")
        assert sentences(document, "overrides")[1].startswith(
            "It is kept warm for 30 s, and that is over: it goes to zero"
        )
        assert sentences(document, "published")[0].startswith(
            "Inactive, and 0: KEDA scales to zero once its cooldownPeriod"
        )

    def test_workload_without_a_wake_source_explains_why_it_is_kept(self, scene, plan, pod, page):
        stage, target = scene(plan(keep_warm=IDLE_S)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.rounds(2 * IDLE_S, {target: page.vllm(waiting=0, running=0)})
        document = explained(stage)
        assert document["answer"]["reason"] == "no_wake_source"
        assert sentences(document, "overrides")[1] == ("No wake source would show the next request: it is kept awake.")

    def test_request_in_progress_explains_why_it_is_not_idle(self, idle, page):
        idle.round({**idle.quiet, idle.pod: page.vllm(waiting=0, running=1)})
        assert sentences(explained(idle), "overrides")[0] == "It is not idle: 1 request in hand."

    def test_start_in_progress_explains_why_it_is_not_idle(self, idle, page):
        idle.rounds(IDLE_S, idle.quiet)
        idle.decider.retire(idle.pod)
        idle.has(pods=[], gateway=idle.front, wanted=0)
        idle.round({idle.front: page.epp(held=3, ready=0)})
        woken = explained(idle)
        assert woken["summary"] == "1 replica, queued: 3 requests wait and none is in progress"
        idle.has(pods=[], gateway=idle.front, wanted=1, ready=0)
        idle.round({idle.front: page.epp(held=0, ready=0)})
        assert sentences(explained(idle), "overrides")[0].startswith("It is not idle: woken at 1970-01-01 00:17:20Z")


class TestOrders:
    def test_brake_is_named_with_the_decision_without_it(self, scene, plan, pod, page):
        brake = Brake(BrakeWord.NEVER_DOWN, until=90_000.0, because="the sale", source="ai/Deployment/chat")
        stage, target = scene(plan(about={"ordered": WorkloadOverrides(brakes=(brake,))})), pod(0)
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=40)})
        stage.round({target: page.vllm(waiting=0, running=1)})
        for at in (None, stage.now):  # the text is available for the past too
            document = explained(stage, at)
            assert document["summary"] == "3 replicas, frozen: a brake decides; without it it would be 1 replica"
            assert sentences(document, "overrides")[1] == (
                "A brake allows no scale-down: never_down until 1970-01-02T01:00Z because the sale "
                "(ai/Deployment/chat). Without it: 1 replica, serving."
            )

    def test_ended_brake_is_not_named(self, scene, plan, pod, page):
        over = Brake(BrakeWord.FREEZE, until=1003.0, because="the move")
        stage, target = (
            scene(plan(about={"ordered": WorkloadOverrides(brakes=(over, Brake(BrakeWord.NEVER_DOWN)))})),
            pod(0),
        )
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=40)})
        assert sentences(explained(stage, stage.now), "overrides")[1] == "A brake allows no scale-down: never_down."

    def test_schedule_is_named_with_its_window(self, scene, plan, pod, page):
        window = Written.model_validate(
            {"start": "0 0 * * *", "duration": "20h", "zone": "UTC", "floor": 3, "prewarm": "0s"}
        ).order
        stage, target = scene(plan(about={"ordered": WorkloadOverrides(schedules=(window,))})), pod(0)
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=1)})
        document = explained(stage)
        assert document["summary"] == "3 replicas, scheduled: a schedule decides; without it it would be 1 replica"
        assert sentences(document, "overrides")[1] == (
            "A schedule keeps at least 3 replicas (floor 3 from 1970-01-01T00:00Z until 1970-01-01T20:00Z "
            "(0 0 * * * in UTC)). Without it: 1 replica, serving."
        )

    def test_demand_of_the_group_is_explained(self, scene, plan, pod, gateway, page):
        roles = {role: {"member": Membership("ai", "pd", role)} for role in ("prefill", "decode")}
        busy = plan("prefill", gateway=True, about=roles["prefill"])
        stage = scene(busy, plan("chat", keep_warm=IDLE_S, about=roles["decode"]))
        first, second, front = pod(0, "prefill"), pod(1), gateway(name="prefill")
        stage.has(pods=[first], gateway=front, wanted=1, name="prefill")
        stage.has(pods=[second], wanted=1)
        pages = {first: page.vllm(waiting=0, running=5), second: page.vllm(waiting=0, running=0)}
        stage.rounds(2 * IDLE_S, {**pages, front: page.epp(held=0, ready=1)})
        document = explained(stage)
        assert (document["answer"]["replicas"], document["inputs"]["aside"]["group_floor"]) == (1, 1.0)
        assert "Its group is awake and needs at least 1 replica of it." in sentences(document, "overrides")
        assert document["summary"] == "1 replica, warm: its group needs 1 replica of it; alone it would be 0 replicas"

    def test_demand_of_the_group_is_the_reason_if_it_exceeds_the_demand_of_the_workload(self, scene, plan, pod, page):
        bounded = {"member": Membership("ai", "pd", "decode", to="prefill", least=1.0)}
        stage = scene(plan("prefill", about={"member": Membership("ai", "pd", "prefill")}), plan("chat", about=bounded))
        first, second = pod(0, "prefill"), pod(1)
        stage.has(pods=[first], wanted=1, name="prefill")
        stage.has(pods=[second], wanted=1)
        stage.round({first: page.vllm(waiting=0, running=60), second: page.vllm(waiting=0, running=5)})
        assert explained(stage)["summary"] == (
            "4 replicas, serving: its group needs 4 replicas of it; alone it would be 1 replica"
        )

    def test_observed_workload_publishes_nothing(self, scene, plan, pod, page):
        stage, target = scene(plan(about={"observed": True})), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=20)})
        assert sentences(explained(stage), "published") == [
            "Nothing: it is only observed, and callers get an error. It would be 2 replicas, serving."
        ]

    def test_step_within_the_hpa_tolerance_is_published_past_it(self, scene, plan, pod, page):
        stage, target = scene(plan(maximum=100, about={"tolerance": 0.1})), pod(0)
        stage.has(pods=[target], wanted=20)
        stage.round({target: page.vllm(waiting=0, running=16 * 21)})
        document = explained(stage)
        assert (document["answer"]["replicas"], document["answer"]["published"]) == (21, 23)
        active, why = sentences(document, "published")
        assert active == "Active, and tidegate-replicas = 23 at a target of 1 per replica."
        assert why == (
            "The HPA would ignore 21, within its tolerance of 0.1 around 20; 23 is the next that it does not."
        )

    def test_published_number_is_that_of_the_board(self, scene, plan, pod, page):
        stage, target = scene(plan(maximum=100, about={"tolerance": 0.1})), pod(0)
        stage.has(pods=[target], wanted=20)
        stage.round({target: page.vllm(waiting=0, running=16 * 21)})
        # The HPA has applied the step to 23, and a scrape lands before the next sweep: the published number stays.
        stage.counted(23)
        stage.land(target, page.vllm(waiting=0, running=16 * 22))
        document = explained(stage)
        assert (document["answer"]["replicas"], document["answer"]["published"]) == (22, 23)
        assert sentences(document, "published")[0] == "Active, and tidegate-replicas = 23 at a target of 1 per replica."


class TestThePast:
    def test_past_decision_is_explained_with_its_plan_and_its_sums(self, serving, page):
        then = serving.now
        serving.rounds(600.0, {target: page.vllm(waiting=0, running=1) for target in serving.pods})
        document = explained(serving, then + 1.0)
        assert (document["at"], document["inputs"]["readings"]["waiting"]) == (then, 30.0)
        assert document["summary"].startswith("3 replicas, serving: 40 requests wait or run")
        assert sentences(document, "raw") == [
            "Single targets are not stored. The sums of 1970-01-01 00:16:45Z are below."
        ]

    def test_changes_are_listed_newest_last(self, serving, page):
        for running in (40, 1):
            serving.now += 5.0
            for target in serving.pods:
                serving.land(target, page.vllm(waiting=0, running=running, kv=0.5))
            serving.sweep()
        changes = [(each["replicas"], each["reason"]) for each in explained(serving)["changes"]]
        # Scrape by scrape: 40 + 20 requests, 40 + 40; then 1 + 40, the highest of that interval.
        assert changes[-3:] == [(4, "serving"), (5, "serving"), (3, "serving")]
