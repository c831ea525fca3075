"""Sixteen ways to read these pages wrongly, each made impossible: one section per mistake, in one order.

Where the mistake is not one of reading a page, the law lives with whoever could make it and is named here.
"""

from math import isnan

import numpy as np
import pytest

from exporter.attribution import owners_by_name
from exporter.model import Attribution, PodKey, Quantity, Role, Target, WorkloadKey
from scaler.policy.columns import Signal
from scaler.signals.latest import LatestSamples, TargetRules

Q = Quantity
CHAT = WorkloadKey("ai", "chat")
NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)
POD = 'namespace="ai",pod="chat-0"'


@pytest.fixture
def latest(read):
    """What an objective of `chat` would see of one page."""

    def latest(text, target=NODE):
        intake = LatestSamples([TargetRules(CHAT, pods=False)], owners_by_name({CHAT: None}), 15.0)
        intake.land(target, read(text), 1000.0)
        row = intake.totals(np.array([0]), 1000.0).latest[0]
        return {signal: None if isnan(row[signal]) else float(row[signal]) for signal in Signal}

    return latest


# 1. Adding up copies of one GPU, a device and its parts, MIG power once per instance, a parent and its instances.


def test_gpu_that_is_copied_to_each_pod_is_one_gpu(read, cell):
    copies = "".join(f'DCGM_FI_DEV_POWER_USAGE{{UUID="g",namespace="ai",pod="{pod}"}} 300\n' for pod in "abc")
    assert cell(read(copies), "g", Q.GPU_POWER) == 300.0


def test_device_and_its_parts_are_not_added(read, cell):
    parts = "".join(f'DCGM_FI_DEV_GPU_UTIL{{UUID="g",vgpu="{n}",namespace="ai",pod="p{n}"}} 45\n' for n in (0, 1))
    assert cell(read('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 90\n' + parts), "g", Q.GPU_UTILIZATION) == 0.9


def test_power_repeated_on_mig_instances_belongs_to_the_parent(read, cell):
    samples = read(
        "".join(
            f'DCGM_FI_{name}{{UUID="g",GPU_I_ID="{n}",GPU_I_PROFILE="1g.10gb"}} {value}\n'
            for n in (7, 8)
            for name, value in (("DEV_POWER_USAGE", 300), ("PROF_GR_ENGINE_ACTIVE", 0.5))
        )
    )
    assert isnan(cell(samples, ("g", "7"), Q.GPU_POWER))
    assert isnan(cell(samples, ("g", "8"), Q.GPU_POWER))


# 2. Taking a MIG parent's UUID for the whole name. (How differently large instances average: tests/gpu_shares.)


def test_two_mig_instances_of_one_uuid_are_two_with_their_own_size(read, gpu, cell):
    samples = read(
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="g",GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"} 0.33\n'
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="g",GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"} 1.0\n'
    )
    assert [gpu(samples, "g", n).profile for n in ("1", "7")] == ["3g.40gb", "1g.10gb"]
    assert [cell(samples, ("g", n), Q.GPU_ENGINE_ACTIVE) for n in ("1", "7")] == [0.33, 1.0]


# 3. Reading a family that is not there as 0.


@pytest.mark.parametrize(
    ("page", "key", "quantity"),
    [
        ('DCGM_FI_DEV_FB_USED{UUID="g",GPU_I_ID="1"} 6\n', ("g", "1"), Q.GPU_UTILIZATION),  # MIG
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g",modelName="GRID A100-10C"} 0\n', "g", Q.GPU_POWER),  # a vGPU guest
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 0\n', "g", Q.GPU_ENGINE_ACTIVE),  # paused profiling
        ("tgi_request_count 1\ntgi_request_success 0\n", "default", Q.REQUESTS_WAITING),  # a fresh TGI
    ],
)
def test_missing_family_is_unknown(read, cell, page, key, quantity):
    assert isnan(cell(read(page), key, quantity))


def test_empty_response_empties_no_queue(read):
    assert read("", "vllm").subjects == ()


# 4. Believing per-pod zeros on a busy device.


def test_pods_at_0_on_a_busy_device_have_no_parts(read, gpu):
    page = 'DCGM_FI_DEV_GPU_UTIL{UUID="g"} 90\n' + "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="g",vgpu="{n}",namespace="ai",pod="p{n}"}} 0\n' for n in (0, 1)
    )
    assert gpu(read(page), "g").attribution is Attribution.DEVICE


# 5. Averaging marks for "no value", and losing a page to one line.


@pytest.mark.parametrize("mark", ["9223372036854775794", "2147483632", "140737488355328", "NaN"])
def test_mark_is_no_value(read, cell, mark):
    assert isnan(cell(read(f'DCGM_FI_DEV_POWER_USAGE{{UUID="g"}} {mark}\n'), "g", Q.GPU_POWER))


