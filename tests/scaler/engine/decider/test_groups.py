"""Tests groups through the decider: roles sleep and wake in one tick, and shares of a queue add up at every tick."""

import numpy as np
import pytest

from scaler.engine.decider import Decider
from scaler.policy.groups import Membership

IDLE_S = 30.0


def member(role="", weight=1.0, **bounds):
    """More fields of a plan: a membership of the group pd."""
    return {"member": Membership("ai", "pd", role, weight, **bounds)}


class TestPrefillAndDecode:
    """Two Deployments, each request needs both; each has targets of its own, and only prefill has a gateway."""

    @pytest.fixture
    def stage(self, scene, plan, pod, gateway):
        stage = scene(
            plan("prefill", gateway=True, keep_warm=IDLE_S, work=4.0, about=member("prefill")),
            plan("decode", keep_warm=2 * IDLE_S, about=member("decode", to="prefill", least=0.5, most=3.0)),
        )
        stage.prefill, stage.decode, stage.front = pod(0, "prefill"), pod(1, "decode"), gateway(name="prefill")
        stage.has(pods=[stage.prefill], gateway=stage.front, wanted=1, name="prefill")
        stage.has(pods=[stage.decode], wanted=1, name="decode")
        return stage

    @pytest.fixture
    def pages(self, stage, page):
        def at(prefill=0, decode=0, held=0):
            return {
                stage.prefill: page.vllm(waiting=0, running=prefill),
                stage.decode: page.vllm(waiting=0, running=decode),
                stage.front: page.epp(held=held, ready=1),
            }

        return at

    @staticmethod
    def round(stage, pages):
        """The outcomes of prefill and decode after one round."""
        stage.now += 5.0
        for target, text in pages.items():
            if text is None:
                stage.decider.missed(target)
            else:
                stage.land(target, text)
        stage.sweep()
        return stage.outcome("prefill"), stage.outcome("decode")

    def rounds(self, stage, seconds, pages):
        outcomes = []
        for _ in range(round(seconds / 5.0)):
            pair = self.round(stage, pages)
            if not outcomes or outcomes[-1] != pair:
                outcomes.append(pair)
        return outcomes

    @pytest.fixture
    def asleep(self, stage, pages):
        """Both are at zero and their pods gone; only the target of the gateway is left."""
        self.rounds(stage, 3 * IDLE_S, pages())
        for name, target in (("prefill", stage.prefill), ("decode", stage.decode)):
            stage.decider.retire(target)
            stage.has(pods=[], wanted=0, name=name)
        return stage

    def test_roles_fall_asleep_in_one_tick_after_the_longest_keep_warm_time(self, stage, pages):
        outcomes = self.rounds(stage, 2 * IDLE_S + 5, pages())
        # Prefill alone would sleep after 30 s; decode's 60 s keep both.
        assert outcomes == [
            ((1, True, "warm"), (1, True, "warm")),
            ((0, False, "asleep"), (0, False, "asleep")),
        ]

    def test_busy_decode_keeps_an_idle_prefill_awake(self, stage, pages):
        outcomes = self.rounds(stage, 600, pages(decode=1))
        assert outcomes == [((1, True, "warm"), (1, True, "serving"))]
        assert "its group is awake and asks for 1 replicas of it at least" in stage.decision("prefill").evidence.notes

    def test_request_at_the_gateway_wakes_both_roles_on_its_scrape(self, asleep, page):
        stage = asleep
        for _ in range(20):
            pair = self.round(stage, {stage.front: page.epp(held=0, ready=0)})
        assert pair == ((0, False, "asleep"), (0, False, "asleep"))
        stage.now += 5.0
        changed = stage.land(stage.front, page.epp(held=1, ready=0))
        assert sorted((each.workload.name, each.replicas, each.active) for each in changed) == [
            ("decode", 1, True),
            ("prefill", 1, True),
        ]

    def test_wake_source_of_prefill_is_also_that_of_decode(self, stage, pages, page):
        outcomes = self.rounds(stage, 3 * IDLE_S, pages())
        assert all("no_wake_source" not in str(pair) for pair in outcomes)
        # The gateway restarts and shows no queue any more: no request would wake either role.
        started = "process_start_time_seconds {}\n".format
        self.round(stage, {**pages(), stage.front: page.epp(held=0, ready=1) + started(100)})
        pages = {**pages(), stage.front: page.epp(ready=1) + started(900)}
        assert self.rounds(stage, 3 * IDLE_S, pages)[-1] in (
            ((0, False, "no_wake_source"), (0, False, "no_wake_source")),
            ((1, True, "no_wake_source"), (1, True, "no_wake_source")),
        )

    def test_member_without_readings_keeps_all_awake(self, stage, pages):
        self.round(stage, pages())
        blind = {**pages(), stage.decode: None}
        assert self.rounds(stage, 200, blind)[-1] == ((1, True, "warm"), (1, True, "held"))
        # After the hold decode is unknown: an error, and no reason for prefill to sleep.
        assert self.rounds(stage, 300, blind)[-1] == ((1, True, "warm"), (None, True, "unknown"))

    def test_sleeping_member_without_readings_wakes_no_role(self, asleep, page):
        stage = asleep
        self.round(stage, {stage.front: page.epp(held=0, ready=0)})
        assert self.rounds(stage, 900, {stage.front: None})[-1] == ((0, False, "held"), (0, False, "no_wake_source"))
        (note,) = stage.decision("decode").evidence.notes
        assert note == "no gateway of its group shows a queue now, so nothing would see a request at zero replicas"

    def test_bounds_of_the_ratio_raise_the_lower_role(self, stage, pages):
        # Prefill alone: 24 at 4 are 6 replicas; 0.5 x 6 = 3 of decode.
        assert self.round(stage, pages(prefill=24)) == ((6, True, "serving"), (3, True, "warm"))
        # Decode alone: 112 at 16 are 7; 7 / 3 = 2.33, so 3 of prefill.
        assert self.round(stage, pages(decode=112)) == ((3, True, "warm"), (7, True, "serving"))

    def test_floor_of_the_group_ends_with_its_cause(self, stage, pages):
        self.round(stage, pages(decode=112))
        assert self.round(stage, pages(decode=1)) == ((1, True, "warm"), (1, True, "serving"))


