"""The demo's metrics pages are read like those of real exporters."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scaler.cli.demo.cluster import SimulatedCluster
from scaler.cli.demo.engine import Request
from scaler.cli.demo.gpus import SimulatedGpus
from scaler.cli.demo.pages import dcgm_page, gateway_page, vllm_page


@pytest.fixture
def busy() -> SimulatedCluster:
    """Returns a replica whose cache fits two of three requests; one request is complete."""
    cluster = SimulatedCluster("chat", seed=1, now=0.0, startup_s=0.0)
    cluster.scale(1, 0.0)
    cluster.submit(Request(0, 0.0, 1200, 3), 0.0)
    for number in range(1, 4):
        cluster.submit(Request(number, 10.0, 150_000, 1000), 10.0)
    cluster.advance(10.2)
    return cluster


def samples(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def value(page: str, name: str, /, **labels: str) -> float:
    values = [
        number
        for (family, has), number in samples(page).items()
        if family == name and labels.items() <= dict(has).items()
    ]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def test_page_of_a_replica_has_its_queue(busy):
    page = vllm_page("m", busy.ready[0])
    engine = {"engine": "0", "model_name": "m"}
    assert value(page, "vllm:num_requests_running", **engine) == 2
    assert value(page, "vllm:num_requests_waiting", **engine) == 1
    assert value(page, "vllm:kv_cache_usage_perc", **engine) == pytest.approx(busy.ready[0].engine.kv_used)
    assert value(page, "vllm:engine_sleep_state", sleep_state="awake") == 1
    assert value(page, "vllm:request_success_total", finished_reason="stop", **engine) == 1
    assert value(page, "vllm:request_success_total", finished_reason="abort", **engine) == 0
    assert value(page, "vllm:generation_tokens_total", **engine) == 3
    assert value(page, "vllm:prompt_tokens_total", **engine) > 1200


def test_histograms_are_cumulative_and_complete(busy):
    page = vllm_page("m", busy.ready[0])
    # The first token of the only response took 0.1115 s.
    assert value(page, "vllm:time_to_first_token_seconds_bucket", le="0.1") == 0
    assert value(page, "vllm:time_to_first_token_seconds_bucket", le="0.25") == 1
    assert value(page, "vllm:time_to_first_token_seconds_bucket", le="+Inf") == 1
    assert value(page, "vllm:time_to_first_token_seconds_count") == 1
    assert value(page, "vllm:time_to_first_token_seconds_sum") == pytest.approx(0.1115)


def test_averages_of_the_gateway_times_pods_are_the_sums(busy):
    page = gateway_page("m", "chat", busy)
    ready = value(page, "inference_pool_ready_pods", name="chat")
    assert ready == 1
    assert value(page, "inference_pool_average_queue_size", name="chat") * ready == 1
    assert value(page, "inference_pool_average_running_requests", name="chat") * ready == 2
    assert value(page, "inference_extension_flow_control_queue_size", inference_pool="chat") == 0
    assert value(page, "inference_objective_request_total", model_name="m") == 4


def test_gateway_has_a_page_at_zero_replicas():
    cluster = SimulatedCluster("chat", seed=1, now=0.0)
    cluster.submit(Request(0, 0.0, 10, 10), 0.0)
    page = gateway_page("m", "chat", cluster)
    assert value(page, "inference_extension_flow_control_queue_size", inference_pool="chat") == 1
    assert value(page, "inference_pool_ready_pods", name="chat") == 0
    assert value(page, "inference_pool_average_queue_size", name="chat") == 0


def node_page(gpus: SimulatedGpus, cluster: SimulatedCluster) -> str:
    return dcgm_page(gpus.of_node("gpu-node-1"), "demo", {pod.gpu: pod for pod in cluster.replicas})


def test_page_of_a_node_has_only_pods_of_its_gpus(busy):
    gpus = SimulatedGpus(busy.gpus, 0.0)
    gpus.collect(busy.replicas, 10.2)
    page = node_page(gpus, busy)
    util = {has: number for (name, has), number in samples(page).items() if name == "DCGM_FI_DEV_GPU_UTIL"}
    assert len(util) == 8
    named = [dict(has) for has in util if "pod" in dict(has)]
    assert [(has["namespace"], has["pod"], has["container"]) for has in named] == [
        ("demo", busy.replicas[0].name, "vllm")
    ]
    assert len({dict(has)["UUID"] for has in util}) == 8
    # 0.13 s for the first request and 0.2 s of the other two, in 10.2 s; some kernel ran, so GPU_UTIL is 100.
    active = value(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="0")
    assert active == pytest.approx(busy.replicas[0].engine.busy_s(10.2) / 10.2, abs=1e-6)
    assert value(page, "DCGM_FI_DEV_GPU_UTIL", gpu="0") == 100
    assert value(page, "DCGM_FI_DEV_GPU_UTIL", gpu="1") == 0


def test_memory_adds_up_and_energy_is_power_times_time(busy):
    gpus = SimulatedGpus(busy.gpus, 0.0)
    gpus.collect(busy.replicas, 10.0)
    page = node_page(gpus, busy)
    for gpu in ("0", "7"):
        parts = [value(page, f"DCGM_FI_DEV_FB_{part}", gpu=gpu) for part in ("USED", "FREE", "RESERVED")]
        assert sum(parts) == 81_920
        # The parser adds _total to the samples of a counter. The page has none, like the page of dcgm-exporter.
        energy_mj = value(page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", gpu=gpu)
        assert energy_mj == pytest.approx(value(page, "DCGM_FI_DEV_POWER_USAGE", gpu=gpu) * 10.0 * 1000, abs=1.0)


def test_values_are_of_the_last_collection_and_pod_names_are_present(busy):
    gpus = SimulatedGpus(busy.gpus, 0.0)
    gpus.collect(busy.replicas, 10.0)
    before = node_page(gpus, busy)
    busy.scale(0, 200.0)
    after = node_page(gpus, busy)
    assert value(before, "DCGM_FI_DEV_FB_USED", gpu="0") == value(after, "DCGM_FI_DEV_FB_USED", gpu="0") > 0
    assert 'pod="' in before
    assert 'pod="' not in after
    gpus.collect(busy.replicas, 210.0)
    assert value(node_page(gpus, busy), "DCGM_FI_DEV_FB_USED", gpu="0") == 0
