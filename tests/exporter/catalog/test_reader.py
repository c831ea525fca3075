"""The reader detects the kind of a response, compiles its plan, and sets the times of its rows."""

import numpy as np
import pytest

from exporter.catalog import GPU_KINDS, KINDS, Reader, UnknownKind, compile_plan, detect
from exporter.model import Quantity, Queue
from exporter.textformat import PlainScanner

Q = Quantity


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('DCGM_FI_DEV_GPU_TEMP{UUID="g"} 1', "dcgm"),
        ('vllm:num_requests_waiting{model_name="m"} 1', "vllm"),
        ('sglang:num_queue_reqs{model_name="m"} 1', "sglang"),
        ('nv_inference_count{model="m",version="1"} 1', "triton"),
        ('nv_gpu_utilization{gpu_uuid="g"} 0.5', "triton"),
        ("llamacpp:requests_deferred 1", "llamacpp"),
        ('ray_serve_deployment_queued_queries{deployment="d"} 1', "ray_serve"),
        ('llm_d_epp_ready_endpoints{name="p"} 1', "epp"),
        ("redis_up 1", "redis_exporter"),
        ("process_max_fds 1", None),
        ("", None),
    ],
)
def test_kind_is_detected_by_its_families(page, text, kind):
    assert detect(page(text).layout) == kind


def test_vllm_with_gpu_gauges_stays_vllm(page):
    text = "vllm:num_requests_waiting 1\n" + "".join(
        f'nv_gpu_{name}{{gpu_uuid="g"}} 1\n' for name in ("utilization", "power_usage", "power_limit")
    )
    assert detect(page(text).layout) == "vllm"


def test_triton_with_many_names_of_its_backend_stays_triton(page):
    text = 'nv_inference_count{model="m",version="1"} 1\n' + "".join(f"vllm:family_{n} 1\n" for n in range(200))
    assert detect(page(text).layout) == "triton"


def test_only_the_rows_of_the_configured_kind_are_read(read):
    text = 'vllm:num_requests_waiting{model_name="m"} 1\nDCGM_FI_DEV_GPU_TEMP{UUID="g"} 9e18\nDCGM_FI_DEV_SM_CLOCK 1\n'
    assert read(text, "vllm").subjects == (Queue("m"),)
    assert read(text, "vllm").dropped == ()
    assert read(text).kind == "dcgm"  # two families against one


def test_error_for_an_unknown_response_lists_the_kinds(read):
    with pytest.raises(UnknownKind) as error:
        read("node_load1 3\nnode_load5 3\nnode_cpu_seconds_total 1\ngo_goroutines 4\n")
    assert "no family of this response (node_load1, node_load5, node_cpu_seconds_total, ...)" in str(error.value)
    assert str(error.value).endswith(", ".join(KINDS))


def test_unknown_kind_is_refused_before_any_page(page):
    with pytest.raises(UnknownKind, match="got 'ollama'"):
        Reader("ollama")
    with pytest.raises(UnknownKind, match="got 'auto'"):
        compile_plan("auto", page("up 1").layout)


@pytest.mark.parametrize("kind", ["auto", "dcgm", "vllm"])
def test_empty_response_has_no_rows_and_no_zeros(read, kind):
    """dcgm-exporter responds with 200 and an empty body while it reloads."""
    samples = read("", kind)
    assert samples.subjects == ()
    assert samples.quantities == ()
    assert samples.column(Q.GPU_ENGINE_ACTIVE).shape == (0,)


def test_target_with_an_empty_response_keeps_its_kind(page):
    reader = Reader("auto")
    reader.read(page("vllm:num_requests_waiting 1\n"), 0.0)
    assert reader.read(page(""), 1.0).kind == "vllm"


def test_response_of_another_kind_than_configured_has_no_rows(read):
    samples = read("up 1\n", "vllm")
    assert samples.kind == "vllm"
    assert samples.subjects == ()


def test_bad_lines_of_the_response_are_in_the_samples(read):
    samples = read("oops\nvllm:num_requests_waiting 1\nvllm:num_requests_running NaN\n")
    assert [line for line, _ in samples.dropped] == [1, 3]


def test_time_of_a_row_without_timestamps_is_its_receipt(read):
    assert read('vllm:num_requests_waiting{model_name="m"} 1\n').at.tolist() == [1000.0]


def test_time_of_a_row_is_that_of_its_oldest_series(read):
    samples = read(
        """
        vllm:num_requests_waiting{model_name="a",engine="0"} 1 500000
        vllm:num_requests_waiting{model_name="a",engine="1"} 1 400000
        vllm:num_requests_running{model_name="a",engine="0"} 1
        vllm:num_requests_waiting{model_name="b",engine="0"} 1
        vllm:unused{model_name="a"} 1 1000
        """
    )
    assert samples.at.tolist() == [400.0, 1000.0]


def test_gpu_with_only_unused_fields_has_a_time(read):
    assert read('DCGM_FI_DEV_SM_CLOCK{UUID="g"} 1 7000\n').at.tolist() == [7.0]


def test_repeated_layout_is_compiled_once(monkeypatch):
    compiled = []

    def counting(kind, layout):
        compiled.append(layout)
        return compile_plan(kind, layout)

    monkeypatch.setattr("exporter.catalog.compile_plan", counting)
    scanner, reader = PlainScanner(), Reader("auto")
    for value in (1, 2, 3):
        samples = reader.read(scanner.scan(b'vllm:num_requests_waiting{model_name="m"} %d\n' % value), 0.0)
        assert samples.column(Q.REQUESTS_WAITING).tolist() == [value]
    samples = reader.read(scanner.scan(b'vllm:num_requests_waiting{model_name="n"} 4\n'), 0.0)
    assert samples.subjects[0] == Queue("n")
    assert len(compiled) == 2


def test_line_numbers_are_those_of_the_last_response():
    scanner, reader = PlainScanner(), Reader("vllm")
    reader.read(scanner.scan(b"vllm:num_requests_waiting 1\n"), 0.0)
    samples = reader.read(scanner.scan(b"# a comment more\n\nvllm:num_requests_waiting -1\n"), 0.0)
    assert [line for line, _ in samples.dropped] == [3]


def test_column_of_a_missing_quantity_is_unknown(read):
    samples = read('vllm:num_requests_waiting{model_name="m"} 1\n')
    assert samples.quantities == (Q.REQUESTS_WAITING,)
    assert np.isnan(samples.column(Q.GPU_POWER)).all()


def test_every_kind_has_a_port_and_a_path():
    assert all(0 < kind.port < 2**16 and kind.path.startswith("/") for kind in KINDS.values())
    assert {kind.path for kind in KINDS.values()} - {"/metrics"} == {
        "/prometheus/metrics",  # trtllm-serve: /metrics is JSON
        "/v1/metrics",  # NIM
        "/metrics/",  # LiteLLM redirects without the slash
        "/stats/prometheus",  # Envoy
        "/metrics/per-object",  # RabbitMQ: /metrics names no queue
    }
    assert all(name == kind.name for name, kind in KINDS.items())
    # TorchServe, KServe's own server and Envoy AI Gateway's processor print counters only.
    counters_only = {"torchserve", "kserve", "envoy_ai_gateway"}
    assert {name for name, kind in KINDS.items() if kind.work is None} == GPU_KINDS | counters_only
