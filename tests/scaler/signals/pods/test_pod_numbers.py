"""Tests the readings of single pods through the decider, from the metrics of vendors."""

import numpy as np
import pytest

from exporter.catalog import Reader
from exporter.model import Attribution, Gpu, PodKey, Quantity, Role, Samples, Target, WorkloadKey
from exporter.textformat import parse
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.signals.pods import GpuPage, numbers
from scaler.workloads.spec import WorkloadSpec

CHAT, DECODE, LAB = WorkloadKey("ai", "chat"), WorkloadKey("ai", "chat", "decode"), WorkloadKey("lab", "chat")
FRESH_S = 15.0


def owners(pod, at):
    """Pods named chat-… belong to chat, those named both-… to two triggers, others to no workload."""
    del at
    by_prefix = {"chat": (CHAT,), "both": (CHAT, DECODE)} if pod.namespace == "ai" else {"chat": (LAB,)}
    return by_prefix.get(pod.pod.split("-")[0], ())


def deciding(owners=owners):
    plans = [
        WorkloadSpec(key, Spec(targets=((Signal.WORK, 16.0),), minimum=0, maximum=8)) for key in (CHAT, DECODE, LAB)
    ]
    return Decider(plans, interval_s=5.0, fresh_intervals=3.0, owners=owners)


class Stage:
    """Lands scrapes on a decider and reads the numbers of pods. Times are POSIX seconds."""

    def __init__(self):
        self.now, self.decider, self._readers = 1000.0, deciding(), {}

    def land(self, target, text):
        reader = self._readers.setdefault(target, Reader(target.kind))
        self.decider.land(target, reader.read(parse(text.encode()), self.now), self.now, self.now)

    def pods(self, chosen=lambda _: True, namespace="ai"):
        return self.decider.latest.pods(namespace, lambda pod: pod.namespace == namespace and chosen(pod), self.now)

    def only(self, name="chat-0"):
        """The numbers of a pod of one workload."""
        (numbers,) = self.pods()[PodKey("ai", name)]
        return numbers


def engine(name="chat-0", owner=CHAT, port=8000, **more):
    return Target(f"http://{name}:{port}/", "vllm", Role.PODS, owner, pod=PodKey(owner.namespace, name), **more)


def node(number=0, **more):
    return Target(f"http://node-{number}:9400/metrics", "dcgm", Role.GPUS, **more)


@pytest.fixture
def stage():
    return Stage()


def test_queue_of_a_pod_is_the_waiting_and_running_requests_of_its_engine(stage, page):
    stage.land(engine("chat-0"), page.vllm(waiting=3, running=5))
    stage.now += 1.0
    stage.land(engine("chat-1"), page.vllm(waiting=0, running=0))
    first, second = stage.only("chat-0"), stage.only("chat-1")
    assert [first.waiting, first.running, first.queue] == [(3.0, 1000.0), (5.0, 1000.0), (8.0, 1000.0)]
    assert [second.waiting, second.running, second.queue] == [(0.0, 1001.0)] * 3
    assert (first.workload, first.stale_engines) == (CHAT, ())


def test_only_chosen_pods_of_the_namespace_are_read(stage, page):
    for target in (engine("chat-0"), engine("chat-1"), engine("chat-0", LAB)):
        stage.land(target, page.vllm(waiting=1, running=0))
    stage.land(node(), page.gpu("GPU-1", ["chat-1"], engine=0.5) + page.gpu("GPU-2", [("lab", "chat-2")], engine=0.5))
    assert [PodKey("ai", "chat-0")] == list(stage.pods(lambda pod: pod.pod == "chat-0"))
    assert {PodKey("lab", "chat-0"), PodKey("lab", "chat-2")} == set(stage.pods(namespace="lab"))


def test_missing_number_is_unknown_and_not_zero(stage, page):
    stage.land(engine(), page.vllm(waiting=3))
    numbers_of_pod = stage.only()
    assert (numbers_of_pod.waiting.value, numbers_of_pod.running) == (3.0, None)
    # It counts like the work of its workload: an engine may lack one of both.
    assert numbers_of_pod.queue.value == 3.0
    stage.land(engine("chat-1"), page.vllm(tokens=7))
    assert [stage.only("chat-1").waiting, stage.only("chat-1").running, stage.only("chat-1").queue] == [None] * 3


