"""The decider keeps the usage of each workload: of exclusive GPUs alone, across a restart, and bounded."""

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.report.profile import of_histograms
from scaler.signals.usage import Usage, distribution

DCGM = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE{%s} 0.9",
    "DCGM_FI_PROF_SM_ACTIVE{%s} 0.6",
    "DCGM_FI_PROF_SM_OCCUPANCY{%s} 0.3",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{%s} 0.2",
    "DCGM_FI_PROF_DRAM_ACTIVE{%s} 0.7",
    "DCGM_FI_DEV_FB_USED{%s} 1024",
    "DCGM_FI_PROF_PCIE_TX_BYTES{%s} 1000000000",
    "DCGM_FI_PROF_PCIE_RX_BYTES{%s} 2000000000",
)


def gpu(pods, uuid="GPU-1"):
    labels = [f'UUID="{uuid}",namespace="ai",pod="{pod}"' for pod in pods]
    return "".join(f"{line % each}\n" for line in DCGM for each in labels)


@pytest.fixture
def stage(scene, plan, pod, node):
    stage = scene(plan(), plan("other"))
    stage.engine, stage.node = pod(), node()
    stage.has(pods=[stage.engine], wanted=1)
    return stage


def usage(stage, quantity, row=0):
    return distribution(stage.decider.usage, row, quantity)


def test_gpu_activity_memory_and_links_of_an_exclusive_gpu_are_kept(stage, page):
    stage.rounds(60, {stage.engine: page.vllm(waiting=0, running=2), stage.node: gpu(["chat-0"])})
    expected = {"ENGINE": 0.9, "SM": 0.6, "OCCUPANCY": 0.3, "TENSOR": 0.2, "DRAM": 0.7, "PCIE": 3e9, "RUNNING": 2.0}
    found = {name: usage(stage, Usage[name]).busy_mean for name in expected}
    assert found == pytest.approx(expected)
    assert usage(stage, Usage.MEMORY).peak == 2.0**30
    assert usage(stage, Usage.NVLINK).seconds == 0.0, "not exposed"


def test_shared_gpu_is_in_no_profile(stage, page):
    both = gpu(["chat-0", "other-0"])
    stage.rounds(60, {stage.engine: page.vllm(waiting=0, running=2), stage.node: both})
    for row in (0, 1):
        for quantity in (Usage.ENGINE, Usage.SM, Usage.DRAM, Usage.MEMORY, Usage.PCIE):
            assert usage(stage, quantity, row).seconds == 0.0
    assert usage(stage, Usage.RUNNING).busy_mean == 2.0


def test_stale_gpu_adds_nothing(stage, page):
    requests = {stage.engine: page.vllm(waiting=0, running=2)}
    stage.rounds(30, {**requests, stage.node: gpu(["chat-0"])})
    stage.rounds(120, requests)
    # 30 s, and 15 s for which the last reading is fresh.
    assert usage(stage, Usage.DRAM).seconds <= 50.0
    assert usage(stage, Usage.RUNNING).seconds >= 140.0


def test_preemptions_are_a_rate_of_the_engines_counter(stage, page):
    for count in range(0, 70, 10):
        preempted = f'vllm:num_preemptions_total{{model_name="m"}} {count}\n'
        stage.rounds(5, {stage.engine: page.vllm(waiting=0, running=2) + preempted})
    assert usage(stage, Usage.PREEMPTED).peak == pytest.approx(2.0)


def test_times_in_queue_and_service_are_those_of_the_engines_histograms(stage, page):
    for count in range(0, 70, 10):
        times = "".join(
            f'vllm:request_{name}_time_seconds_{ending}{{model_name="m"}} {value}\n'
            for name, each in (("queue", 0.5), ("inference", 8.0))
            for ending, value in (("count", count), ("sum", count * each))
        )
        stage.rounds(5, {stage.engine: page.vllm(waiting=0, running=2) + times})
    profile = of_histograms(WorkloadKey("ai", "chat"), stage.decider.usage, 0)
    assert (profile.queue_s, profile.service_s) == pytest.approx((0.5, 8.0))
    assert profile.to_document()["measured_by_engine"] == {"queue_seconds": True, "service_seconds": True}


def test_restart_keeps_the_profile(stage, page, scene, plan):
    stage.rounds(60, {stage.engine: page.vllm(waiting=0, running=2), stage.node: gpu(["chat-0"])})
    state = stage.decider.state(stage.now)
    after = scene(plan(), plan("other"))
    after.decider.restore(state, stage.now + 30.0)
    assert distribution(after.decider.usage, 0, Usage.DRAM) == usage(stage, Usage.DRAM)


def test_profile_of_a_workload_takes_3288_bytes(stage):
    columns = stage.decider.usage.columns().values()
    assert sum(np.prod(column.shape[1:]) * column.itemsize for column in columns) == 3288
