"""Every response keeps the invariants: any order, any garbage, any combination of sharers and copies."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.catalog import KINDS, Reader, UnknownKind
from exporter.model import Attribution, Gpu, Quantity
from exporter.textformat import parse

Q = Quantity
RATIOS = {
    Q.KV_CACHE_USED,
    Q.ENGINE_AWAKE,
    Q.GPU_ENGINE_ACTIVE,
    Q.GPU_UTILIZATION,
    Q.GPU_SM_ACTIVE,
    Q.GPU_TENSOR_ACTIVE,
    Q.GPU_DRAM_ACTIVE,
}
NAMES = [
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_SM_CLOCK",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:engine_sleep_state",
    "sglang:num_queue_reqs",
    "nv_inference_pending_request_count",
    "nv_gpu_utilization",
    "nv_gpu_power_usage",
    "ray_serve_deployment_queued_queries",
    "inference_pool_average_queue_size",
    "inference_pool_ready_pods",
    "inference_extension_flow_control_queue_size",
    "redis_key_size",
    "redis_stream_group_lag",
    "tgi_queue_size",
    "trtllm_num_requests_waiting",
    "envoy_cluster_upstream_rq_pending_active",
    "litellm_in_flight_requests",
    "kn_revision_request_queued",
    "celery_queue_length",
    "celery_worker_tasks_active",
    "rq_jobs",
    "rabbitmq_queue_messages_ready",
    "jetstream_consumer_num_pending",
    "kafka_consumergroup_lag",
    "nvidia_smi_utilization_gpu_ratio",
    "gpu_gfx_activity",
    "xpum_engine_ratio",
    "ray_vllm_num_requests_waiting",
    "vllm:num_incoming_requests_total",
    "dynamo_frontend_queued_requests",
    "dynamo_frontend_inflight_requests",
    "dynamo_frontend_requests_total",
    "smg_worker_requests_active",
    "smg_http_responses_total",
    "gen_ai_server_request_duration_seconds_count",
    "hami_host_gpu_utilization_ratio",
    "hami_vgpu_memory_limit_bytes",
    "hw_gpu_utilization_ratio",
]
LABELS = {
    "UUID": ["g", "h", ""],
    "GPU_I_ID": ["1", ""],
    "pod": ["p", "q", ""],
    "exported_pod": ["r", ""],
    "vgpu": ["0", "1"],
    "model_name": ["m", "n"],
    "model": ["m", "unknown_model"],
    "engine": ["0", "1"],
    "tp_rank": ["0", "1", "x"],
    "dp_rank": ["0", "1"],
    "priority": ["", "1"],
    "sleep_state": ["awake", "asleep"],
    "name": ["pool"],
    "gpu_uuid": ["g"],
    "db": ["db0", "db1"],
    "key": ["s", "k"],
    "stream": ["s"],
    "group": ["w"],
    "application": ["a", "b"],
    "deployment": ["d"],
    "queue": ["q", ""],
    "queue_name": ["q", "r"],
    "vhost": ["/", "v"],
    "status": ["queued", "started", "failed", "success", "error"],
    "envoy_cluster_name": ["c", "xds_cluster"],
    "consumer_name": ["c"],
    "is_consumer_leader": ["true", "false"],
    "consumergroup": ["g"],
    "topic": ["t", "u"],
    "uuid": ["g", ""],
    "gpu_partition_id": ["0", "1"],
    "sub_dev": ["0", "1"],
    "error_code": ["no_available_workers", ""],
    "status_code": ["200", "503"],
    "error_type": ["_OTHER", ""],
    "device_uuid": ["g", "h"],
    "hw_id": ["g"],
}
VALUES = [
    "0",
    "1",
    "0.5",
    "1.2",
    "57",
    "100",
    "-1",
    "NaN",
    "+Inf",
    "9223372036854775794",
    "2147483632",
    "140737488355328",
]


@st.composite
def lines(draw):
    chosen = draw(st.lists(st.sampled_from(sorted(LABELS)), max_size=6, unique=True))
    labels = ",".join(f'{name}="{draw(st.sampled_from(LABELS[name]))}"' for name in chosen)
    stamp = draw(st.sampled_from(["", "", "", " 5000"]))
    return f"{draw(st.sampled_from(NAMES))}{{{labels}}} {draw(st.sampled_from(VALUES))}{stamp}"


def pages(*, unique=False):
    return st.lists(lines(), max_size=25, unique_by=(lambda line: line.rsplit("}", 1)[0]) if unique else None)


def read(text_lines, kind="auto"):
    return Reader(kind).read(parse("\n".join(text_lines).encode()), 1000.0)


def as_table(samples):
    """Returns rows by subject with None for NaN, so that tables can be compared."""
    return {
        subject: (
            {str(q): None if math.isnan(v) else v for q, v in zip(samples.quantities, row, strict=True)},
            at,
        )
        for subject, row, at in zip(samples.subjects, samples.values.tolist(), samples.at.tolist(), strict=True)
    }


@settings(max_examples=150, deadline=None)
@given(pages(), st.sampled_from([*KINDS, "auto"]))
def test_values_of_any_response_are_plausible_or_unknown(page, kind):
    try:
        samples = read(page, kind)
    except UnknownKind:
        assert kind == "auto"
        return
    assert samples.values.shape == (len(samples.subjects), len(samples.quantities))
    assert len(set(samples.subjects)) == len(samples.subjects)
    known_values = samples.values[~np.isnan(samples.values)]
    assert (known_values >= 0.0).all()
    assert (known_values < 2.0**62).all()
    for quantity in RATIOS & set(samples.quantities):
        column = samples.column(quantity)
        assert (column[~np.isnan(column)] <= 1.0).all()
    assert set(samples.at.tolist()) <= {1000.0, 5.0}
    identities = [(s.uuid, s.instance) for s in samples.subjects if isinstance(s, Gpu)]
    assert len(set(identities)) == len(identities)


@settings(max_examples=80, deadline=None)
@given(pages(unique=True), st.sampled_from([*KINDS]), st.randoms(use_true_random=False))
def test_order_of_lines_does_not_matter(page, kind, random):
    shuffled = random.sample(page, len(page))
    before, after = as_table(read(page, kind)), as_table(read(shuffled, kind))
    # A GPU's model and profile are those of its first line; these pages print neither.
    assert before == after


@settings(max_examples=80, deadline=None)
@given(pages(), pages(), st.sampled_from([*KINDS]))
def test_earlier_response_makes_quantities_incomplete_and_changes_no_other_value(first, second, kind):
    reader = Reader(kind)
    reader.read(parse("\n".join(first).encode()), 1.0)
    page = parse("\n".join(second).encode())
    again = reader.read(page, 1000.0)
    fresh = Reader(kind).read(page, 1000.0)
    assert again.dropped == fresh.dropped
    incomplete = {(again.subjects[gap.row], gap.quantity) for gap in again.gaps}
    values, expected = as_table(again), as_table(fresh)
    assert expected.keys() <= values.keys()
    for subject, (row, _) in values.items():
        for quantity, value in row.items():
            if value is None:
                is_known = expected.get(subject, ({}, 0.0))[0].get(quantity) is not None
                assert not is_known or (subject, quantity) in incomplete
            else:
                assert value == expected[subject][0][quantity]


@settings(max_examples=80, deadline=None)
@given(
    busy=st.integers(0, 100),
    parts=st.lists(st.integers(0, 100), min_size=1, max_size=4),
    device_line=st.booleans(),
)
def test_value_of_a_shared_gpu_is_the_devices_or_unknown(busy, parts, device_line):
    """Never a sum over sharers, never one sharer's part, and never more than one row."""
    copies = not device_line
    values = [busy] * len(parts) if copies else parts
    text = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="g",vgpu="{n}",pod="p{n}"}} {value}' for n, value in enumerate(values)]
    samples = read([*text, *([f'DCGM_FI_DEV_GPU_UTIL{{UUID="g"}} {busy}'] if device_line else [])])
    (gpu,) = samples.subjects
    assert samples.column(Q.GPU_UTILIZATION).tolist() == [busy / 100]
    assert gpu.attribution in {Attribution.DEVICE, Attribution.PROCESS}
    if copies or not any(parts):
        assert gpu.attribution is Attribution.DEVICE
    if gpu.attribution is Attribution.PROCESS:
        assert sum(parts) <= busy * 1.1 + 5.001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 1000), st.none()), min_size=1, max_size=8))
def test_sum_with_an_unknown_part_is_unknown(values):
    """The expected sum is known only if all parts are. None stands for a series with NaN."""
    text = [
        f'vllm:num_requests_waiting{{model_name="m",engine="{n}"}} {"NaN" if value is None else value}'
        for n, value in enumerate(values)
    ]
    total = read(text).column(Q.REQUESTS_WAITING)[0]
    if None in values:
        assert math.isnan(total)
    else:
        assert total == sum(values)
