"""Tests what a scrape adds to the totals of its workload, and what stays unknown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import owners_by_name
from exporter.model import PodKey, ReplicaCount, Role, Target, WorkloadKey, without_user
from scaler.signals.latest import LatestSamples, TargetRules
from tests.budget import examples

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
LIMIT_S = 15.0


def target(n=0, role=Role.PODS, kind="vllm", owner=CHAT):
    return Target(f"http://10.0.0.{n}:8000/metrics", kind, role, owner)


def node(n=0):
    return Target(f"http://node-{n}:9400/metrics", "dcgm", Role.GPUS)


@pytest.fixture
def intake():
    sources = [TargetRules(CHAT, pods=True), TargetRules(CODE, pods=True)]
    return LatestSamples(sources, owners_by_name({CHAT: None, CODE: None}), LIMIT_S)


def column(intake, name, now=0.0, rows=(0, 1)):
    """One column of the policy's readings; None if it is unknown."""
    values = getattr(intake.totals(np.array(rows), now).readings, name)
    return [None if np.isnan(value) else value for value in values.tolist()]


def test_everything_is_unknown_and_nothing_is_zero_before_the_first_scrape(intake):
    readings = intake.totals(np.array([0, 1]), 0.0).readings
    for name in ("waiting", "running", "held", "busiest_gpu", "active_at", "pods_listed", "wanted", "ready"):
        assert column(intake, name) == [None, None], name
    assert readings.pods_fresh.tolist() == [0.0, 0.0]
    assert not readings.gateway_fresh.any()
    assert not readings.gpus_stale.any()


def test_scrape_counts_for_its_owner_only(intake, samples, page):
    assert intake.land(target(owner=CODE), samples(page.vllm(waiting=3, running=4)), 0.0) == [1]
    assert column(intake, "waiting") == [None, 3.0]
    assert column(intake, "pods_fresh") == [0.0, 1.0]


def test_reading_is_fresh_until_its_limit(intake, samples, page):
    intake.land(target(), samples(page.vllm(waiting=3, running=4), at=100.0), 100.0)
    assert column(intake, "waiting", now=115.0) == [3.0, None]
    assert column(intake, "waiting", now=115.1) == [None, None]
    assert intake.stale(CHAT, 115.0) == ()
    assert intake.stale(CHAT, 115.1) == (target().url,)


def test_stale_target_is_named_by_its_pod_and_without_credentials(intake, samples, page):
    stale = Target("http://user:secret@10.0.0.7:8000/metrics", "vllm", Role.PODS, CHAT, pod=PodKey("ai", "chat-1-a"))
    intake.expect(stale)
    (named,) = intake.stale(CHAT, 115.0)
    assert named == f"ai/chat-1-a ({without_user(stale.url)})"
    assert "secret" not in named
    assert [reading.name for reading in intake.pages(CHAT, 115.0)] == [named]


def test_scrape_may_be_older_than_its_receipt_and_never_younger(intake, samples, page):
    intake.land(target(), samples(page.vllm(waiting=3).replace(" 3", " 3 90000")), 100.0)
    assert column(intake, "measured_at", now=100.0) == [90.0, None]
    intake.land(target(), samples(page.vllm(waiting=3).replace(" 3", " 3 999999")), 100.0)
    assert column(intake, "measured_at", now=100.0) == [100.0, None]


def test_sum_is_as_old_as_its_oldest_fresh_reading(intake, samples, page):
    intake.land(target(0), samples(page.vllm(waiting=1), at=100.0), 100.0)
    intake.land(target(1), samples(page.vllm(waiting=1), at=108.0), 108.0)
    assert column(intake, "measured_at", now=110.0) == [100.0, None]
    assert column(intake, "measured_at", now=120.0) == [108.0, None]


def test_workload_without_a_model_sums_all_models_of_a_target(intake, samples, page):
    text = page.vllm(waiting=1, running=2, model="a") + page.vllm(waiting=10, running=20, model="b")
    intake.land(target(), samples(text), 0.0)
    assert (column(intake, "waiting")[0], column(intake, "running")[0]) == (11.0, 22.0)


