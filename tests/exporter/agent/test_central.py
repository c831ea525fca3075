"""What Tidegate makes of the pages: a pod's queue, a node's GPUs, and no zero where nobody answers."""

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest

from exporter.agent.page import NormalisedCollector, SourceState
from exporter.catalog import Reader
from exporter.catalog.own import NotHeard
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


def land(intake, target, at, *heard):
    page = generate_latest(NormalisedCollector(heard, at))
    intake.land(target, Reader("tidegate").read(parse(page), at), at)


def test_a_sidecars_page_is_its_pods_queue(intake):
    land(intake, SIDECAR, NOW, SourceState("e", engine(3.0, 2.0, NOW - 4.0), up=True))
    seen = intake.totals(ROWS, NOW).readings
    assert (seen.waiting[0], seen.running[0], seen.pods_fresh[0], seen.measured_at[0]) == (3.0, 2.0, 1.0, NOW - 4.0)


def test_an_engine_that_does_not_answer_its_sidecar_is_no_empty_queue(intake):
    said = engine(3.0, 2.0, NOW)
    land(intake, SIDECAR, NOW, SourceState("e", said, up=True), SourceState("g", gpu(0.5, NOW), up=True))
    land(intake, SIDECAR, NOW + 5.0, SourceState("e", said, up=False), SourceState("g", gpu(0.5, NOW), up=True))
    seen = intake.totals(ROWS, NOW + 5.0).readings
    assert np.isnan([seen.waiting[0], seen.running[0]]).all()
    assert seen.pods_fresh[0] == 0.0


def test_old_numbers_on_a_new_page_are_old(intake):
    told = SourceState("e", engine(3.0, 2.0, NOW), up=True)
    land(intake, SIDECAR, NOW + 20.0, told)
    assert intake.totals(ROWS, NOW + 20.0).readings.pods_fresh[0] == 0.0
    assert intake.stale(CHAT, NOW + 20.0) == (SIDECAR.url,)


def test_a_nodes_page_is_its_workloads_gpus_and_one_without_an_answer_is_not_quiet(intake):
    land(intake, NODE, NOW, SourceState("g", gpu(0.5, NOW), up=True))
    assert intake.totals(ROWS, NOW).readings.busiest_gpu[0] == 0.5
    with pytest.raises(NotHeard):
        land(intake, NODE, NOW + 5.0, SourceState("g", gpu(0.5, NOW), up=False))
    seen = intake.totals(ROWS, NOW + 20.0).readings
    assert np.isnan(seen.busiest_gpu[0])
    assert seen.gpus_stale[0]


def test_a_sidecars_gpus_that_do_not_answer_are_stale_and_not_gone(intake):
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


def test_a_sidecars_page_is_its_pods_gpus_too(intake):
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
    seen = intake.totals(ROWS, later).readings
    assert (bool(seen.gpus_stale[0]), float(seen.pods_fresh[0])) == (True, 1.0)


def test_a_tenants_page_speaks_of_its_own_gpus_and_harms_nobody_else(intake):
    stranger = Target("http://10.0.0.8:9410/metrics", "tidegate", Role.PODS, CHAT, pod=PodKey("ai", "chat-1"))
    land(
        intake,
        stranger,
        NOW,
        SourceState("e", engine(0.0, 0.0, NOW), up=True),
        SourceState("g", gpu(0.9, NOW), up=True),
    )
    assert np.isnan(intake.totals(ROWS, NOW).readings.busiest_gpu[0])


def test_a_sidecars_gpus_go_with_its_pod(intake):
    land(
        intake, SIDECAR, NOW, SourceState("e", engine(0.0, 0.0, NOW), up=True), SourceState("g", gpu(0.5, NOW), up=True)
    )
    intake.retire(SIDECAR)
    assert np.isnan(intake.totals(ROWS, NOW).readings.busiest_gpu[0])
    assert intake.stale(CHAT, NOW + 100.0) == ()


def test_a_node_that_knows_pods_by_their_uids_has_its_gpus_put_to_their_workloads():
    uid = PodKey("", "0b6f0d6e-7d5b-4f0e-9e55-5a1d6a3f0b11")
    names = {uid: POD}
    intake = LatestSamples(
        [TargetRules(CHAT, pods=True)],
        lambda pod, at: (CHAT,) if pod == POD else (),
        LIMIT_S,
        lambda pod: names.get(pod, pod),
    )
    seen = gpu(0.5, NOW)
    unnamed = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=(uid,))
    stranger = Gpu("GPU-2", attribution=Attribution.EXCLUSIVE, pods=(PodKey("", "somebody-elses"),))
    values = np.array([[0.5], [0.9]])
    page = Samples("nvml", (unnamed, stranger), seen.quantities, values, np.array([NOW, NOW]))
    land(intake, NODE, NOW, SourceState("nvml", page, up=True))

    totals = intake.totals(ROWS, NOW)
    assert (totals.readings.busiest_gpu[0], totals.gpus.shown[0]) == (0.5, 1.0)