@pytest.mark.parametrize("line", ["...", 'X{UUID="g"} ERROR - FAILED TO CONVERT TO STRING', "<<<NULL>>>", "\x00"])
def test_line_that_is_no_sample_costs_itself(read, cell, line):
    page = f'{line}\nDCGM_FI_DEV_POWER_USAGE{{UUID="g"}} 300\n{line}\n'
    assert cell(read(page), "g", Q.GPU_POWER) == 300.0
    assert [number for number, _ in read(page).dropped] == [1, 3]


# 6. Mixing units.


@pytest.mark.parametrize(
    ("page", "key", "quantity", "value"),
    [
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 57\n', "g", Q.GPU_UTILIZATION, 0.57),
        ('DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="g"} 0.57\n', "g", Q.GPU_ENGINE_ACTIVE, 0.57),
        ('nv_gpu_utilization{gpu_uuid="g"} 0.57\n', "g", Q.GPU_UTILIZATION, 0.57),
        ('vllm:kv_cache_usage_perc{model_name="m"} 0.57\n', "m", Q.KV_CACHE_USED, 0.57),
        ('DCGM_FI_DEV_FB_USED{UUID="g"} 1\n', "g", Q.GPU_MEMORY_USED, 2.0**20),
        ('nv_gpu_memory_used_bytes{gpu_uuid="g"} 1\n', "g", Q.GPU_MEMORY_USED, 1.0),
        ('gpu_used_vram{gpu_uuid="g"} 1\n', "g", Q.GPU_MEMORY_USED, 2.0**20),
        ('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="g"} 1000\n', "g", Q.GPU_ENERGY, 1.0),
    ],
)
def test_every_number_is_in_one_unit(read, cell, page, key, quantity, value):
    assert cell(read(page), key, quantity) == value


# 7. Taking held memory for load; 8. sizing by a utilization that one small request fills.


def test_neither_held_memory_nor_utilization_can_size_anything(latest):
    page = f'DCGM_FI_DEV_FB_USED{{UUID="g",{POD}}} 80000\nDCGM_FI_DEV_GPU_UTIL{{UUID="g",{POD}}} 100\n'
    assert set(latest(page).values()) == {None}


def test_engine_activity_can(latest):
    assert latest(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="g",{POD}}} 0.5\n')[Signal.GPU_ENGINE] == 0.5


# 9. Knowing a thing by one name only.


@pytest.mark.parametrize(
    ("page", "key", "quantity", "value"),
    [
        ('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="g",hostname="n"} 57\n', "g", Q.GPU_UTILIZATION, 0.57),
        ('DCGM_FI_DEV_GPU_UTIL{uuid="g"} 57\n', "g", Q.GPU_UTILIZATION, 0.57),
        ('DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{UUID="g",Hostname="n"} 0.5\n', "g", Q.GPU_ENGINE_ACTIVE, 0.5),
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n', "m", Q.KV_CACHE_USED, 0.5),
        ('sglang:num_queue_reqs{name="m"} 5\n', "m", Q.REQUESTS_WAITING, 5.0),
    ],
)
def test_old_and_new_names_are_read(read, cell, page, key, quantity, value):
    assert cell(read(page), key, quantity) == value


@pytest.mark.parametrize("labels", ["pod_namespace,pod_name", "exported_namespace,exported_pod", "namespace,pod"])
def test_pod_label_is_read_under_all_its_names(read, gpu, labels):
    namespace, pod = labels.split(",")
    page = f'DCGM_FI_DEV_GPU_UTIL{{UUID="g",{namespace}="ai",{pod}="chat-0"}} 1\n'
    assert gpu(read(page), "g").pods == (PodKey("ai", "chat-0"),)


# 10. Taking the exporter's pod for the workload's, and "" for a pod.


def test_through_prometheus_the_bare_pod_is_the_exporter(read, gpu):
    page = (
        'DCGM_FI_DEV_GPU_UTIL{UUID="g",pod="dcgm-x",namespace="gpu",exported_pod="chat-0",exported_namespace="ai"} 1\n'
    )
    assert gpu(read(page), "g").pods == (PodKey("ai", "chat-0"),)


def test_empty_pod_label_names_no_pod(read, gpu):
    assert gpu(read('DCGM_FI_DEV_GPU_UTIL{UUID="g",namespace="",pod=""} 1\n'), "g").attribution is Attribution.NONE


# 11. Reading repeats as new samples, and values of the pod before. Laws of tests/exporter/scrape/interval, of
# tests/ownership:
# test_a_reading_from_before_a_pod_began_is_not_the_pods, and of tests/intake:
# test_a_new_pod_at_an_old_address_inherits_nothing.


# 12. Counters as gauges, gauges as counters, times as counts. (Falls of a counter: tests/scaler/signals/latest,
# tests/kernels.)


@pytest.mark.parametrize(
    ("page", "key"),
    [
        ('nv_inference_queue_duration_us{model="m"} 5000\nnv_inference_request_success{model="m"} 1\n', "m"),
        ('ts_queue_latency_microseconds{model_name="m",} 365\nts_inference_requests_total{model_name="m",} 1\n', "m"),
    ],
)
def test_time_spent_in_a_queue_is_no_queue(read, cell, page, key):
    assert isnan(cell(read(page), key, Q.REQUESTS_WAITING))
    assert cell(read(page), key, Q.REQUESTS_FINISHED) == 1.0


