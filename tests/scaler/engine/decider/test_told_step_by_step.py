"""The explanation of real decisions: the sentences that a person reads, with the arithmetic in them."""

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
    board = Board(1, stage.now, dict(stage.answers))
    return DecisionExplainer(stage.decider).explain(CHAT, board, stage.now, at, None, None)()


def said(document, step):
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
        assert said(document, "objectives") == [
            "work: 40 requests / 16 per replica = 2.5.",
            "kv_cache: 0.95 of the KV cache on average × 2 replicas / target 0.9 = 2.11.",
        ]
        assert said(document, "winner") == ["The largest, work: 2.5, so 3 replicas."]
        assert said(document, "clamp") == [
            "3 replicas, within 0 to 8: no bound changes it.", "So 3 replicas while it is awake."
        ]  # fmt: skip
        assert said(document, "published") == ["Active, and tidegate-replicas = 3 at a target of 1 per replica."]
        assert rows(document, "objectives")[0] == {
            "objective": "work", "smoothed": 40.0, "per replica": 16.0, "replicas": 2.5,
        }  # fmt: skip

    def test_each_page_is_shown_with_its_age_and_what_it_says(self, serving):
        serving.now += 4.0
        first, second = rows(explained(serving), "raw")
        assert first == {
            "page": "http://10.0.0.0:8000/metrics", "of": "pods", "age": "4 s", "waiting": 15.0, "running": 5.0,
            "held": None, "KV": 0.95, "GPUs": None, "active": None, "counts": "yes",
        }  # fmt: skip
        assert second["page"] == "http://10.0.0.1:8000/metrics"

    def test_a_password_in_a_pages_address_is_nobodys_business(self, scene, plan, pod, page):
        stage, target = scene(plan()), replace(pod(0), url="http://user:secret@10.0.0.1/metrics")
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=1)})
        document = explained(stage)
        assert rows(document, "raw")[0]["page"] == "http://10.0.0.1/metrics"
        assert "secret" not in str(document)

    def test_what_is_smoothed_is_made_again_of_the_window(self, scene, plan, pod, page):
        stage, target = scene(plan(up=5.0, down=60.0)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=16)})
        stage.round({target: page.vllm(waiting=0, running=32)})
        stage.sweep(5.0)
        # 16 + (32 - 16) / 2 after one half-life of 5 s.
        assert said(explained(stage), "smoothed") == [
            "Half-life of a rise: 5 s, of a fall: 60 s.",
            "work: 32 now, 24 smoothed.",
            "Its window gives the same: 2 values of the last 10 s.",
        ]

    def test_a_window_that_has_heard_more_since_is_not_passed_off_as_the_reason(self, serving, page):
        serving.land(serving.pods[0], page.vllm(waiting=16, running=5, kv=0.95))  # 41 of 48: the answer stays
        assert said(explained(serving), "smoothed")[1:3] == [
            "work: 40, now and smoothed.",
            "Its window has newer samples, and gives another value now.",
        ]

    def test_the_band_is_why_it_is_not_yet_fewer(self, serving, page):
        serving.rounds(10.0, {target: page.vllm(waiting=0, running=15, kv=0.1) for target in serving.pods})
        # 30 / 16 = 1.875 is 2 whole replicas, but is not at or below 2 - 0.2.
        document = explained(serving)
        assert document["answer"]["replicas"] == 3
        assert said(document, "clamp")[0] == (
            "It stays at 3: hysteresis goes lower at a demand of 2 - 0.2 = 1.8, and it is 1.88."
        )
        assert rows(document, "clamp") == [{"bound": "demand", "replicas": 2}, {"bound": "band", "replicas": 3}]

    def test_more_than_the_maximum_is_capped_and_says_by_what(self, serving, page):
        serving.round({target: page.vllm(waiting=90, running=5, kv=0.95) for target in serving.pods})
        document = explained(serving)
        assert document["summary"] == "8 replicas, capped: 11.88 are needed, and the maximum is 8"
        assert said(document, "clamp")[0] == "Not more than 8, its maximum."

    def test_an_unknown_kv_cache_asks_for_nothing(self, scene, plan, pod, page):
        stage, target = scene(plan(kv=0.9)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=15, running=5)})
        assert said(explained(stage), "objectives")[1] == ("kv_cache: unknown. It only raises, so the others decide.")

    def test_begun_without_a_memory_what_the_cluster_has_is_the_least(self, scene, plan, pod, page):
        stage, target = scene(plan(young=60.0)), pod(0)
        stage.has(pods=[target], wanted=5)
        stage.round({target: page.vllm(waiting=0, running=1)})
        assert said(explained(stage), "clamp")[0] == (
            "Not fewer than the 5 of the cluster: it began without state and has short windows until "
            "1970-01-01 00:17:45Z."
        )


