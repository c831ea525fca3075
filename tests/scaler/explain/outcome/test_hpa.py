"""The HPA's next steps from one replica on, and the reasons why there are none."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from exporter.kubernetes.objects import BehaviorPolicy, HpaMetricSpec
from scaler.controllers import hpa as controller
from scaler.controllers.hpa import past_band
from scaler.explain.outcome import controller_outcome
from scaler.explain.outcome_inputs import of_hpa

from .conftest import NOW, OURS, decision, facts, hpa, scaled

EXACT = {"up": {"tolerance": 0.0}, "down": {"tolerance": 0.0}}


def with_hpa(current, **words):
    return facts(current, scaled_object=scaled(minimum=1), hpas=[hpa(**words)])


def test_step_up_is_taken_at_the_next_sync(foresee):
    assert foresee(decision(5), with_hpa(4, **EXACT)) == (
        "up",
        "in at most 15 s the HPA sets 5: 4 -> 5",
        [(15.0, 5)],
    )


def test_reached_number_is_settled(foresee):
    assert foresee(decision(4), with_hpa(4, **EXACT)) == (
        "settled",
        "nothing: 4 exist and 4 are published",
        [],
    )


def test_cached_metrics_are_read_a_poll_later(foresee):
    around = facts(4, scaled_object=scaled(minimum=1, cached=True, polling_s=10.0), hpas=[hpa(**EXACT)])
    assert foresee(decision(5), around)[1:] == ("in at most 25 s the HPA sets 5: 4 -> 5", [(25.0, 5)])


def test_step_down_within_the_tolerance_waits_for_the_band(foresee):
    # 19/20 is 0.95; 18/20 is 0.9, which is still inside; 17/20 is not.
    code, why, acts = foresee(decision(19), with_hpa(20, up={}))
    assert (code, acts) == ("in_band", [])
    assert why == "nothing: 19 is within its tolerance of 0.1 around 20; it goes down when 17 or fewer are published"
    assert foresee(decision(18), with_hpa(20, up={}))[0] == "in_band"
    assert foresee(decision(17), with_hpa(20, up={}))[0] == "down"


def test_step_up_published_past_the_tolerance_is_followed(foresee):
    code, why, acts = foresee(decision(11, published=12), with_hpa(10, up={}))
    assert (code, why) == ("up", "in at most 15 s the HPA sets 12: 10 -> 12")
    assert acts == [(15.0, 12)]  # and there it stays: 11 is within the band of 12


def test_tolerance_of_the_hpa_itself_counts(foresee):
    code, why, _ = foresee(decision(11), with_hpa(10, up={"tolerance": 0.2}))
    assert (code, why) == ("in_band", "nothing: 11 is within its tolerance of 0.2 around 10")


def test_step_down_waits_for_the_stabilisation_window(foresee):
    # Published for 100 s; before that, 4 were published at most.
    code, why, acts = foresee(decision(2, for_s=100.0), with_hpa(4, down={"window_s": 300.0, "tolerance": 0.0}))
    assert (code, why) == ("stabilised", "waits for its 300 s stabilization window: in at most 215 s it sets 2")
    assert acts == [(pytest.approx(215.0, abs=0.01), 2)]


def test_without_a_behavior_it_waits_for_the_clusters_window(foresee):
    code, why, acts = foresee(decision(2, for_s=0.0), with_hpa(4))
    assert (code, acts) == ("stabilised", [(pytest.approx(315.0, abs=0.01), 2)])
    assert "300 s stabilization window" in why


def test_step_up_may_be_stabilised_too(foresee):
    code, why, acts = foresee(decision(6, for_s=10.0), with_hpa(4, up={"window_s": 60.0, "tolerance": 0.0}))
    assert (code, why) == ("stabilised", "waits for its 60 s stabilization window: in at most 65 s it sets 6")
    assert acts == [(pytest.approx(65.0, abs=0.01), 6)]


def test_policies_let_it_go_step_by_step(foresee):
    doubling = (BehaviorPolicy("Percent", 100, 15.0),)
    code, why, acts = foresee(decision(20), with_hpa(3, up={"policies": doubling, "tolerance": 0.0}))
    assert (code, why) == ("rate_limited", "in at most 15 s the HPA sets 6: 3 -> 6, limited to +100 % per 15 s")
    assert acts == [(15.0, 6), (30.0, 12), (45.0, 20)]


def test_policy_that_may_be_used_up_may_take_longer():
    doubling = (BehaviorPolicy("Percent", 100, 15.0),)
    around = with_hpa(3, up={"policies": doubling}, desired=3, scaled_at=NOW - 5.0)
    found = controller_outcome(decision(20), around, NOW)
    assert (
        "it scaled 5 s ago, and how much of its policies that spent is not visible: it may take up to 15 s longer"
    ) in found.sentences


@pytest.mark.parametrize(("wanted", "way"), [(2, "down"), (8, "up")])
def test_disabled_direction_stays_disabled_after_the_window(foresee, wanted, way):
    """As KEDA has it for its annotations paused-scale-in and paused-scale-out: a window, and no way."""
    rules = {way: {"select": "Disabled", "window_s": 300.0}}
    assert foresee(decision(wanted), with_hpa(4, **rules)) == (
        "disabled",
        f"nothing: scaling {way} is disabled (selectPolicy: Disabled)",
        [],
    )


def test_annotations_that_disable_a_direction_are_named():
    around = facts(4, scaled_object=scaled(pauses={"scale_in": True}), hpas=[hpa(down={"select": "Disabled"})])
    assert controller_outcome(decision(2), around, NOW).sentences[1] == (
        "autoscaling.keda.sh/paused-scale-in of chat: KEDA sets selectPolicy: Disabled in its HPA meanwhile"
    )


def test_scaling_down_that_is_disabled_never_comes(foresee):
    assert foresee(decision(2), with_hpa(4, down={"select": "Disabled"})) == (
        "disabled",
        "nothing: scaling down is disabled (selectPolicy: Disabled)",
        [],
    )


def test_its_bounds_hold(foresee):
    assert foresee(decision(9), with_hpa(8, maximum=8, **EXACT)) == (
        "at_max",
        "limited by maxReplicas 8: 9 are published",
        [],
    )
    assert foresee(decision(1), with_hpa(2, minimum=2, **EXACT)) == (
        "at_min", "limited by minReplicas 2: 1 are published", [],
    )  # fmt: skip
    assert foresee(decision(20), with_hpa(7, maximum=8, **EXACT))[1:] == (
        "in at most 15 s the HPA sets 8: 7 -> 8, limited to 8 by maxReplicas", [(15.0, 8)],
    )  # fmt: skip


def test_largest_number_for_one_target_counts(foresee):
    code, why, _ = foresee(decision(2), with_hpa(4, **EXACT), [decision(6, name="other")])
    assert (code, why) == ("up", "in at most 15 s the HPA sets 6: 4 -> 6")
    observed = [decision(6, name="other", observed=True)]
    assert foresee(decision(4), with_hpa(4, **EXACT), observed)[0] == "settled"


def test_metric_of_type_value_is_multiplied_by_the_ready_pods(foresee):
    # 3 published at a target of 1, with 2 ready pods: 6.
    value = (HpaMetricSpec("Object", "tidegate-replicas", "Value", 1.0),)
    assert foresee(decision(3, wanted=2), with_hpa(2, metrics=value, **EXACT))[2][0] == (15.0, 6)


def test_hpa_with_other_metrics_is_an_obstacle(foresee):
    # KEDA 2.19 makes an HPA on cpu where its scaler was down when the ScaledObject was made.
    cpu = (HpaMetricSpec("Resource", "cpu", "Utilization", None),)
    assert foresee(decision(5), with_hpa(4, metrics=cpu)) == (
        "other_metrics",
        "nothing: keda-hpa-chat scales by cpu, and not by tidegate-replicas",
        [],
    )


def test_other_metrics_of_the_hpa_may_need_more():
    metrics = (*OURS, HpaMetricSpec("Resource", "cpu", "Utilization", None))
    sentences = controller_outcome(decision(5), with_hpa(5, metrics=metrics), NOW).sentences
    assert "1 of the metrics of keda-hpa-chat are not Tidegate's: the largest number counts" in sentences


def test_status_of_the_hpa_is_shown():
    around = facts(5, scaled_object=scaled(), hpas=[hpa(current=4, desired=5, scaled_at=NOW - 40.0)])
    sentences = controller_outcome(decision(5), around, NOW).sentences
    assert "keda-hpa-chat keeps 1 to 20 replicas; last it counted 4 and wanted 5; it scaled 40 s ago" in sentences


def test_hpa_before_its_first_sync_has_no_desired_number():
    around = facts(5, scaled_object=scaled(), hpas=[hpa(current=None, desired=None)])
    sentences = controller_outcome(decision(5), around, NOW).sentences
    assert "keda-hpa-chat keeps 1 to 20 replicas, and has no desired number yet" in sentences


def test_hpa_that_is_disabled_at_zero_is_no_error():
    around = facts(0, scaled_object=scaled(), hpas=[hpa(current=0, desired=0, scaled_at=NOW - 40.0)])
    sentences = controller_outcome(decision(0), around, NOW).sentences
    assert "keda-hpa-chat keeps 1 to 20 replicas; last it counted 0 and wanted 0; it scaled 40 s ago" in sentences


WINDOWS = st.sampled_from([0.0, 15.0, 30.0, 60.0, 300.0])
BANDS = st.sampled_from([None, 0.0, 0.05, 0.3])


@settings(max_examples=300, deadline=None)
# 6 are published to get from 4 to 5, and it returns to 5 after its window for scaling down.
@example(published=[(4, 1), (5, 1)], up=(30.0, 0.3), down=(30.0, None), behaves=True, phase=0.0, start=1)
@given(
    published=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=8),
    up=st.tuples(WINDOWS, BANDS),
    down=st.tuples(WINDOWS, BANDS),
    behaves=st.booleans(),
    phase=st.floats(0.0, 14.9),
    start=st.integers(1, 30),
)
def test_hpa_does_what_is_foreseen_and_no_later(published, up, down, behaves, phase, start):
    """Runs an HPA: each number is decided for so many syncs. Then its outcome is predicted, and it continues."""
    words = {"up": {"window_s": up[0], "tolerance": up[1]}, "down": {"window_s": down[0], "tolerance": down[1]}}
    life = Life(hpa(maximum=1000, **(words if behaves else {})), start)
    for replicas, syncs in published:
        life.decide(replicas)
        for _ in range(syncs):
            life.sync()
    # Without a behavior it may still be on its way to an earlier, higher number, which it does not report.
    assume(behaves or life.most <= life.current)
    # The prediction is made between two syncs.
    now = life.clock + phase
    last = decision(life.replicas, published=life.published, for_s=now - life.since)
    foreseen = controller_outcome(last, facts(life.current, scaled_object=scaled(minimum=1), hpas=[life.hpa]), NOW)

    while life.clock + 15.0 <= now + (foreseen.acts[-1].within_s if foreseen.acts else 0.0):
        life.sync()
    # By then it is at the predicted number or, after several steps, within its tolerance.
    before = life.current
    for _ in range(3):
        life.sync()
    assert life.current == before
    assert life.replicas <= life.current


class Life:
    """An HPA that syncs every 15 s, and a Tidegate that publishes at once."""

    def __init__(self, found, current):
        self.hpa, self.current, self.clock, self.since = found, current, 0.0, 0.0
        self._spec = of_hpa(found, 0.1)
        # At its start a controller counts the found number as a recommendation; this one has been running.
        self._memory = controller.HpaMemory(recommended=())
        self.replicas = self.published = self.most = current

    def decide(self, replicas):
        self.replicas = replicas
        self._publish()

    def _publish(self):
        up = self._spec.tolerance if self._spec.behavior is None else self._spec.behavior.up.tolerance
        columns = np.array([[self.replicas], [self.current], [0.1 if up is None else up]], dtype=float)
        published = int(past_band(*columns)[0])
        if published != self.published:
            self.published, self.since, self.most = published, self.clock, max(self.most, published)

    def sync(self):
        self.clock += 15.0
        metrics = [controller.HpaMetric(float(self.published), 1.0)]
        outcome, self._memory = controller.step(
            self._spec, self._memory, metrics, self.current, self.current, self.clock
        )
        self.current = outcome.replicas
        self._publish()