def test_rays_gauge_beside_its_counter_is_no_counter(read, cell):
    labels = '{deployment="d",replica="r"}'
    page = f"ray_serve_deployment_request_counter{labels} 30\nray_serve_deployment_request_counter_total{labels} 30\n"
    assert cell(read(page), "d", Q.REQUESTS_FINISHED) == 30.0


def test_when_a_counter_was_made_is_no_count(read, cell):
    page = (
        'vllm:request_success_total{model_name="m"} 3\nvllm:request_success_created{model_name="m"} 1.78e9\n'
        'vllm:prompt_tokens_created{model_name="m"} 1.78e9\n'
    )
    assert cell(read(page), "m", Q.REQUESTS_FINISHED) == 3.0
    assert isnan(cell(read(page), "m", Q.TOKENS_PROMPT))


# 13. Adding a total to its parts, and letting the last engine win.


@pytest.mark.parametrize(
    ("page", "waiting"),
    [
        (
            (
                'vllm:num_requests_waiting{model_name="m"} 6\n'
                'vllm:num_requests_waiting_by_reason{model_name="m",reason="capacity"} 4\n'
                'vllm:num_requests_waiting_by_reason{model_name="m",reason="deferred"} 2\n'
            ),
            6.0,
        ),
        (
            (
                'sglang:num_queue_reqs{model_name="m",priority=""} 7\n'
                'sglang:num_queue_reqs{model_name="m",priority="None"} 7\n'
            ),
            7.0,
        ),
        (
            (
                'vllm:num_requests_waiting{model_name="m",engine="0"} 6\n'
                'vllm:num_requests_waiting{model_name="m",engine="1"} 1\n'
            ),
            7.0,
        ),
    ],
)
def test_total_is_not_added_to_its_parts_and_no_engine_is_lost(read, cell, page, waiting):
    assert cell(read(page), "m", Q.REQUESTS_WAITING) == waiting


# 14. Looking at ready pods only. (Counters that rise are activity: tests/scaler/engine/decider/test_gateways.)


@pytest.mark.parametrize(
    ("page", "key", "quantity", "value"),
    [
        (
            'inference_pool_ready_pods{name="p"} 0\ninference_extension_flow_control_queue_size{priority="0"} 3\n',
            "p",
            Q.REQUESTS_HELD,
            3.0,
        ),
        ('kn_revision_request_queued{kn_revision_name="r"} 3\n', "r", Q.REQUESTS_HELD, 3.0),
        ('envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="c"} 3\n', "c", Q.REQUESTS_FAILED, 3.0),
        ('envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name="c"} 3\n', "c", Q.REQUESTS_FAILED, 3.0),
        ('tgi_request_failure{err="overloaded"} 3\n', "default", Q.REQUESTS_FAILED, 3.0),
    ],
)
def test_what_no_pod_sees_is_seen(read, cell, page, key, quantity, value):
    assert cell(read(page), key, quantity) == value


# 15. Taking a sleeping engine for idle capacity. (A failed scrape and k of n pods:
# tests/scaler/policy/test_some_pods_...;
# a loading replica: tests/scaler/policy/test_zero_needs_proof.)


def test_sleeping_engine_is_not_awake(read, cell):
    page = 'vllm:engine_sleep_state{{model_name="m",sleep_state="awake"}} {}\nvllm:num_requests_waiting 0\n'
    assert cell(read(page.format(0)), "m", Q.ENGINE_AWAKE) == 0.0
    assert cell(read(page.format(1)), "m", Q.ENGINE_AWAKE) == 1.0


# 16. Trusting the text to be well formed.


@pytest.mark.parametrize(
    "page",
    [
        'vllm:num_requests_waiting{model_name="m"} 3\n',
        '# HELP vllm:num_requests_waiting\n# TYPE vllm:x\nvllm:num_requests_waiting{model_name="m"} 3\n',
        'vllm:num_requests_waiting{model_name="m"} 3\n# TYPE vllm:num_requests_waiting gauge\n',
        '# TYPE something_else counter\nvllm:num_requests_waiting{model_name="m",} 3\n',
        '  vllm:num_requests_waiting { model_name = "m" , engine = "0" }   3  \r\n',
        '# TYPE vllm:num_requests_waiting histogram\nvllm:num_requests_waiting{engine="0", model_name="m"} 3.0',
    ],
)
def test_response_need_not_be_well_formed(read, cell, page):
    assert cell(read(page), "m", Q.REQUESTS_WAITING) == 3.0


def test_counter_need_not_end_in_total(read, cell):
    assert cell(read('nv_inference_request_success{model="m"} 3\n'), "m", Q.REQUESTS_FINISHED) == 3.0
    assert cell(read("tgi_request_success 3\n"), "default", Q.REQUESTS_FINISHED) == 3.0
