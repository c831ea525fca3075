"""LoRA adapters of one engine add up; if a model is configured, only that model counts."""

import pytest

from exporter.model import Quantity, Queue, Role
from scaler.signals.queues import read
from scaler.signals.slots import Column

# vLLM and SGLang print the served model's name for every adapter's requests; a page that prints each adapter's own name
# has one label set for each. `lora_requests_info` has the adapters' names in labels and a time as its value.
VLLM = """
    vllm:num_requests_waiting{model_name="base",engine="0"} 3
    vllm:num_requests_running{model_name="base",engine="0"} 8
    vllm:lora_requests_info{max_lora="4",waiting_lora_adapters="sql",running_lora_adapters="sql,chat"} 1.7e9
"""
SGLANG = """
    sglang:num_queue_reqs{model_name="base",tp_rank="0"} 1
    sglang:num_queue_reqs{model_name="sql",tp_rank="0"} 2
    sglang:num_queue_reqs{model_name="chat",tp_rank="0"} 4
    sglang:num_running_reqs{model_name="base",tp_rank="0"} 10
    sglang:num_running_reqs{model_name="sql",tp_rank="0"} 20
    sglang:num_running_reqs{model_name="chat",tp_rank="0"} 40
"""


def in_hand(samples_, model=None):
    page = read(samples_, Role.PODS, model, 0.0, pods=True)
    return page.values[[Column.WAITING, Column.RUNNING]].tolist()


def test_adapters_counted_under_the_base_model_are_one_queue(samples):
    samples_ = samples(VLLM, "vllm")
    assert samples_.subjects == (Queue("base"),)
    assert in_hand(samples_) == in_hand(samples_, "base") == [3.0, 8.0]


@pytest.mark.parametrize(("kind", "text"), [
    ("sglang", SGLANG),
    ("vllm", SGLANG.replace("sglang:num_queue_reqs", "vllm:num_requests_waiting")
                   .replace("sglang:num_running_reqs", "vllm:num_requests_running")),
])  # fmt: skip
def test_all_adapters_of_a_page_add_up_without_a_model(samples, kind, text):
    assert in_hand(samples(text, kind)) == [7.0, 70.0]


def test_selected_model_is_only_its_label_set(samples):
    samples_ = samples(SGLANG, "sglang")
    assert (in_hand(samples_, "base"), in_hand(samples_, "sql")) == ([1.0, 10.0], [2.0, 20.0])


def test_adapter_info_series_is_no_number_of_requests(samples):
    samples_ = samples(VLLM, "vllm")
    assert set(samples_.quantities) == {Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING}