class TestStableAndCanary:
    """One queue at one gateway, two Deployments behind it."""

    WEIGHTS = (9.0, 1.0)

    @staticmethod
    def plans(plan, weights, **stable):
        return (
            plan("stable", gateway=True, keep_warm=IDLE_S, about=member(weight=weights[0]), **stable),
            plan("canary", gateway=True, keep_warm=IDLE_S, maximum=100, about=member(weight=weights[1])),
        )

    @pytest.fixture
    def queue(self, gateway):
        return [gateway(name=name) for name in ("stable", "canary")]

    @staticmethod
    def round(stage, queue, text):
        stage.now += 5.0
        for front in queue:
            stage.land(front, text)
        stage.sweep()
        return [stage.decision(name).evidence.held_by_gateway for name in ("stable", "canary")]

    def stage(self, scene, plan, weights=WEIGHTS, **stable):
        stage = scene(*self.plans(plan, weights, **stable))
        for name in ("stable", "canary"):
            stage.has(pods=[], wanted=0, name=name)
        return stage

    def test_canary_with_a_tenth_of_the_weight_gets_a_tenth(self, scene, plan, queue, page):
        stage = self.stage(scene, plan, maximum=100)
        assert self.round(stage, queue, page.epp(held=160, ready=0)) == pytest.approx([144, 16])
        assert (stage.outcome("stable"), stage.outcome("canary")) == ((9, True, "queued"), (1, True, "queued"))

    def test_share_above_the_capacity_of_a_member_goes_to_the_other(self, scene, plan, queue, page):
        stage = self.stage(scene, plan, maximum=4)
        # Stable can hold 4 x 16 = 64 of its 144.
        assert self.round(stage, queue, page.epp(held=160, ready=0)) == pytest.approx([64, 96])
        assert (stage.outcome("stable")[0], stage.outcome("canary")[0]) == (4, 6)

    def test_requests_in_pods_of_a_member_reduce_its_share(self, scene, plan, queue, pod, page):
        stage, engine = self.stage(scene, plan, maximum=4), pod(0, "stable")
        stage.has(pods=[engine], wanted=4, name="stable")
        stage.land(engine, page.vllm(waiting=0, running=60))
        # 64 - 60 = 4 of the queue's 20; the other 16 spill.
        assert self.round(stage, queue, page.epp(held=20, ready=1)) == pytest.approx([4, 16])
        assert stage.decision("stable").evidence.running == 60
        assert stage.outcome("canary")[0] == 1

    def test_member_with_pending_pods_leaves_the_rest_to_the_other(self, scene, plan, queue, page):
        from exporter.model import ReplicaCount, WorkloadKey  # noqa: PLC0415

        stage = self.stage(scene, plan, maximum=100)
        stage.decider.counted(WorkloadKey("ai", "stable"), ReplicaCount(2, 0, stage.now, pending=2))
        assert self.round(stage, queue, page.epp(held=100, ready=0)) == pytest.approx([32, 68])

    def test_member_of_a_higher_order_sleeps_until_the_first_cannot_hold_the_queue(self, scene, plan, queue, page):
        cheap = plan("stable", gateway=True, keep_warm=IDLE_S, about=member(order=0), maximum=4)
        dear = plan("canary", gateway=True, keep_warm=IDLE_S, about=member(order=1), maximum=100)
        stage = scene(cheap, dear)
        for name in ("stable", "canary"):
            stage.has(pods=[], wanted=0, name=name)
        for held, replicas in ((0, (0, 0)), (1, (1, 0)), (64, (4, 0)), (65, (4, 1)), (160, (4, 6))):
            self.round(stage, queue, page.epp(held=held, ready=0))
            assert (stage.outcome("stable")[0], stage.outcome("canary")[0]) == replicas

    def test_weight_of_zero_gets_no_share_and_is_not_woken(self, scene, plan, queue, page):
        stage = self.stage(scene, plan, weights=(1.0, 0.0), maximum=100)
        assert self.round(stage, queue, page.epp(held=160, ready=0)) == [160, 0]
        assert stage.outcome("canary") == (0, False, "asleep")

    def test_ready_backends_on_a_shared_target_belong_to_no_member(self, scene, plan, queue, page):
        stage = scene(*self.plans(plan, self.WEIGHTS))
        self.round(stage, queue, page.epp(held=1, ready=7))
        assert [stage.decision(name).evidence.replicas_ready for name in ("stable", "canary")] == [None, None]

    def test_requests_counted_by_a_gateway_keep_no_weight_of_zero_awake(self, scene, plan, pod, gateway, page):
        stage, fronts = self.stage(scene, plan, weights=(1.0, 0.0)), {}
        for number, name in enumerate(("stable", "canary")):
            engine, front = pod(number, name), gateway(kind="envoy", name=name)
            stage.has(pods=[engine], gateway=front, wanted=1, name=name)
            fronts[front] = engine
        for finished in range(10):
            stage.now += 5.0
            for front, engine in fronts.items():
                stage.land(engine, page.vllm(waiting=0, running=0))
                stage.land(
                    front,
                    f'envoy_cluster_upstream_rq_completed{{envoy_cluster_name="c"}} {finished}\n'
                    'envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="c"} 0\n',
                )
            stage.sweep()
        assert (stage.outcome("stable"), stage.outcome("canary")) == ((1, True, "warm"), (0, False, "asleep"))

    def test_shares_add_up_at_every_tick_while_weights_change(self, scene, plan, queue, page):
        stage = self.stage(scene, plan, weights=(1.0, 0.0), maximum=100)
        self.round(stage, queue, page.epp(held=160, ready=0))
        sums, shares = [], []
        for blue in (0.9, 0.5, 0.1, 0.0):
            # A trigger was changed: a new list of plans takes over.
            after = Decider(self.plans(plan, (blue, 1.0 - blue), maximum=100), interval_s=5.0, fresh_intervals=3.0)
            after.take_over(stage.decider)
            stage.decider = after
            stage.sweep(after=1.0)
            for _ in range(2):
                held = [stage.decider._latest.totals(np.arange(2), stage.now).readings.held.tolist()]
                held.append(self.round(stage, queue, page.epp(held=160, ready=0)))
                sums += [sum(each) for each in held]
                shares.append(held[0])
        assert sums == pytest.approx([160.0] * 16)
        assert np.array(shares)[::2, 0].tolist() == pytest.approx([144, 80, 16, 0])

    def test_workloads_without_a_group_each_count_the_whole_queue(self, scene, plan, queue, page):
        stage = scene(plan("stable", gateway=True), plan("canary", gateway=True))
        assert self.round(stage, queue, page.epp(held=160, ready=0)) == [160, 160]

    def test_variants_without_roles_sleep_independently(self, scene, plan, queue, pod, page):
        stage, engines = self.stage(scene, plan), [pod(0, "stable"), pod(1, "canary")]
        for name, engine in zip(("stable", "canary"), engines, strict=True):
            stage.has(pods=[engine], wanted=1, name=name)
        for _ in range(10):
            stage.now += 5.0
            stage.land(engines[0], page.vllm(waiting=0, running=1))
            stage.land(engines[1], page.vllm(waiting=0, running=0))
            for front in queue:
                stage.land(front, page.epp(held=0, ready=2))
            stage.sweep()
        assert (stage.outcome("stable"), stage.outcome("canary")) == ((1, True, "serving"), (0, False, "asleep"))