class TestHolding:
    def test_a_page_that_fails_is_told_and_the_last_answer_stands(self, serving, page):
        first, second = serving.pods
        for _ in range(5):
            serving.round({first: page.vllm(waiting=0, running=1, kv=0.95), second: None})
        document = explained(serving)
        assert document["summary"] == (
            "3 replicas, held: readings are missing, and the last decision holds, since 1970-01-01 00:17:05Z"
        )
        assert said(document, "cleaned")[:2] == [
            "1 of 2 pods that must answer have fresh samples.",
            "Its demand is not completely known since 1970-01-01 00:17:05Z: fresh samples are a lower bound.",
        ]
        assert said(document, "raw") == ["1 of 2 targets has fresh samples."]
        assert rows(document, "raw")[1]["counts"] == "no: too old"
        assert said(document, "clamp") == [
            "Readings are missing since 1970-01-01 00:17:05Z, so its last decision holds.",
            "The last was 3 replicas. Fresh samples may raise it and never lower it.",
            "After 1970-01-01 00:22:05Z callers get an error.",
        ]

    def test_the_rest_is_taken_to_be_like_those_that_answer(self, serving, page):
        first, second = serving.pods
        for _ in range(20):
            serving.round({first: page.vllm(waiting=0, running=10, kv=0.1), second: None})
        document = explained(serving)
        assert said(document, "cleaned")[1] == (
            "The others are imputed: sums over pods are multiplied by 2. That sizes it, and proves no idleness."
        )
        assert said(document, "objectives")[0] == "work: 20 requests / 16 per replica = 1.25."
        assert said(document, "winner") == ["The largest, work: 1.25, so 2 replicas."]

    def test_one_that_never_had_an_answer_is_not_said_to_have_been_held_for_long(self, scene, pod):
        stage = scene()
        stage.has(pods=[pod(0)])
        stage.sweep()
        assert said(explained(stage), "clamp") == [
            "Readings are missing since 1970-01-01 00:16:40Z, and there is no decision to hold."
        ]

    def test_after_the_hold_it_is_an_error_and_says_since_when(self, serving):
        for _ in range(70):
            serving.round(dict.fromkeys(serving.pods))
        document = explained(serving)
        assert document["summary"].startswith("no answer, unknown: readings are missing since ")
        assert said(document, "published") == ["An error, so KEDA and the HPA change nothing."]
        assert "for longer than 5 min, the time of a hold" in said(document, "clamp")[0]


