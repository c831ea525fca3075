"""The kind of a response is detected from its families; a body without metrics is described."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.catalog import KINDS, Reader, UnknownKind, detect, selection
from exporter.model import Quantity
from exporter.scrape.request import foreign
from exporter.textformat import PlainScanner, parse

Q = Quantity

SIGNS = [(kind.name, sign) for kind in KINDS.values() for sign in kind.signs]
VLLM = 'vllm:num_requests_waiting{model_name="m"} 3\nvllm:num_requests_running{model_name="m"} 1\n'
ENVOY = "".join(f'envoy_cluster_upstream_{name}{{envoy_cluster_name="inbound|8000||"}} 9\n'
                for name in ("rq_active", "rq_total", "rq_completed", "cx_active", "cx_total"))  # fmt: skip
RUNTIME = "go_goroutines 4\nprocess_open_fds 9\npython_info 1\nup 1\nscrape_duration_seconds 0.1\n"


@pytest.mark.parametrize(("kind", "sign"), SIGNS)
def test_each_sign_of_a_kind_detects_it(page, kind, sign):
    assert detect(page(f"{sign} 1\n").layout) == kind


@pytest.mark.parametrize(("kind", "sign"), SIGNS)
def test_process_families_change_no_kind(page, kind, sign):
    assert detect(page(f"{RUNTIME}{sign} 1\n").layout) == kind


def test_no_sign_of_a_kind_begins_with_a_sign_of_another():
    """Otherwise the longer one could never decide, or the shorter one would match the other's page.

    A stronger sign decides: production-stack's router has its names beside those of vLLM.
    """
    strength = {sign: kind.signs[sign] for kind in KINDS.values() for sign in kind.signs}
    inside = [
        (a, b)
        for a, one in SIGNS
        for b, other in SIGNS
        if a != b and other.startswith(one) and strength[other] <= strength[one]
    ]
    assert inside == []


def test_engine_behind_istios_sidecar_is_detected(page, read, cell):
    assert detect(page(ENVOY + VLLM).layout) == "vllm"
    assert cell(read(ENVOY + VLLM), "m", Q.REQUESTS_WAITING) == 3.0


@pytest.mark.parametrize("line", ["tgi_queue_size 1", "num_request_max 64", "request_predict_seconds_count 3"])
def test_engine_has_priority_over_the_proxy_beside_it(page, line):
    assert detect(page(f"{ENVOY}{line}\n").layout) != "envoy"


def test_vllm_within_triton_is_triton(page):
    assert detect(page(f'{VLLM}nv_inference_request_success{{model="m"}} 1\n').layout) == "triton"


def test_vllm_served_by_kserve_is_vllm(page):
    steps = "".join(f'request_{step}_seconds_count{{model_name="m"}} 1\n' for step in ("predict", "preprocess"))
    assert detect(page(steps + VLLM).layout) == "vllm"


SGLANG = 'sglang:num_queue_reqs{model_name="m"} 3\n'
RAY = 'ray_serve_deployment_queued_queries{deployment="d"} 1\n'
RAY_VLLM = "".join(
    f'ray_vllm_{name}{{model_name="m"}} 3\n' for name in ("num_requests_waiting", "num_requests_running")
)
DCGM = 'DCGM_FI_DEV_GPU_UTIL{UUID="g"} 3\n'


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ('vllm:healthy_pods_total{server="s"} 1\n', VLLM, "production_stack"),
        ("dynamo_frontend_disconnected_clients 0\n", VLLM, "dynamo"),
        ('dynamo_frontend_inflight_requests{model="m"} 1\n', SGLANG, "dynamo"),
        ('dynamo_component_inflight_requests{dynamo_component="backend"} 1\n', VLLM, "vllm"),
        ('smg_worker_health{worker="w"} 1\n', SGLANG, "smg"),
        ("router_cpu_usage_percent 1\n", VLLM, "vllm"),
        ('gen_ai_server_request_duration_seconds_count{gen_ai_request_model="m"} 1\n', VLLM, "vllm"),
        ('gen_ai_server_request_duration_seconds_count{gen_ai_request_model="m"} 1\n', ENVOY, "envoy"),
        (RAY_VLLM, RAY, "ray_serve"),
        (RAY_VLLM, ENVOY, "ray_vllm"),
        (RAY_VLLM, "ray_node_gpus_utilization 1\nray_node_cpu_utilization 1\nray_tasks 1\n", "ray_vllm"),
        ('gpu_power_usage{gpu_id="0"} 1\n', DCGM, "dcgm"),
        ('gpu_power_usage{gpu_id="0"} 1\n', VLLM, "vllm"),
        ('hw_gpu_info{hw_id="u"} 1\n', "node_load1 1\n", "intel_xpumd"),
        ('hw_temperature_celsius{hw_id="u"} 1\n', VLLM, "vllm"),
    ],
)
def test_outer_one_of_two_kinds_is_read(page, one, other, kind):
    assert detect(page(one + other).layout) == kind
    assert detect(page(other + one).layout) == kind


@pytest.mark.parametrize(
    "lines",
    [
        "hami_gpu_memory_limit_bytes 1\nhami_vgpu_memory_allocated_bytes 1\n",  # HAMi's scheduler
        'gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name="chat"} 3\n',  # a client of models
        "vllm_router_requests_total 3\n",
        "go_goroutines 4\ngo_gc_duration_seconds 1\n",
        "node_load1 0.5\nnode_cpu_seconds_total 9\n",
        'num_requests_running{service="shop"} 3\n',
        'e2e_request_latency_seconds_count{model_name="undefined"} 3\n',
        "gpu_temperature 50\nts_count 3\nte_total 1\nrequest_count 9\nqueue_depth 3\n",
        "istio_requests_total 3\npilot_xds 3\n",
        "flower_events_total 3\n",
        "kube_pod_info 1\n",
    ],
)
def test_response_of_another_exporter_has_no_rows(read, lines):
    with pytest.raises(UnknownKind, match="of this response"):
        read(lines)


def test_kind_is_detected_from_the_valid_lines(page):
    assert detect(page("<oops>\nvllm:num_requests_waiting three\nvllm:num_requests_running 1\n\0\0\n").layout) == "vllm"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[]", "/prometheus/metrics"),
        (b'[{"iter": 1, "numActiveRequests": 3, "numQueuedRequests": 0}]\n', "/prometheus/metrics"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "Prometheus API"),
        (b'{"detail":"Not Found"}', "is the path right?"),
        (b"<!DOCTYPE html>\n<html><body>502</body></html>", "HTML"),
        (b"\n <HTML><head></head></html>", "HTML"),
        (gzip.compress(VLLM.encode(), mtime=0), "gzip"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (VLLM.encode("utf-16"), "UTF-16"),
        (VLLM.encode("utf-16-le"), "UTF-16"),
        (VLLM.encode("utf-16-be"), "UTF-16"),
    ],
)
def test_body_without_metrics_is_described(body, expected):
    assert not len(parse(body).values)
    assert expected in foreign(body)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"oops\n", b'{"a 1', b"[1, 2", b"[" * 100_000, bytes(range(1, 256))])
def test_unrecognized_body_is_not_described(body):
    assert foreign(body) is None


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda each: repr(each).encode()))
def test_any_body_is_described_without_an_exception(body):
    description = foreign(body)
    assert description is None or description


def test_kind_of_many_series_is_detected_by_their_distinct_names():
    body = b"".join(b"envoy_x_%d 1\n" % i for i in range(5000)) + VLLM.encode()
    for page in (parse(body), PlainScanner(selection()).scan(body)):
        assert detect(page.layout) == "vllm"


def test_response_without_a_catalog_family_is_unknown_and_names_its_families():
    scanner = PlainScanner(selection())
    with pytest.raises(UnknownKind, match=r"no family of this response \(node_load1, node_load5\)"):
        Reader("auto").read(scanner.scan(b"node_load1 3\nnode_load5 3\n"), 0.0)
    assert Reader("vllm").read(scanner.scan(b"node_load1 3\n"), 0.0).subjects == ()


def test_response_with_a_quoted_name_first_is_no_json():
    body = b'{"vllm:num_requests_waiting",model_name="m"} 3\n'
    assert len(parse(body).values) == 1
    assert foreign(body) is None


def test_names_in_an_error_have_no_control_characters(read):
    with pytest.raises(UnknownKind) as error:
        read('{"a\x1b[2J"} 1\n')
    assert str(error.value).isprintable()