def test_incomplete_response_makes_the_queue_of_its_pod_unknown(stage, page):
    stage.land(engine(), page.vllm(waiting=3, running=5))
    stage.land(engine(), page.vllm(waiting=3))
    numbers_of_pod = stage.only()
    assert [numbers_of_pod.waiting, numbers_of_pod.running, numbers_of_pod.queue] == [None] * 3
    assert (engine().url,) == numbers_of_pod.stale_engines


def test_stale_target_is_named_and_its_numbers_are_unknown(stage, page):
    stage.land(engine(), page.vllm(waiting=3, running=5))
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], engine=0.5))
    stage.now += FRESH_S
    assert stage.only().queue is not None
    assert stage.only().gpu_engine_active is not None
    stage.now += 0.1
    numbers_of_pod = stage.only()
    assert [numbers_of_pod.waiting, numbers_of_pod.running, numbers_of_pod.queue, numbers_of_pod.gpu_engine_active] == [
        None
    ] * 4
    assert (numbers_of_pod.stale_engines, numbers_of_pod.stale_gpus) == ((engine().url,), (node().url,))


def test_target_with_a_maximum_age_is_fresh_for_longer(stage, page):
    target, gpus = engine(max_age_s=60.0), node(max_age_s=60.0)
    stage.land(target, page.vllm(waiting=3, running=5))
    stage.land(gpus, page.gpu("GPU-1", ["chat-0"], engine=0.5))
    stage.now += 60.0
    assert (stage.only().queue.value, stage.only().gpu_engine_active.value) == (8.0, 0.5)


def test_target_without_a_scrape_is_stale(stage):
    stage.decider.expect(engine())
    assert (None, (engine().url,)) == (stage.only().queue, stage.only().stale_engines)


def test_retired_target_belongs_to_no_pod(stage, page):
    stage.land(engine(), page.vllm(waiting=3, running=5))
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], engine=0.5))
    stage.decider.retire(engine())
    stage.decider.retire(node())
    assert stage.pods() == {}


def test_gpu_activity_is_the_mean_over_the_exclusive_gpus_of_the_pod(stage, page):
    two = page.gpu("GPU-1", ["chat-0"], engine=0.4) + page.gpu("GPU-2", ["chat-0"], engine=0.8)
    stage.land(node(), two + page.gpu("GPU-3", ["chat-1"], engine=0.1))
    # Until DCGM's interval is learned, a value may be 30 s older than its receipt.
    assert stage.only("chat-0").gpu_engine_active == pytest.approx((0.6, 970.0))
    assert stage.only("chat-1").gpu_engine_active == pytest.approx((0.1, 970.0))


def test_mig_slice_is_exclusive_to_its_pod(stage, page):
    slices = page.gpu("GPU-1", ["chat-0"], engine=0.5, mig="1") + page.gpu("GPU-1", ["chat-1"], engine=1.0, mig="2")
    stage.land(node(), slices)
    assert tuple(stage.only(name).gpu_engine_active.value for name in ("chat-0", "chat-1")) == (0.5, 1.0)


def test_unequal_slices_are_weighted_by_their_share_of_a_gpu(stage, page):
    small = page.gpu("GPU-1", ["chat-0"], engine=1.0, mig="1")
    large = page.gpu("GPU-1", ["chat-0"], engine=0.3, mig="2").replace("1g.10gb", "3g.40gb")
    stage.land(node(), small + large)
    assert stage.only().gpu_engine_active.value == pytest.approx((1 * 1.0 + 3 * 0.3) / 4)


def test_target_with_constant_values_is_stale(stage, page):
    def joules(value):
        return (
            page.gpu("GPU-1", ["chat-0"], engine=0.5)
            + f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="GPU-1"}} {value}\n'
        )

    for second in range(30):
        stage.now += 5.0
        stage.land(node(), joules(second * 1e6))
    assert stage.only().gpu_engine_active is not None
    for _ in range(30):
        stage.now += 5.0
        stage.land(node(), joules(29e6))
    assert (stage.only().gpu_engine_active, stage.only().stale_gpus) == (None, (node().url,))