def test_replica_count_can_become_unknown_again(intake):
    intake.counted(CHAT, ReplicaCount(wanted=3, ready=2, at=0.0))
    assert (column(intake, "wanted")[0], column(intake, "ready")[0]) == (3.0, 2.0)
    intake.counted(CHAT, None)
    assert (column(intake, "wanted")[0], column(intake, "ready")[0]) == (None, None)
    intake.counted(WorkloadKey("ai", "stranger"), ReplicaCount(9, 9, 0.0))
    intake.listed(WorkloadKey("ai", "stranger"), 9)
    assert column(intake, "wanted") == [None, None]


def test_list_of_pods_can_become_unknown_again(intake):
    intake.listed(CHAT, 2)
    assert column(intake, "pods_listed") == [2.0, None]
    intake.listed(CHAT, None)
    assert column(intake, "pods_listed") == [None, None]


def test_removed_pod_removes_its_readings(intake, samples, page):
    for n in range(2):
        intake.land(target(n), samples(page.vllm(waiting=5)), 0.0)
    intake.retire(target(0))
    assert column(intake, "waiting") == [5.0, None]
    assert column(intake, "pods_fresh") == [1.0, 0.0]
    intake.retire(target(0))
    intake.retire(target(7))
    assert intake.rows_of(target(0)) == []
    assert intake.rows_of(target(1)) == [0]


def test_new_pod_at_an_old_address_inherits_nothing(intake, samples, page):
    intake.land(target(), samples(page.vllm(waiting=1, running=1, finished=1000)), 0.0)
    intake.retire(target())
    intake.land(target(), samples(page.vllm(running=1, finished=5)), 10.0)
    assert column(intake, "active_at", now=10.0) == [None, None], "5 is a baseline, not a restart"
    assert column(intake, "pods_fresh", now=10.0) == [1.0, 0.0], "it never exposed its waiting requests"


def test_pod_without_a_scrape_has_no_readings_of_a_removed_pod(intake, samples, page):
    # The slot of a removed target is reused.
    intake.land(target(0), samples(page.vllm(waiting=7, running=7)), 0.0)
    intake.retire(target(0))
    intake.expect(target(1))
    assert column(intake, "pods_fresh") == [0.0, 0.0]
    assert column(intake, "waiting") == [None, None]
    assert column(intake, "measured_at") == [None, None]


def test_expected_target_is_stale_until_its_first_scrape(intake, samples, page):
    intake.expect(target())
    assert intake.rows_of(target()) == [0]
    assert intake.stale(CHAT, 0.0) == (target().url,)
    intake.land(target(), samples(page.vllm(waiting=0)), 0.0)
    assert intake.stale(CHAT, 0.0) == ()


