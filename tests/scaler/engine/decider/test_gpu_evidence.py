"""Tests GPU readings through the decider: which prove idleness, which size, and what the evidence shows."""

import pytest

IDLE_S = 30.0
BLIND = (
    "one of its GPUs no longer exposes its activity (profiling paused, or a failed exporter), so idleness "
    "cannot be proven"
)


@pytest.fixture
def stage(scene, plan, pod, gateway, page):
    """`chat` is idle by its requests; its GPUs decide whether it sleeps."""
    stage = scene(plan(gateway=True, keep_warm=IDLE_S))
    engine, front = pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.idle = {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)}
    return stage


def test_evidence_names_engine_activity(stage, node, page):
    stage.rounds(60, {**stage.idle, node(): page.gpu("g", ["chat-0"], engine=0.0, util=100)})
    evidence = stage.decision().evidence
    assert (evidence.gpu_activity, evidence.gpus_attributed, evidence.gpus_lost, evidence.notes) == ("engine", 1, 0, ())


def test_utilisation_replaces_missing_engine_activity_for_idleness_and_is_noted(stage, node, page):
    busy = {**stage.idle, node(): page.gpu("g", ["chat-0"], util=100)}
    assert stage.rounds(60, busy)[-1] == (1, True, "gpu_busy")
    evidence = stage.decision().evidence
    assert (evidence.gpu_activity, evidence.gpu_engine_active) == ("utilisation", None)
    assert evidence.notes == (
        "1 of its 1 GPUs expose no engine activity: utilisation decides idleness, and sizes nothing",
    )


def test_gpu_without_any_activity_leaves_idleness_to_the_requests_and_is_noted(stage, node, page):
    """A MIG instance without profiling fields: it has no GPU_UTIL either."""
    pages = {**stage.idle, node(): page.gpu("g", ["chat-0"], mig="1")}
    assert stage.rounds(60, pages)[-1] == (0, False, "asleep")
    evidence = stage.decision().evidence
    assert (evidence.gpu_activity, evidence.gpus_attributed) == ("none", 1)
    assert evidence.notes == ("1 of its 1 GPUs expose no activity: requests alone decide idleness",)


def test_workload_with_both_kinds_of_activity_is_mixed(stage, node, page):
    text = page.gpu("a", ["chat-0"], engine=0.0) + page.gpu("b", ["chat-0"], util=0)
    stage.rounds(10, {**stage.idle, node(): text})
    assert stage.decision().evidence.gpu_activity == "mixed"


def test_workload_without_gpus_has_no_gpu_evidence(stage):
    stage.rounds(10, stage.idle)
    evidence = stage.decision().evidence
    assert (evidence.gpu_activity, evidence.gpus_attributed, evidence.gpus_lost) == (None, None, None)
    assert (evidence.gpu_memory_held_bytes, evidence.gpu_engine_ceiling, evidence.notes) == (None, None, ())


def test_paused_profiling_proves_no_idleness(stage, node, page):
    mig = {"mig": "1"}  # no utilisation to fall back on
    stage.rounds(10, {**stage.idle, node(): page.gpu("g", ["chat-0"], engine=0.9, **mig)})
    paused = {**stage.idle, node(): page.gpu("g", ["chat-0"], **mig)}
    assert stage.rounds(600, paused)[-1] == (1, True, "warm")
    assert stage.decision().evidence.notes == (BLIND,)
    quiet = {**stage.idle, node(): page.gpu("g", ["chat-0"], engine=0.0, **mig)}
    assert stage.rounds(IDLE_S - 5, quiet) == [(1, True, "warm")]
    assert stage.rounds(15, quiet)[-1] == (0, False, "asleep")


def test_blank_activity_field_proves_no_idleness(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("g", ["chat-0"], engine=0.0)})
    blank = {**stage.idle, node(): page.gpu("g", ["chat-0"], engine="9223372036854775794")}
    assert stage.rounds(600, blank)[-1] == (1, True, "warm")


