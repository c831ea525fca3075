"""Excludes sixteen ways to misread metrics pages: one section per mistake.

A section names the file whose tests exclude its mistake, if that is not this one.
"""

from math import isnan

import numpy as np
import pytest

from exporter.attribution import owners_by_name
from exporter.model import PodKey, Quantity, Role, Target, WorkloadKey
from scaler.policy.columns import Signal
from scaler.signals.latest import LatestSamples, TargetRules

Q = Quantity
CHAT = WorkloadKey("ai", "chat")
NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)
POD = 'namespace="ai",pod="chat-0"'


@pytest.fixture
def latest(read):
    """`latest(text)`: the signals of `chat` after one page."""

    def latest(text, target=NODE):
        intake = LatestSamples([TargetRules(CHAT, pods=False)], owners_by_name({CHAT: None}), 15.0)
        intake.land(target, read(text), 1000.0)
        row = intake.totals(np.array([0]), 1000.0).latest[0]
        return {signal: None if isnan(row[signal]) else float(row[signal]) for signal in Signal}

    return latest


# 1. Adding up copies of one GPU, a device and its parts, MIG power once per instance, a parent and its instances:
# test_sharing.py and test_gpus.py.


# 2. Identifying a MIG instance by its GPU's UUID alone: test_gpus.py. (Averages over instances of different sizes:
# tests/scaler/signals/gpus.)


# 3. Reading a missing family as 0. (Empty responses: test_reader.py.)


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


# 4. Using per-pod zeros on a busy device: test_sharing.py.


# 5. Averaging marks for "no value" (test_blanks.py), and losing a page to one line.


@pytest.mark.parametrize("line", ["...", 'X{UUID="g"} ERROR - FAILED TO CONVERT TO STRING', "<<<NULL>>>", "\x00"])
def test_line_that_is_no_sample_costs_only_itself(read, cell, line):
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


# 7. Using held memory as load; 8. scaling by a utilization that one small request fills.


def test_held_memory_and_utilization_are_no_signals(latest):
    page = f'DCGM_FI_DEV_FB_USED{{UUID="g",{POD}}} 80000\nDCGM_FI_DEV_GPU_UTIL{{UUID="g",{POD}}} 100\n'
    assert set(latest(page).values()) == {None}


def test_engine_activity_is_a_signal(latest):
    assert latest(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="g",{POD}}} 0.5\n')[Signal.GPU_ENGINE] == 0.5


# 9. Reading a family or label under one name only.


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


# 10. Using the exporter's pod as the workload's, and "" as a pod: test_sharing.py.


# 11. Reading repeats as new samples, and values of a previous pod: tests/exporter/scrape/test_interval.py,
# tests/scaler/workloads/pods and tests/scaler/signals/latest.


# 12. Counters as gauges, gauges as counters, times as counts. (Decreasing counters:
# tests/scaler/signals/latest and tests/scaler/signals/kernels.)


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


def test_creation_time_of_a_counter_is_no_count(read, cell):
    page = (
        'vllm:request_success_total{model_name="m"} 3\nvllm:request_success_created{model_name="m"} 1.78e9\n'
        'vllm:prompt_tokens_created{model_name="m"} 1.78e9\n'
    )
    assert cell(read(page), "m", Q.REQUESTS_FINISHED) == 3.0
    assert isnan(cell(read(page), "m", Q.TOKENS_PROMPT))


# 13. Adding a total to its parts, and counting only the last engine: test_engines.py.


# 14. Using ready pods only. (Increasing counters are activity: tests/scaler/engine/decider/test_gateways.)


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
def test_requests_outside_the_pods_are_read(read, cell, page, key, quantity, value):
    assert cell(read(page), key, quantity) == value


# 15. Using a sleeping engine as idle capacity: test_engines.py. (A failed scrape and k of n pods:
# tests/scaler/policy/test_some_pods_do_not_answer.py; a loading replica: tests/scaler/policy/test_zero_needs_proof.py.)


# 16. Expecting well-formed text.


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
