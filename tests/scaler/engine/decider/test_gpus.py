"""Invariant 9 through the decider: the owner of a GPU determines what its readings may do."""

import pytest

from exporter.model import ReplicaCount, WorkloadKey

IDLE_S = 30.0


@pytest.fixture
def stage(scene, plan, pod, gateway, page):
    """`chat` is idle by its requests, with pods chat-0 and chat-1; the outcome depends on its GPUs."""
    stage = scene(plan(gateway=True, keep_warm=IDLE_S), plan("other", gateway=True))
    engine, front = pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.idle = {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)}
    return stage


@pytest.mark.parametrize("busy", [{"engine": 0.9}, {"util": 100}, {"engine": 0.03, "util": 0}])
def test_busy_gpu_of_a_workload_keeps_it_awake(stage, node, page, busy):
    pages = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], **busy)}
    assert stage.rounds(120, pages)[-1] == (1, True, "gpu_busy")
    assert stage.decision().idle_since is None
    quiet = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.0, util=0)}
    assert stage.rounds(45, quiet)[-1] == (0, False, "asleep")


@pytest.mark.parametrize("quiet", [{"engine": 0.0}, {"engine": 0.02}, {"engine": 0.0, "util": 100}, {"util": 2}])
def test_quiet_gpu_does_not_keep_a_workload_awake(stage, node, page, quiet):
    # Up to 2 % is quiet. Engine activity precedes utilisation: a resident model shows 100 % utilisation now and then.
    pages = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], **quiet)}
    assert stage.rounds(60, pages)[-1] == (0, False, "asleep")


def test_busiest_of_several_gpus_decides(stage, node, page):
    gpus = page.gpu("GPU-1", ["chat-0"], engine=0.0) + page.gpu("GPU-2", ["chat-0"], engine=0.5)
    assert stage.rounds(60, {**stage.idle, node(0): gpus})[-1] == (1, True, "gpu_busy")
    apart = {node(0): page.gpu("GPU-1", ["chat-0"], engine=0.0), node(1): page.gpu("GPU-2", ["chat-1"], engine=0.5)}
    assert stage.rounds(60, {**stage.idle, **apart})[-1] == (1, True, "gpu_busy")
    assert stage.decision().evidence.gpu_engine_active == 0.25


def test_busy_mig_slice_keeps_only_its_owner_awake(stage, node, page):
    slices = page.gpu("GPU-1", ["other-0"], engine=1.0, mig="1") + page.gpu("GPU-1", ["chat-0"], engine=0.5, mig="2")
    assert stage.rounds(60, {**stage.idle, node(): slices})[-1] == (1, True, "gpu_busy")
    assert stage.decision().evidence.gpu_engine_active == 0.5
    slices = page.gpu("GPU-1", ["other-0"], engine=1.0, mig="1") + page.gpu("GPU-1", ["chat-0"], engine=0.0, mig="2")
    assert stage.rounds(60, {**stage.idle, node(): slices})[-1] == (0, False, "asleep")


@pytest.mark.parametrize("shared", [["chat-0", "other-0"], ["chat-0", "stranger-0"]])
def test_shared_gpu_neither_scales_nor_keeps_awake(stage, node, page, shared):
    pages = {**stage.idle, node(): page.gpu("GPU-1", shared, engine=1.0, util=100)}
    assert stage.rounds(60, pages)[-1] == (0, False, "asleep")
    assert stage.decision().evidence.gpu_engine_active is None


def test_single_named_pod_on_a_shared_gpu_does_not_own_it(stage, node, page):
    # vgpu: time slices; the pods of other workloads are not named.
    pages = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=1.0, vgpu="1")}
    assert stage.rounds(60, pages)[-1] == (0, False, "asleep")


def test_gpu_shared_only_by_pods_of_one_workload_is_exclusive_to_it(stage, node, page):
    pages = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0", "chat-1"], engine=0.5)}
    assert stage.rounds(60, pages)[-1] == (1, True, "gpu_busy")


def test_shared_gpu_does_not_affect_an_exclusive_one(stage, node, page):
    gpus = page.gpu("GPU-1", ["chat-0"], engine=0.01) + page.gpu("GPU-2", ["chat-0", "other-0"], engine=1.0)
    assert stage.rounds(60, {**stage.idle, node(): gpus})[-1] == (0, False, "asleep")
    assert stage.decision().evidence.gpu_engine_active == 0.01