def test_engines_of_a_workload_that_is_not_adopted_are_expected(intake, samples, page):
    intake.land(target(), samples(page.vllm(waiting=3)), 0.0)
    intake.land(node(), samples(page.gpu("GPU-1", ["chat-0"], engine=0.5)), 0.0)
    later = LatestSamples([TargetRules(CHAT, pods=True)], owners_by_name({CHAT: None}), LIMIT_S)
    later.adopt(intake, np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert later.stale(CHAT, 0.0) == (target().url,)
    assert column(later, "waiting", rows=[0]) == [None]


def test_each_of_many_targets_has_a_slot_of_its_own(intake, samples, page):
    scrape = samples(page.vllm(waiting=1))
    for n in range(150):  # more than two times the first 64
        intake.land(target(n), scrape, 0.0)
    assert column(intake, "waiting") == [150.0, None]


def test_finished_requests_are_summed_over_pods_and_restarts(intake, samples, page):
    def finished(n, count):
        intake.land(target(n), samples(page.vllm(waiting=0, finished=count)), 0.0)
        return float(intake.totals(np.array([0]), 0.0).finished[0])

    assert finished(0, 1000) == 0.0  # the first value of each is a baseline
    assert finished(1, 500) == 0.0
    assert finished(0, 1010) == 10.0
    assert finished(1, 505) == 15.0
    assert finished(0, 3) == 18.0  # it restarted and has finished 3 since
    intake.retire(target(1))
    assert finished(0, 4) == 19.0, "a removed pod subtracts nothing"


def test_gpu_target_belongs_to_every_workload_with_a_pod_on_it(intake, samples, page):
    text = page.gpu("GPU-1", ["chat-0"], engine=0.5) + page.gpu("GPU-2", ["code-0"], engine=0.25)
    text += page.gpu("GPU-3", ["stranger-0"], engine=1.0) + page.gpu("GPU-4", engine=1.0)
    assert sorted(intake.land(node(), samples(text), 0.0)) == [0, 1]
    assert column(intake, "busiest_gpu") == [0.5, 0.25]
    assert intake.totals(np.array([0, 1]), 0.0).gpu_engine.tolist() == [0.5, 0.25]


def test_gpus_of_several_nodes_have_one_mean_and_one_maximum(intake, samples, page):
    gpus = page.gpu("GPU-1", ["chat-0"], engine=0.9) + page.gpu("GPU-2", ["chat-0"], engine=0.3)
    intake.land(node(0), samples(gpus), 0.0)
    intake.land(node(1), samples(page.gpu("GPU-3", ["chat-1"], engine=0.0)), 0.0)
    totals = intake.totals(np.array([0]), 0.0)
    assert totals.gpu_engine[0] == pytest.approx((0.9 + 0.3 + 0.0) / 3)
    assert totals.readings.busiest_gpu[0] == 0.9


def test_gpu_without_activity_is_not_an_idle_one(intake, samples, page):
    gpus = page.gpu("GPU-1", ["chat-0"], engine=0.9) + page.gpu("GPU-2", ["chat-0"])
    intake.land(node(), samples(gpus), 0.0)
    assert intake.totals(np.array([0]), 0.0).gpu_engine[0] == 0.9, "the mean over GPUs that expose it"
    intake.land(node(), samples(page.gpu("GPU-1", ["chat-0"]) + page.gpu("GPU-2", ["chat-0"])), 0.0)
    assert np.isnan(intake.totals(np.array([0]), 0.0).gpu_engine[0])
    assert column(intake, "busiest_gpu") == [None, None]


def test_pods_on_gpus_count_as_ready_replicas_only_if_no_pods_are_scraped(samples, page):
    gpus = page.gpu("GPU-1", ["chat-0"], engine=0.9) + page.gpu("GPU-2", ["chat-0"], engine=0.9)
    gpus += page.gpu("GPU-3", ["chat-1"], engine=0.9)
    for pods, ready in ((False, 2.0), (True, None)):
        intake = LatestSamples([TargetRules(CHAT, pods=pods)], owners_by_name({CHAT: None}), LIMIT_S)
        intake.land(node(), samples(gpus), 0.0)
        assert column(intake, "ready", rows=[0]) == [ready]


def test_pattern_assigns_a_pod_to_its_workload(samples, page):
    owners = owners_by_name({CHAT: "serve-*", CODE: None})
    assert owners(PodKey("ai", "serve-abc"), 0.0) == (CHAT,)
    assert owners(PodKey("ai", "chat-0"), 0.0) == ()
    assert owners(PodKey("ai", "code-0"), 0.0) == (CODE,)
    assert owners(PodKey("other", "code-0"), 0.0) == ()
    assert owners(PodKey("other", "code-0"), 0.0) == (), "from the cache, too"


def test_any_number_of_targets_can_be_stored(samples, page):
    # Several times the initial size of the arrays, in an order that mixes owners.
    keys = [WorkloadKey("ai", f"w{n}") for n in range(10)]
    intake = LatestSamples([TargetRules(key, pods=True) for key in keys], owners_by_name(dict.fromkeys(keys)), LIMIT_S)
    one = samples(page.vllm(waiting=1))
    for n in range(500):
        intake.land(target(n, owner=keys[n % 10]), one, 1000.0)
    assert column(intake, "waiting", now=1000.0, rows=range(10)) == [50.0] * 10
    for n in range(0, 500, 2):
        intake.retire(target(n, owner=keys[n % 10]))
    assert column(intake, "waiting", now=1000.0, rows=range(10)) == [None, 50.0] * 5
    for n in range(500, 700):
        intake.land(target(n, owner=keys[0]), one, 1000.0)
    assert column(intake, "waiting", now=1000.0, rows=range(10)) == [200.0, 50.0, *[None, 50.0] * 4]


events = st.one_of(
    st.tuples(st.just("land"), st.integers(0, 5), st.integers(0, 9)),
    st.tuples(st.just("retire"), st.integers(0, 5), st.none()),
    st.tuples(st.just("expect"), st.integers(0, 5), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 10), st.none()),
)