class TestZero:
    @pytest.fixture
    def idle(self, scene, plan, pod, gateway, page):
        stage = scene(plan(gateway=True, keep_warm=IDLE_S))
        stage.pod, stage.front = pod(0), gateway()
        stage.has(pods=[stage.pod], gateway=stage.front, wanted=1)
        stage.quiet = {stage.pod: page.vllm(waiting=0, running=0), stage.front: page.epp(held=0, ready=1)}
        stage.round(stage.quiet)
        return stage

    def test_why_it_is_not_yet_asleep_and_when_it_will_be(self, idle):
        idle.rounds(10.0, idle.quiet)
        document = explained(idle)
        assert document["summary"] == "1 replica, warm: idle for 10 s, and kept warm for 30 s"
        assert said(document, "overrides") == [
            "It is idle since 1970-01-01 00:16:45Z, for 10 s.",
            "It is kept warm for 30 s. It goes to zero at 1970-01-01 00:17:15Z, in 20 s, without requests.",
            "No override is active.",
        ]

    def test_a_keep_warm_time_without_an_end_to_speak_of(self, scene, plan, pod, gateway, page):
        stage, target, front = scene(plan(gateway=True, keep_warm=3.6e14)), pod(0), gateway()
        stage.has(pods=[target], gateway=front, wanted=1)
        stage.round({target: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
        assert "It goes to zero at the year 10000 or later" in said(explained(stage), "overrides")[1]

    def test_asleep(self, idle):
        idle.rounds(IDLE_S, idle.quiet)
        document = explained(idle)
        assert document["summary"].startswith("0 replicas, asleep: idle for 30 s, and a wake source")
        assert said(document, "overrides")[1].startswith("It is kept warm for 30 s, and that is over: it goes to zero")
        assert said(document, "published")[0].startswith("Inactive, and 0: KEDA scales to zero once its cooldownPeriod")

    def test_without_a_waker_it_is_kept_and_told_why(self, scene, plan, pod, page):
        stage, target = scene(plan(keep_warm=IDLE_S)), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.rounds(2 * IDLE_S, {target: page.vllm(waiting=0, running=0)})
        document = explained(stage)
        assert document["answer"]["reason"] == "no_wake_source"
        assert said(document, "overrides")[1] == ("No wake source would show the next request: it is kept awake.")

    def test_a_request_is_why_it_is_not_idle(self, idle, page):
        idle.round({**idle.quiet, idle.pod: page.vllm(waiting=0, running=1)})
        assert said(explained(idle), "overrides")[0] == "It is not idle: 1 request in hand."

    def test_a_start_under_way_is_why_it_is_not_idle(self, idle, page):
        idle.rounds(IDLE_S, idle.quiet)
        idle.decider.retire(idle.pod)
        idle.has(pods=[], gateway=idle.front, wanted=0)
        idle.round({idle.front: page.epp(held=3, ready=0)})
        woken = explained(idle)
        assert woken["summary"] == "1 replica, queued: 3 requests wait and none is in progress"
        idle.has(pods=[], gateway=idle.front, wanted=1, ready=0)
        idle.round({idle.front: page.epp(held=0, ready=0)})
        assert said(explained(idle), "overrides")[0].startswith("It is not idle: woken at 1970-01-01 00:17:20Z")


class TestOrders:
    def test_a_brake_is_named_with_what_would_be_without_it(self, scene, plan, pod, page):
        brake = Brake(BrakeWord.NEVER_DOWN, until=90_000.0, because="the sale", source="ai/Deployment/chat")
        stage, target = scene(plan(about={"ordered": WorkloadOverrides(brakes=(brake,))})), pod(0)
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=40)})
        stage.round({target: page.vllm(waiting=0, running=1)})
        for at in (None, stage.now):  # the words are known of the past too
            document = explained(stage, at)
            assert document["summary"] == "3 replicas, frozen: a brake decides; without it it would be 1 replica"
            assert said(document, "overrides")[1] == (
                "A brake allows no scale-down: never_down until 1970-01-02T01:00Z because the sale "
                "(ai/Deployment/chat). Without it: 1 replica, serving."
            )

    def test_a_brake_that_was_over_by_then_is_not_named(self, scene, plan, pod, page):
        over = Brake(BrakeWord.FREEZE, until=1003.0, because="the move")
        stage, target = (
            scene(plan(about={"ordered": WorkloadOverrides(brakes=(over, Brake(BrakeWord.NEVER_DOWN)))})),
            pod(0),
        )
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=40)})
        assert said(explained(stage, stage.now), "overrides")[1] == "A brake allows no scale-down: never_down."

    def test_a_schedule_is_named_with_its_window(self, scene, plan, pod, page):
        window = Written.model_validate(
            {"start": "0 0 * * *", "duration": "20h", "zone": "UTC", "floor": 3, "prewarm": "0s"}
        ).order
        stage, target = scene(plan(about={"ordered": WorkloadOverrides(schedules=(window,))})), pod(0)
        stage.has(pods=[target], wanted=3)
        stage.round({target: page.vllm(waiting=0, running=1)})
        document = explained(stage)
        assert document["summary"] == "3 replicas, scheduled: a schedule decides; without it it would be 1 replica"
        assert said(document, "overrides")[1] == (
            "A schedule keeps at least 3 replicas (floor 3 from 1970-01-01T00:00Z until 1970-01-01T20:00Z "
            "(0 0 * * * in UTC)). Without it: 1 replica, serving."
        )

    def test_a_group_says_what_it_asks_for(self, scene, plan, pod, gateway, page):
        roles = {role: {"member": Membership("ai", "pd", role)} for role in ("prefill", "decode")}
        busy = plan("prefill", gateway=True, about=roles["prefill"])
        stage = scene(busy, plan("chat", keep_warm=IDLE_S, about=roles["decode"]))
        first, second, front = pod(0, "prefill"), pod(1), gateway(name="prefill")
        stage.has(pods=[first], gateway=front, wanted=1, name="prefill")
        stage.has(pods=[second], wanted=1)
        pages = {first: page.vllm(waiting=0, running=5), second: page.vllm(waiting=0, running=0)}
        stage.rounds(2 * IDLE_S, {**pages, front: page.epp(held=0, ready=1)})
        document = explained(stage)
        assert (document["answer"]["replicas"], document["inputs"]["aside"]["asked"]) == (1, 1.0)
        assert "Its group is awake and needs at least 1 replica of it." in said(document, "overrides")
        assert document["summary"] == "1 replica, warm: its group needs 1 replica of it; alone it would be 0 replicas"

    def test_what_its_group_asks_for_is_the_reason_where_it_alone_wants_fewer(self, scene, plan, pod, page):
        bounded = {"member": Membership("ai", "pd", "decode", to="prefill", least=1.0)}
        stage = scene(plan("prefill", about={"member": Membership("ai", "pd", "prefill")}), plan("chat", about=bounded))
        first, second = pod(0, "prefill"), pod(1)
        stage.has(pods=[first], wanted=1, name="prefill")
        stage.has(pods=[second], wanted=1)
        stage.round({first: page.vllm(waiting=0, running=60), second: page.vllm(waiting=0, running=5)})
        assert explained(stage)["summary"] == (
            "4 replicas, serving: its group needs 4 replicas of it; alone it would be 1 replica"
        )

    def test_one_that_is_observed_is_told_to_nobody(self, scene, plan, pod, page):
        stage, target = scene(plan(about={"observed": True})), pod(0)
        stage.has(pods=[target], wanted=1)
        stage.round({target: page.vllm(waiting=0, running=20)})
        assert said(explained(stage), "published") == [
            "Nothing: it is only observed, and callers get an error. It would be 2 replicas, serving."
        ]

    def test_a_step_that_the_hpa_would_drop_is_told_past_its_tolerance(self, scene, plan, pod, page):
        stage, target = scene(plan(maximum=100, about={"tolerance": 0.1})), pod(0)
        stage.has(pods=[target], wanted=20)
        stage.round({target: page.vllm(waiting=0, running=16 * 21)})
        document = explained(stage)
        assert (document["answer"]["replicas"], document["answer"]["published"]) == (21, 23)
        active, why = said(document, "published")
        assert active == "Active, and tidegate-replicas = 23 at a target of 1 per replica."
        assert why == (
            "The HPA would ignore 21, within its tolerance of 0.1 around 20; 23 is the next that it does not."
        )

    def test_the_number_that_is_told_now_is_the_boards(self, scene, plan, pod, page):
        stage, target = scene(plan(maximum=100, about={"tolerance": 0.1})), pod(0)
        stage.has(pods=[target], wanted=20)
        stage.round({target: page.vllm(waiting=0, running=16 * 21)})
        # The HPA has taken the step to 23, and a page comes in before the next sweep: what is told is not lowered.
        stage.counted(23)
        stage.land(target, page.vllm(waiting=0, running=16 * 22))
        document = explained(stage)
        assert (document["answer"]["replicas"], document["answer"]["published"]) == (22, 23)
        assert said(document, "published")[0] == "Active, and tidegate-replicas = 23 at a target of 1 per replica."


class TestThePast:
    def test_what_stood_then_is_told_with_the_plan_and_the_sums_of_then(self, serving, page):
        then = serving.now
        serving.rounds(600.0, {target: page.vllm(waiting=0, running=1) for target in serving.pods})
        document = explained(serving, then + 1.0)
        assert (document["at"], document["inputs"]["readings"]["waiting"]) == (then, 30.0)
        assert document["summary"].startswith("3 replicas, serving: 40 requests wait or run")
        assert said(document, "raw") == ["Single targets are not stored. The sums of 1970-01-01 00:16:45Z are below."]

    def test_changes_are_told_newest_last(self, serving, page):
        serving.round({target: page.vllm(waiting=0, running=40, kv=0.5) for target in serving.pods})
        serving.round({target: page.vllm(waiting=0, running=1, kv=0.5) for target in serving.pods})
        seen = [(each["replicas"], each["reason"]) for each in explained(serving)["changes"]]
        # Page by page: 40 + 20 requests, 40 + 40; then 1 + 40, the highest of that interval.
        assert seen[-3:] == [(4, "serving"), (5, "serving"), (3, "serving")]