def test_one_silent_gpu_among_busy_ones_does_not_stop_the_sizing(scene, plan, node, page):
    batch = scene(plan(work=None, gpu=0.5, pods=False, maximum=4, hold=60.0))
    both = page.gpu("a", ["chat-0"], engine=0.5) + page.gpu("b", ["chat-1"], engine=0.5)
    assert batch.round({node(): both}) == (2, True, "gpu_busy")
    one = page.gpu("a", ["chat-0"], engine=0.9) + page.gpu("b", ["chat-1"])
    assert batch.rounds(120, {node(): one}) == [(4, True, "gpu_busy")]


def test_held_gpu_memory_does_not_keep_a_workload_awake(stage, node, page):
    labels = 'UUID="g",modelName="H100",namespace="ai",pod="chat-0",container="c"'
    held = page.gpu("g", ["chat-0"], engine=0.0) + f"DCGM_FI_DEV_FB_USED{{{labels}}} 70000\n"
    assert stage.rounds(60, {**stage.idle, node(): held})[-1] == (0, False, "asleep")
    assert stage.decision().evidence.gpu_memory_held_bytes == 70000 * 2.0**20


class TestLost:
    @pytest.fixture
    def pages(self, node):
        """Two GPUs of chat on one target; the second is lost in the third scrape."""
        labels = {name: f'UUID="{name}",modelName="H100",namespace="ai",pod="chat-0"' for name in "ab"}
        engine = {name: f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{text}}} 0.0\n" for name, text in labels.items()}
        xid = f"DCGM_FI_DEV_XID_ERRORS{{{labels['b']}}}"
        texts = (f"{xid} 0\n", f"{xid} 79\n", f"{xid} 79\n")
        return [{node(): engine["a"] + (engine["b"] if n < 2 else "") + text} for n, text in enumerate(texts)]

    def test_lost_gpu_is_noted_and_neither_keeps_awake_nor_proves_anything(self, stage, pages):
        for page in pages[:2]:
            stage.round({**stage.idle, **page})
        assert stage.decision().evidence.gpus_lost == 0
        stage.round({**stage.idle, **pages[2]})
        evidence = stage.decision().evidence
        assert (evidence.gpus_attributed, evidence.gpus_lost, evidence.gpu_activity) == (2, 1, "engine")
        assert evidence.notes == (
            (
                "1 of its 2 GPUs expose nothing since a fatal Xid error: no capacity, and left out of the mean "
                "(tidegate_gpu_lost shows which)"
            ),
        )
        assert stage.rounds(60, {**stage.idle, **pages[2]})[-1] == (0, False, "asleep")

    def test_activity_of_a_workload_that_has_lost_all_its_gpus_has_no_source(self, stage, pages):
        for page in pages:
            left = {target: "".join(line for line in text.splitlines(keepends=True) if 'UUID="a"' not in line)
                    for target, text in page.items()}  # fmt: skip
            stage.round({**stage.idle, **left})
        evidence = stage.decision().evidence
        assert (evidence.gpus_attributed, evidence.gpus_lost, evidence.gpu_activity) == (1, 1, "none")

    def test_gpu_without_a_change_of_its_xid_is_silent_and_not_lost(self, stage, pages):
        stage.round({**stage.idle, **pages[1]})
        assert stage.rounds(600, {**stage.idle, **pages[2]})[-1] == (1, True, "warm")
        assert (stage.decision().evidence.gpus_lost, stage.decision().evidence.notes) == (0, (BLIND,))