@settings(max_examples=examples(40), deadline=None)
@given(events=st.lists(events, max_size=30))
def test_aggregates_are_the_sum_of_the_last_fresh_response_of_every_listed_target(events):
    """Compares with a dictionary that computes the same in three lines."""
    from exporter.catalog import Reader  # noqa: PLC0415
    from exporter.textformat import parse  # noqa: PLC0415

    intake = LatestSamples(
        [TargetRules(CHAT, pods=True), TargetRules(CODE, pods=True)], owners_by_name({CHAT: None, CODE: None}), LIMIT_S
    )
    last, now = {}, 1000.0
    for act, n, value in events:
        owner = n % 2
        where = target(n, owner=(CHAT, CODE)[owner])
        if act == "land":
            text = f'vllm:num_requests_waiting{{model_name="m"}} {value}\n'
            intake.land(where, Reader("vllm").read(parse(text.encode()), now), now)
            last[n] = (owner, value, now)
        elif act == "retire":
            intake.retire(where)
            last.pop(n, None)
        elif act == "expect":
            intake.expect(where)
        else:
            now += n
        for rows in ([0, 1], [1], [0]):
            fresh = [(owner, value) for owner, value, at in last.values() if now - at <= LIMIT_S]
            expected = [[value for owner, value in fresh if owner == row] for row in rows]
            assert column(intake, "waiting", now, rows) == [
                float(sum(values)) if values else None for values in expected
            ]
            assert column(intake, "pods_fresh", now, rows) == [float(len(values)) for values in expected]


def test_work_of_a_terminating_pod_is_activity_and_no_capacity(intake, samples, page):
    stays, leaves = target(0), target(1)
    intake.listed(CHAT, 1)
    intake.land(stays, samples(page.vllm(waiting=0, running=3, kv=0.2)), 0.0)
    intake.land(leaves, samples(page.vllm(waiting=0, running=4, kv=0.8)), 0.0)
    intake.leaving(CHAT, {leaves})
    assert column(intake, "running", rows=[0]) == [7.0]
    assert column(intake, "pods_fresh", rows=[0]) == [1.0]
    totals = intake.totals(np.array([0]), 0.0)
    assert (totals.kv_cache.tolist(), totals.in_pods.tolist()) == ([0.2], [3.0])


def test_terminating_pod_need_not_respond(intake, samples, page):
    intake.land(target(0), samples(page.vllm(waiting=0, running=3)), 0.0)
    intake.expect(target(1))
    assert intake.stale(CHAT, 0.0) == (target(1).url,)
    intake.leaving(CHAT, {target(1)})
    assert intake.stale(CHAT, 0.0) == ()
    intake.leaving(CHAT, ())
    assert intake.stale(CHAT, 0.0) == (target(1).url,)


def test_work_of_the_last_terminating_pod_needs_no_replica_if_zero_is_wanted(intake, samples, page):
    intake.land(target(), samples(page.vllm(waiting=0, running=3)), 0.0)
    intake.leaving(CHAT, {target()})
    intake.counted(CHAT, ReplicaCount(wanted=0, ready=0, at=0.0))
    assert column(intake, "running", rows=[0]) == [None]
    intake.counted(CHAT, ReplicaCount(wanted=1, ready=0, at=0.0))
    assert column(intake, "running", rows=[0]) == [3.0]


def test_missing_pods_are_imputed_and_a_gateway_is_not_multiplied(intake, samples, page):
    intake.listed(CHAT, 4)
    for n in range(3):
        intake.land(target(n), samples(page.vllm(waiting=1, running=9)), 0.0)
    intake.land(target(9), samples(page.vllm(waiting=0, running=5)), 0.0)
    intake.leaving(CHAT, {target(9)})
    intake.land(target(8, Role.GATEWAY, "epp"), samples(page.epp(held=2, ready=4)), 0.0)
    totals = intake.totals(np.array([0, 1]), 0.0)
    totals.impute(np.array([True, False]))
    # 30 in 3 of 4 pods are 40; 5 in a terminating pod and 2 at the gateway are not multiplied.
    assert totals.latest[0, 0] == 47.0
    assert np.isnan(totals.latest[1, 0])


RAY = 'ray_serve_{name}{{application="a",deployment="d"}} {value}\n'


def ray(**values):
    return "".join(RAY.format(name=name, value=value) for name, value in values.items())


