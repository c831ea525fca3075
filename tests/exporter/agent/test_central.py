"""The daemon reads exports: the queue of a pod and the GPUs of a node, and no zero if a source is down."""

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest

from exporter.agent.page import NormalisedCollector, SourceState
from exporter.catalog import Reader
from exporter.catalog.export import SourcesDown
from exporter.model import Attribution, Gpu, PodKey, Quantity, Queue, Role, Samples, Target, WorkloadKey
from exporter.textformat import parse
from scaler.signals.latest import LatestSamples, TargetRules

CHAT = WorkloadKey("ai", "chat")
POD = PodKey("ai", "chat-0")
NOW, LIMIT_S = 1000.0, 15.0
ROWS = np.array([0])
SIDECAR = Target("http://10.0.0.7:9410/metrics", "tidegate", Role.PODS, CHAT, pod=POD)
NODE = Target("http://10.0.0.9:9410/metrics", "tidegate", Role.GPUS)


@pytest.fixture
def intake():
    intake = LatestSamples([TargetRules(CHAT, pods=True)], lambda pod, at: (CHAT,) if pod == POD else (), LIMIT_S)
    intake.expect(SIDECAR)
    intake.listed(CHAT, 1)
    return intake


def engine(waiting, running, at):
    quantities = (Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING)
    return Samples("vllm", (Queue("m"),), quantities, np.array([[waiting, running]]), np.array([at]))


def gpu(active, at):
    mine = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=(POD,))
    return Samples("dcgm", (mine,), (Quantity.GPU_ENGINE_ACTIVE,), np.array([[active]]), np.array([at]))


def land(intake, target, at, *states):
    page = generate_latest(NormalisedCollector(states, at))
    intake.land(target, Reader("tidegate").read(parse(page), at), at)


def test_sidecar_exports_the_queue_of_its_pod(intake):
    land(intake, SIDECAR, NOW, SourceState("e", engine(3.0, 2.0, NOW - 4.0), up=True))
    queue = intake.totals(ROWS, NOW).readings
    assert (queue.waiting[0], queue.running[0], queue.pods_fresh[0], queue.measured_at[0]) == (3.0, 2.0, 1.0, NOW - 4.0)


def test_failed_engine_is_no_empty_queue(intake):
    samples_ = engine(3.0, 2.0, NOW)
    land(intake, SIDECAR, NOW, SourceState("e", samples_, up=True), SourceState("g", gpu(0.5, NOW), up=True))
    land(intake, SIDECAR, NOW + 5.0, SourceState("e", samples_, up=False), SourceState("g", gpu(0.5, NOW), up=True))
    queue = intake.totals(ROWS, NOW + 5.0).readings
    assert np.isnan([queue.waiting[0], queue.running[0]]).all()
    assert queue.pods_fresh[0] == 0.0


def test_old_values_in_a_new_response_are_old(intake):
    state = SourceState("e", engine(3.0, 2.0, NOW), up=True)
    land(intake, SIDECAR, NOW + 20.0, state)
    assert intake.totals(ROWS, NOW + 20.0).readings.pods_fresh[0] == 0.0
    assert intake.stale(CHAT, NOW + 20.0) == (SIDECAR.named,)


def test_node_exports_the_gpus_of_its_workloads(intake):
    land(intake, NODE, NOW, SourceState("g", gpu(0.5, NOW), up=True))
    assert intake.totals(ROWS, NOW).readings.busiest_gpu[0] == 0.5
    with pytest.raises(SourcesDown):
        land(intake, NODE, NOW + 5.0, SourceState("g", gpu(0.5, NOW), up=False))
    queue = intake.totals(ROWS, NOW + 20.0).readings
    assert np.isnan(queue.busiest_gpu[0])
    assert queue.gpus_stale[0]


def test_gpus_of_a_failed_source_of_a_sidecar_are_stale(intake):
    land(intake, NODE, NOW, SourceState("e", engine(0.0, 0.0, NOW), up=True), SourceState("g", gpu(0.5, NOW), up=True))
    later = NOW + 20.0
    land(
        intake,
        NODE,
        later,
        SourceState("e", engine(0.0, 0.0, later), up=True),
        SourceState("g", gpu(0.5, NOW), up=False),
    )
    assert intake.totals(ROWS, later).readings.gpus_stale[0]


def test_sidecar_exports_the_gpus_of_its_pod(intake):
    land(
        intake, SIDECAR, NOW, SourceState("e", engine(0.0, 0.0, NOW), up=True), SourceState("g", gpu(0.5, NOW), up=True)
    )
    totals = intake.totals(ROWS, NOW)
    assert (totals.readings.busiest_gpu[0], totals.gpus.shown[0], totals.readings.waiting[0]) == (0.5, 1.0, 0.0)

    later = NOW + 20.0
    land(
        intake,
        SIDECAR,
        later,
        SourceState("e", engine(0.0, 0.0, later), up=True),
        SourceState("g", gpu(0.5, NOW), up=False),
    )
    queue = intake.totals(ROWS, later).readings
    assert (bool(queue.gpus_stale[0]), float(queue.pods_fresh[0])) == (True, 1.0)


def test_tenant_exports_only_its_gpus(intake):
    stranger = Target("http://10.0.0.8:9410/metrics", "tidegate", Role.PODS, CHAT, pod=PodKey("ai", "chat-1"))
    land(
        intake,
        stranger,
        NOW,
        SourceState("e", engine(0.0, 0.0, NOW), up=True),
        SourceState("g", gpu(0.9, NOW), up=True),
    )
    assert np.isnan(intake.totals(ROWS, NOW).readings.busiest_gpu[0])


def test_gpus_of_a_sidecar_end_with_its_pod(intake):
    land(
        intake, SIDECAR, NOW, SourceState("e", engine(0.0, 0.0, NOW), up=True), SourceState("g", gpu(0.5, NOW), up=True)
    )
    intake.retire(SIDECAR)
    assert np.isnan(intake.totals(ROWS, NOW).readings.busiest_gpu[0])
    assert intake.stale(CHAT, NOW + 100.0) == ()


class PodNames:
    """The pod of `names` by its UID."""

    def __init__(self, names):
        self._names = names

    def named(self, pod):
        return self._names.get(pod, pod)

    def node_of(self, pod):
        return None


def test_gpus_of_pods_with_uids_are_attributed_to_their_workloads():
    uid = PodKey("", "0b6f0d6e-7d5b-4f0e-9e55-5a1d6a3f0b11")
    intake = LatestSamples(
        [TargetRules(CHAT, pods=True)],
        lambda pod, at: (CHAT,) if pod == POD else (),
        LIMIT_S,
        PodNames({uid: POD}),
    )
    queue = gpu(0.5, NOW)
    unnamed = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=(uid,))
    stranger = Gpu("GPU-2", attribution=Attribution.EXCLUSIVE, pods=(PodKey("", "somebody-elses"),))
    values = np.array([[0.5], [0.9]])
    page = Samples("nvml", (unnamed, stranger), queue.quantities, values, np.array([NOW, NOW]))
    land(intake, NODE, NOW, SourceState("nvml", page, up=True))

    totals = intake.totals(ROWS, NOW)
    assert (totals.readings.busiest_gpu[0], totals.gpus.shown[0]) == (0.5, 1.0)