class TestSlices:
    def of(self, profile, engine, pod="chat-0", instance=1):
        labels = f'UUID="g",modelName="H100",GPU_I_ID="{instance}",GPU_I_PROFILE="{profile}",namespace="ai",pod="{pod}"'
        return f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {engine}\n"

    def test_target_that_mig_slices_cannot_reach_is_noted(self, scene, plan, node):
        batch = scene(plan(work=None, gpu=0.5, pods=False, maximum=4))
        batch.round({node(): self.of("3g.40gb", 0.33)})
        evidence = batch.decision().evidence
        assert evidence.gpu_engine_active == pytest.approx(0.33)
        assert evidence.gpu_engine_ceiling == pytest.approx(1 / 3)
        assert evidence.notes == (
            (
                "its engine activity has a maximum of 0.33, which is not above the target of 0.5: a single busy "
                "compute instance fills no MIG instance of several slices"
            ),
        )

    def test_slices_of_one_have_no_ceiling(self, scene, plan, node):
        batch = scene(plan(work=None, gpu=0.5, pods=False, maximum=4))
        batch.round({node(): self.of("1g.10gb", 0.9)})
        evidence = batch.decision().evidence
        assert (evidence.gpu_engine_ceiling, evidence.notes) == (None, ())

    def test_mixed_slices_are_averaged_by_their_share(self, scene, plan, node):
        batch = scene(plan(work=None, gpu=0.5, pods=False, maximum=8))
        batch.round({node(): self.of("3g.40gb", 0.2) + self.of("1g.10gb", 1.0, "chat-1", 2)})
        assert batch.decision().evidence.gpu_engine_active == pytest.approx((3 * 0.2 + 1.0) / 4)
        assert batch.decision().evidence.gpu_engine_ceiling == pytest.approx((3 * (1 / 3) + 1.0) / 4)


def test_measured_at_is_the_earliest_possible_time(stage, node, page):
    stage.rounds(10, {**stage.idle, node(): page.gpu("g", ["chat-0"], engine=0.9)})
    assert stage.decision().measured_at == stage.now - 30.0


class TestByProcess:
    """dcgm-exporter from 4.8.2 on: GPU_UTIL and FB_USED of a shared GPU for the device and for each pod."""

    def of(self, device, chat, other):
        labels = 'UUID="g",modelName="H100"'
        pods = [f'{labels},vgpu="{n}",namespace="ai",pod="{name}-0"' for n, name in enumerate(("chat", "other"))]
        util = zip((labels, *pods), (device, chat, other), strict=True)
        memory = zip((labels, *pods), (20000, 12000, 8000), strict=True)
        lines = [f"DCGM_FI_DEV_GPU_UTIL{{{text}}} {value}\n" for text, value in util]
        return "".join(lines + [f"DCGM_FI_DEV_FB_USED{{{text}}} {value}\n" for text, value in memory])

    def test_processes_of_a_workload_keep_it_awake(self, stage, node):
        pages = {**stage.idle, node(): self.of(90, chat=60, other=30)}
        assert stage.rounds(60, pages)[-1] == (1, True, "gpu_busy")
        evidence = stage.decision().evidence
        assert (evidence.gpu_activity, evidence.gpus_attributed, evidence.gpu_engine_active) == ("process", None, None)
        assert evidence.gpu_memory_held_bytes == 12000 * 2.0**20
        assert evidence.notes == (
            (
                "1 of its pods are on shared GPUs that are measured by process: that utilisation decides "
                "idleness, and sizes nothing"
            ),
        )

    def test_processes_of_another_workload_do_not_keep_it_awake(self, stage, node):
        assert stage.rounds(60, {**stage.idle, node(): self.of(90, chat=0, other=90)})[-1] == (0, False, "asleep")

    def test_zeros_on_a_busy_device_are_no_measurement(self, stage, node):
        """The mapping of processes to pods has failed: neither the device's number nor the zeros belong to a pod."""
        stage.rounds(60, {**stage.idle, node(): self.of(90, chat=0, other=0)})
        assert stage.decision().evidence.gpu_activity is None

    def test_utilisation_by_process_sizes_no_workload(self, scene, plan, node):
        batch = scene(plan(work=None, gpu=0.5, pods=False, maximum=4, hold=60.0))
        assert batch.round({node(): self.of(90, chat=60, other=30)}) == (None, True, "unknown")