def test_request_of_ray_serve_is_counted_once_over_its_proxy_and_its_replicas(samples):
    """A proxy queues 3 requests and has passed on 4; on another node replicas process those, and its proxy has none."""
    proxy = ray(deployment_queued_queries=3, num_ongoing_requests_at_replicas=4)
    worker = ray(deployment_queued_queries=0, num_ongoing_requests_at_replicas=0, replica_processing_queries=4)

    def landed(*pages, pods):
        intake = LatestSamples([TargetRules(CHAT, pods=pods)], owners_by_name({CHAT: None}), LIMIT_S)
        for number, (role, text) in enumerate(pages):
            intake.land(target(number, role, kind="ray_serve"), samples(text), 0.0)
        return [column(intake, name, rows=(0,)) for name in ("waiting", "running")]

    assert landed((Role.GATEWAY, proxy), (Role.PODS, worker), pods=True) == [[3.0], [4.0]]
    assert landed((Role.GATEWAY, proxy), (Role.GATEWAY, worker), pods=False) == [[3.0], [4.0]]
    assert landed((Role.GATEWAY, proxy), pods=False) == [[3.0], [4.0]]
    # Both workers' proxies have passed on requests to each other's replicas.
    crossed = ray(deployment_queued_queries=1, num_ongoing_requests_at_replicas=5, replica_processing_queries=2)
    back = ray(deployment_queued_queries=2, num_ongoing_requests_at_replicas=1, replica_processing_queries=4)
    assert landed((Role.PODS, crossed), (Role.PODS, back), pods=True) == [[3.0], [6.0]]


def test_target_with_a_maximum_age_is_fresh_for_that_age(intake, samples, page):
    slow = Target("promql+http://prometheus/?pod=chat-0", "vllm", Role.PODS, CHAT, max_age_s=60.0)
    intake.land(slow, samples(page.vllm(waiting=3, running=4), at=100.0), 100.0)
    assert column(intake, "waiting", now=160.0) == [3.0, None]
    assert column(intake, "waiting", now=160.1) == [None, None]


def test_gpu_without_its_label_for_a_moment_keeps_its_workload(intake, samples, page):
    intake.land(node(), samples(page.gpu("GPU-1", ["chat-7d9f8b6c5d-x2k9q"], engine=0.7)), 0.0)
    intake.land(node(), samples(page.gpu("GPU-1", engine=0.9)), 5.0)
    assert column(intake, "busiest_gpu", now=5.0, rows=[0]) == [0.9]
    # Without a cluster its pod may have ended: activity on the GPU may still be the pod's, and it sizes nothing.
    intake.land(node(), samples(page.gpu("GPU-1", engine=0.9)), 65.0)
    assert column(intake, "busiest_gpu", now=65.0, rows=[0]) == [0.9]
    assert intake.totals(np.array([0]), 65.0).gpu_engine.tolist() != [0.9]
    intake.land(node(), samples(page.gpu("GPU-1", ["other-7d9f8b6c5d-x2k9q"], engine=0.9)), 70.0)
    assert column(intake, "busiest_gpu", now=70.0, rows=[0]) == [None]


def test_new_list_of_workloads_takes_over_its_readings(samples, page):
    owners = owners_by_name({CHAT: None, CODE: None})
    old = LatestSamples([TargetRules(CODE, pods=True), TargetRules(CHAT, pods=True)], owners, LIMIT_S)
    old.listed(CHAT, 1)
    old.counted(CHAT, ReplicaCount(wanted=2, ready=1, at=0.0, pending=1))
    old.land(target(0), samples(page.vllm(waiting=3, running=4)), 0.0)
    old.land(target(1, owner=CODE), samples(page.vllm(waiting=5, running=6)), 0.0)
    new_key = WorkloadKey("ai", "new")
    new = LatestSamples([TargetRules(new_key, pods=True), TargetRules(CHAT, pods=True)], owners, LIMIT_S)
    new.adopt(old, np.array([1]), np.array([1]))
    assert column(new, "waiting") == [None, 3.0]
    assert column(new, "pods_listed") == [None, 1.0]
    assert column(new, "pending") == [None, 1.0]
    assert new.stale(CHAT, 0.0) == ()
    # The slot stays with its target, and the slot of a removed target is free for another.
    assert new.land(target(0), samples(page.vllm(waiting=7, running=0)), 1.0) == [1]
    assert new.land(target(2, owner=new_key), samples(page.vllm(waiting=9, running=0)), 1.0) == [0]
    assert column(new, "waiting", now=1.0) == [9.0, 7.0]