@pytest.mark.parametrize(
    ("pods", "more"),
    [
        (["chat-0", "chat-1"], {}),
        (["chat-0", "stranger"], {}),
        (["chat-0"], {"vgpu": "1"}),  # time slices: the other pods are not named
    ],
)
def test_share_of_a_shared_gpu_is_never_estimated(stage, page, pods, more):
    stage.land(node(), page.gpu("GPU-1", pods, engine=1.0, **more))
    assert stage.only("chat-0").gpu_engine_active is None
    stage.land(node(), page.gpu("GPU-1", pods, engine=1.0, **more) + page.gpu("GPU-2", ["chat-0"], engine=0.25))
    assert stage.only("chat-0").gpu_engine_active.value == 0.25


def test_gpu_of_two_pods_has_no_numbers_for_either():
    pods = (PodKey("ai", "chat-0"), PodKey("ai", "chat-1"))
    gpu = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=pods)
    samples = Samples("dcgm", (gpu,), (Quantity.GPU_ENGINE_ACTIVE,), np.array([[0.5]]), np.array([1000.0]))
    found = numbers([], [GpuPage("http://node/", samples, 1000.0, FRESH_S, 0.0)], owners, lambda _: True, 1000.0)
    assert [found[pod][0].gpu_engine_active for pod in pods] == [None, None]


def test_engine_activity_is_not_split_by_process(stage, page):
    parts = page.gpu("GPU-1", ["chat-0"], engine=0.9, util=30, vgpu="1")
    stage.land(node(), page.gpu("GPU-1", engine=0.9, util=90, vgpu="1") + parts)
    assert stage.only().gpu_engine_active is None


def test_utilisation_does_not_replace_engine_activity(stage, page):
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], util=100))
    assert stage.only().gpu_engine_active is None
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], util=100) + page.gpu("GPU-2", ["chat-0"], engine=0.5))
    assert stage.only().gpu_engine_active.value == 0.5


def test_gpu_on_two_targets_counts_once_with_its_newer_value(stage, page):
    stage.land(node(1), page.gpu("GPU-1", ["chat-0"], engine=0.2) + page.gpu("GPU-2", ["chat-0"], engine=1.0))
    stage.now += 1.0
    stage.land(node(2), page.gpu("GPU-1", ["chat-0"], engine=0.4))
    assert stage.only().gpu_engine_active == pytest.approx((0.7, 970.0))


def test_gpu_without_its_label_for_a_moment_keeps_its_pod(stage, page):
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], engine=0.2))
    stage.now += 5.0
    stage.land(node(), page.gpu("GPU-1", engine=0.4))
    assert stage.only().gpu_engine_active == (0.4, 975.0)


def test_pods_of_other_workloads_have_no_numbers(stage, page):
    stage.land(node(), page.gpu("GPU-1", ["stranger-0"], engine=0.9))
    assert stage.pods() == {}


def test_pod_of_two_workloads_has_an_entry_for_each_and_one_gpu(stage, page):
    stage.land(engine("both-0", CHAT), page.vllm(waiting=1, running=0))
    stage.land(engine("both-0", DECODE), page.vllm(waiting=4, running=0))
    stage.land(node(), page.gpu("GPU-1", ["both-0"], engine=0.5))
    found = stage.pods()[PodKey("ai", "both-0")]
    assert [(each.workload, each.queue.value, each.gpu_engine_active.value) for each in found] == [
        (CHAT, 1.0, 0.5),
        (DECODE, 4.0, 0.5),
    ]


def test_engines_of_one_pod_are_summed_and_a_silent_one_makes_the_sum_unknown(stage, page):
    stage.land(engine(port=8001), page.vllm(waiting=1, running=2))
    stage.now += 10.0
    stage.land(engine(port=8002), page.vllm(waiting=3, running=4))
    assert stage.only().queue == (10.0, 1000.0)
    stage.now += 10.0
    assert (None, (engine(port=8001).url,)) == (stage.only().queue, stage.only().stale_engines)


def test_new_list_of_workloads_keeps_the_responses(stage, page):
    stage.land(engine(), page.vllm(waiting=3, running=5))
    stage.land(node(), page.gpu("GPU-1", ["chat-0"], engine=0.5))
    before, stage.decider = stage.decider, deciding()
    stage.decider.take_over(before)
    assert (stage.only().queue.value, stage.only().gpu_engine_active.value) == (8.0, 0.5)
