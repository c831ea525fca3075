"""`tidegate read -o json` describes whole responses."""

import json
import textwrap

import pytest

from exporter.agent.view import describe
from exporter.catalog import Reader
from exporter.textformat import parse


def view(text):
    page = parse(textwrap.dedent(text).lstrip("\n").encode())
    return describe(Reader("auto").read(page, 1000.0), page)


def test_gpu_response_is_described_in_every_field():
    assert view(
        """
        DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0",container="c"} 57
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0"} 0.25
        DCGM_FI_DEV_FB_USED{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0"} 1024
        DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0"} 4096
        DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0"} 113.611000
        DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="g",modelName="H100",namespace="ai",pod="chat-0"} 9223372036854775794
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="h",GPU_I_ID="3",GPU_I_PROFILE="1g.10gb",modelName="H100"} 1.0
        DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="h",GPU_I_ID="3",GPU_I_PROFILE="1g.10gb",modelName="H100"} 300
        """
    ) == {
        "kind": "dcgm",
        "queues": [],
        "gpus": [
            {
                "uuid": "g",
                "instance": None,
                "profile": None,
                "model": "H100",
                "memory_used_bytes": 1073741824,
                "memory_total_bytes": 4294967296,
                "engine_active": 0.25,
                "utilization": 0.57,
                "power_watts": 113.611,
                "attribution": "exclusive",
                "pods": [{"namespace": "ai", "pod": "chat-0"}],
            },
            {
                "uuid": "h",
                "instance": "3",
                "profile": "1g.10gb",
                "model": "H100",
                "memory_used_bytes": None,
                "memory_total_bytes": None,
                "engine_active": 1.0,
                "utilization": None,
                "power_watts": None,
                "attribution": "none",
                "pods": [],
            },
        ],
        "dropped": [{"line": 6, "reason": "DCGM_FI_DEV_MEMORY_TEMP: 9.22e18 is DCGM's 'no value' mark"}],
    }


def test_engine_response_is_described_in_every_field():
    assert view(
        """
        vllm:num_requests_waiting{model_name="m",engine="0"} 2.0
        vllm:num_requests_waiting{model_name="m",engine="1"} 1.0
        vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.5
        vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 7.0
        vllm:num_requests_running{model_name="m",engine="0"} three
        """
    ) == {
        "kind": "vllm",
        "queues": [{"name": "m", "waiting": 3, "running": None, "kv_cache_used": 0.5, "finished_total": 7}],
        "gpus": [],
        "dropped": [{"line": 5, "reason": "bad value: three"}],
    }


@pytest.mark.parametrize(
    ("lines", "waiting"),
    [
        (["pool_average_queue_size{name='p'} 0.5", "pool_ready_pods{name='p'} 4"], 2),
        (["extension_flow_control_queue_size{inference_pool='p'} 3"], 3),
        (
            [
                "pool_average_queue_size{name='p'} 0.5",
                "pool_ready_pods{name='p'} 4",
                "extension_flow_control_queue_size{inference_pool='p'} 3",
            ],
            5,
        ),
        (["pool_average_queue_size{name='p'} 0.5", "extension_flow_control_queue_size{inference_pool='p'} 3"], None),
        (
            [
                "pool_average_queue_size{name='p'} 0.5",
                "pool_ready_pods{name='p'} 4",
                "extension_flow_control_queue_size{inference_pool='p'} NaN",
            ],
            None,
        ),
        (["pool_ready_pods{name='p'} 4"], None),
        (["pool_average_queue_size{name='p'} 0", "pool_ready_pods{name='p'} 0"], None),
        (
            [
                "pool_average_queue_size{name='p'} 0",
                "pool_ready_pods{name='p'} 0",
                "extension_flow_control_queue_size{inference_pool='p'} 3",
            ],
            3,
        ),
    ],
)
def test_waiting_of_a_pool_is_the_sum_of_engines_and_gateway(lines, waiting):
    (queue,) = view("\n".join("inference_" + line.replace("'", '"') for line in lines))["queues"]
    assert queue["name"] == "p"
    assert queue["waiting"] == waiting


def test_description_is_json_without_nan():
    text = view('vllm:num_requests_waiting{model_name="m"} NaN\nDCGM_FI_DEV_FB_USED 1\n')
    assert json.loads(json.dumps(text, allow_nan=False)) == text


def test_dropped_line_is_listed_once():
    assert [entry["line"] for entry in view("oops\nvllm:num_requests_waiting 1\n")["dropped"]] == [1]


def test_empty_response_is_described_as_empty():
    assert view("") == {"kind": "auto", "queues": [], "gpus": [], "dropped": []}