def test_missing_gpu_target_proves_nothing(stage, node, page):
    quiet = {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.0)}
    stage.rounds(15, quiet)
    assert stage.rounds(300, {**stage.idle, node(): None})[-1] == (1, True, "warm")
    assert stage.decision().evidence.stale == (node().url,)
    assert "its GPUs are not visible now, so idleness cannot be proven" in stage.decision().evidence.notes
    # Visible again: only now does the keep-warm time begin.
    assert stage.rounds(IDLE_S - 5, quiet) == [(1, True, "warm")]
    assert stage.rounds(15, quiet)[-1] == (0, False, "asleep")


def test_gpu_without_a_named_pod_is_not_reported_as_missing(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
    unnamed = {**stage.idle, node(): page.gpu("GPU-1", engine=0.9)}
    # No cluster shows whether the pod is alive: activity on its last GPU may be the pod's.
    assert stage.rounds(600, unnamed) == [(1, True, "gpu_busy")]
    assert stage.rounds(60, {**stage.idle, node(): page.gpu("GPU-1", engine=0.0)})[-1] == (0, False, "asleep")
    assert stage.decision().evidence.stale == ()


def test_gpu_held_by_a_pod_of_another_workload_keeps_no_other_awake(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
    moved = {**stage.idle, node(): page.gpu("GPU-1", ["other-0"], engine=0.9)}
    assert stage.rounds(60, moved)[-1] == (0, False, "asleep")


def test_removed_node_removes_its_gpus(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
    stage.decider.retire(node())
    assert stage.rounds(60, stage.idle)[-1] == (0, False, "asleep")
    assert stage.decision().evidence.gpu_engine_active is None


def test_gpu_that_moves_to_another_workload_moves_with_its_readings(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
    assert stage.outcome() == (1, True, "gpu_busy")
    assert stage.rounds(60, {**stage.idle, node(): page.gpu("GPU-1", ["other-0"], engine=0.9)})[-1] == (
        0, False, "asleep",
    )  # fmt: skip
    stage.sweep()
    assert stage.decision("other").evidence.gpu_engine_active == 0.9


class TestBatch:
    """Workers without a queue, sized by GPU activity alone: 0.5 of engine activity each."""

    @pytest.fixture
    def batch(self, scene, plan):
        return scene(plan(work=None, gpu=0.5, pods=False, maximum=4, hold=60.0))

    def test_engine_activity_sizes_a_workload_with_that_objective(self, batch, node, page):
        gpus = page.gpu("GPU-1", ["chat-0"], engine=1.0) + page.gpu("GPU-2", ["chat-1"], engine=0.8)
        # 0.9 on average on the GPUs of 2 pods: 2 x 0.9 / 0.5 = 3.6, so 4.
        assert batch.round({node(): gpus}) == (4, True, "gpu_busy")
        assert batch.decision().evidence.replicas_ready == 2

    def test_utilisation_sizes_no_workload(self, batch, node, page):
        # One small request raises it to 100 %. Without engine activity the demand is unknown.
        assert batch.round({node(): page.gpu("GPU-1", ["chat-0"], util=100)}) == (None, True, "unknown")

    def test_shared_gpu_sizes_no_workload(self, batch, node, page):
        assert batch.round({node(): page.gpu("GPU-1", ["chat-0", "other-0"], engine=1.0)}) == (None, True, "unknown")

    def test_missing_activity_is_held_and_then_an_error(self, batch, node, page):
        batch.round({node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
        assert batch.outcome() == (2, True, "gpu_busy")
        blank = {node(): page.gpu("GPU-1", ["chat-0"], engine="9223372036854775794")}
        assert batch.rounds(60, blank) == [(2, True, "held")]
        assert batch.rounds(10, blank)[-1] == (None, True, "unknown")


def test_held_gpus_that_are_not_visible_as_exclusive_are_noted(stage, node, page):
    stage.decider.counted(WorkloadKey("ai", "chat"), ReplicaCount(wanted=1, ready=1, at=stage.now, gpus=2))
    stage.round({**stage.idle, node(): page.gpu("GPU-1", ["chat-0"], engine=0.9)})
    evidence = stage.decision().evidence
    assert (evidence.gpus_held, evidence.gpus_attributed) == (2, 1)
    assert evidence.notes == (
        "its pods hold 2 GPUs, of which 1 are visible as exclusively its: the others are shared, or not labelled",
    )
    both = page.gpu("GPU-1", ["chat-0"], engine=0.9) + page.gpu("GPU-2", ["chat-0"], engine=0.8)
    stage.round({**stage.idle, node(): both})
    evidence = stage.decision().evidence
    assert (evidence.gpus_held, evidence.gpus_attributed, evidence.notes) == (2, 2, ())
