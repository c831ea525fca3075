"""/metrics is valid exposition text, and an unknown value has no sample."""

import asyncio
import math
from asyncio.subprocess import PIPE
from types import MappingProxyType

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.model import WorkloadKey
from scaler.api.http.collectors import BoardCollector
from scaler.model import Board, Decision, Evidence, Reason
from scaler.policy.overrides import unreadable

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"


def values(text, parse=parse_text):
    """Returns (name, labels) -> value. Fails if a series occurs twice."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found, f"{key} occurs twice"
            found[key] = sample.value
    return found


def of(name, workload, **labels):
    return (name, *sorted({"namespace": "ai", "workload": workload, **labels}.items()))


async def test_decision_is_exposed_with_its_evidence(site):
    site.publish()
    found = values((await site.get("/metrics"))[2])
    assert found[of("tidegate_replicas", "chat")] == 3.0
    assert found[of("tidegate_active", "chat")] == 1.0
    assert found[of("tidegate_reason", "chat", reason="serving")] == 1.0
    assert found[of("tidegate_reading_age_seconds", "chat")] == 1.5
    assert found[of("tidegate_requests_waiting", "chat")] == 30.0
    assert found[of("tidegate_requests_running", "chat")] == 10.0
    assert found[of("tidegate_requests_per_second", "chat")] == 4.2
    assert found[of("tidegate_kv_cache_used_ratio", "chat")] == 0.5
    assert found[of("tidegate_replicas_ready", "chat")] == 2.0
    assert found[of("tidegate_signal", "chat", objective="work")] == 40.0
    assert found[of("tidegate_signal_target", "chat", objective="work")] == 16.0
    assert found[of("tidegate_demand_replicas", "chat", objective="work")] == 2.5
    assert found[of("tidegate_replicas", "jobs")] == 0.0
    assert found[of("tidegate_active", "jobs")] == 0.0
    assert found[of("tidegate_idle_seconds", "jobs")] == 300.0
    assert found[of("tidegate_stale_targets", "code")] == 1.0


async def test_active_overrides_are_exposed(site):
    frozen = Evidence(brake="freeze until 2026-11-23T08:00Z because of the sale (configuration)", brake_until=1.8e9)
    scheduled = Evidence(brake=str(unreadable("ai/Deployment/code")), schedule="floor 2", schedule_floor=2)
    site.publisher.publish(
        [
            Decision(CHAT, 3, True, Reason.FROZEN, 990.0, evidence=frozen),
            Decision(CODE, 3, True, Reason.SCHEDULED, 990.0, evidence=scheduled),
        ],
        at=site.now,
    )
    found = values((await site.get("/metrics"))[2])
    overrides = {key: value for key, value in found.items() if "brake" in key[0] or "schedule_" in key[0]}
    assert overrides == {
        of("tidegate_workload_brake", "chat", brake="freeze"): 1.0,
        of("tidegate_workload_brake_until_timestamp_seconds", "chat"): 1.8e9,
        of("tidegate_workload_brake", "code", brake="never_down"): 1.0,
        of("tidegate_workload_schedule_floor", "code"): 2.0,
    }


async def test_provenance_of_gpu_activity_is_exposed(site):
    evidence = Evidence(gpu_engine_active=0.4, gpu_activity="mixed", gpu_memory_held_bytes=2.0**36, gpus_lost=1)
    site.publisher.publish([Decision(CHAT, 3, True, Reason.SERVING, 990.0, evidence=evidence)], at=site.now)
    found = values((await site.get("/metrics"))[2])
    gpus = {key: value for key, value in found.items() if "workload_gpu" in key[0]}
    assert gpus == {
        of("tidegate_workload_gpu_engine_active_ratio", "chat"): 0.4,
        of("tidegate_workload_gpu_provenance", "chat", provenance="mixed"): 1.0,
        of("tidegate_workload_gpu_memory_held_bytes", "chat"): 2.0**36,
        of("tidegate_workload_gpus_lost", "chat"): 1.0,
    }


async def test_attainment_of_the_slo_is_exposed(site):
    evidence = Evidence(
        slo_attainment=0.994, slo_attainment_hour=0.97, slo_error_budget=0.4, slo_requests_total=1000.0,
        slo_misses_total=6.0, request_replica_s=0.05,
    )  # fmt: skip
    site.publisher.publish([Decision(CHAT, 3, True, Reason.SERVING, 990.0, evidence=evidence)], at=site.now)
    found = values((await site.get("/metrics"))[2])
    assert {key: value for key, value in found.items() if "slo_" in key[0] or "request_replica" in key[0]} == {
        of("tidegate_slo_attainment_ratio", "chat", window="3d"): 0.994,
        of("tidegate_slo_attainment_ratio", "chat", window="1h"): 0.97,
        of("tidegate_slo_error_budget_ratio", "chat"): 0.4,
        of("tidegate_slo_requests_total", "chat"): 1000.0,
        of("tidegate_slo_misses_total", "chat"): 6.0,
        of("tidegate_request_replica_seconds", "chat"): 0.05,
    }


async def test_unknown_value_has_no_sample(site):
    site.publish()
    found = values((await site.get("/metrics"))[2])
    of_code = {key[0] for key in found if ("workload", "code") in key}
    assert of_code == {"tidegate_observed", "tidegate_reason", "tidegate_stale_targets", "tidegate_incomplete_series"}
    assert of("tidegate_requests_held", "chat") not in found
    assert of("tidegate_held_seconds", "chat") not in found
    assert of("tidegate_signal", "chat", objective="gpu_engine") not in found
    assert of("tidegate_demand_replicas", "chat", objective="gpu_engine") not in found
    assert of("tidegate_signal_target", "chat", objective="gpu_engine") in found
    assert not [key for key, value in found.items() if math.isnan(value)]


async def test_each_workload_has_exactly_one_reason(site):
    site.publish()
    found = values((await site.get("/metrics"))[2])
    reasons = [(dict(key[1:])["workload"], dict(key[1:])["reason"]) for key in found if key[0] == "tidegate_reason"]
    assert sorted(reasons) == [("chat", "serving"), ("code", "unknown"), ("jobs", "asleep")]


async def test_ages_grow_with_the_clock_and_are_never_negative(site):
    site.publish()
    site.now += 60.0
    found = values((await site.get("/metrics"))[2])
    assert found[of("tidegate_reading_age_seconds", "chat")] == 61.5
    assert found[("tidegate_board_age_seconds",)] == 60.0
    site.now = 0.0
    found = values((await site.get("/metrics"))[2])
    assert found[of("tidegate_reading_age_seconds", "chat")] == 0.0
    assert found[("tidegate_board_age_seconds",)] == 0.0


async def test_format_is_text_unless_openmetrics_is_accepted(site):
    site.publish()
    status, kind, text = await site.get("/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    status, kind, openmetrics = await site.get("/metrics", Accept=OPENMETRICS)
    assert status == 200
    assert kind.startswith("application/openmetrics-text")
    assert openmetrics.endswith("# EOF\n")

    def decisions(found):
        return {key: value for key, value in found.items() if ("workload", "chat") in key}

    assert decisions(values(text)) == decisions(values(openmetrics, parse_openmetrics)) != {}


async def test_query_selects_families_by_name(site):
    site.publish()
    _, _, text = await site.get("/metrics?name[]=tidegate_replicas&name[]=tidegate_board_version")
    assert {key[0] for key in values(text)} == {"tidegate_replicas", "tidegate_board_version"}


async def test_self_metrics_exist_before_the_first_tick(site):
    found = values((await site.get("/metrics"))[2])
    names = {key[0] for key in found}
    assert found[("tidegate_ticks_failed_total",)] == 0.0
    assert {"tidegate_tick_duration_seconds_count", "tidegate_board_version", "process_cpu_seconds_total"} <= names
    (build,) = [dict(key[1:]) for key in found if key[0] == "tidegate_build_info"]
    assert set(build) == {"version", "python"}


@pytest.mark.parametrize("method", ["StreamIsActive", "Watch"])
async def test_duration_of_a_stream_is_no_latency(site, method):
    site.self_metrics.observe_call("GetMetrics", "OK", 0.002)
    site.self_metrics.observe_call(method, "CANCELLED", 3600.0)
    found = values((await site.get("/metrics"))[2])
    calls = {
        dict(key[1:])["method"]: value
        for key, value in found.items()
        if key[0] == "tidegate_keda_request_duration_seconds_sum"
    }
    assert calls == {"GetMetrics": pytest.approx(0.002)}
    assert found[("tidegate_streams_ended_total", ("code", "CANCELLED"), ("method", method))] == 1.0


async def test_promtool_accepts_the_page(site, debian_tool):
    promtool = debian_tool("promtool", "prometheus")
    site.publish()
    site.self_metrics.observe_call("GetMetrics", "OK", 0.002)
    _, _, text = await site.get("/metrics")
    check = await asyncio.create_subprocess_exec(promtool, "check", "metrics", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    output = await check.communicate(text.encode())
    assert (check.returncode, *output) == (0, b"", b"")


def test_page_shows_the_board_of_collection_time():
    """Writing 5,000 workloads takes half a second, in which KEDA would wait, so it happens after the collection."""
    boards = [Board(7, 990.0, MappingProxyType({CHAT: Decision(CHAT, 3, True, Reason.SERVING, 990.0)}))]
    collected = list(BoardCollector(lambda: boards[-1], lambda: 1000.0).collect())
    boards.append(Board(8, 999.0, MappingProxyType({})))
    samples = {sample.name: sample.value for family in collected for sample in family.samples}
    assert (samples["tidegate_replicas"], samples["tidegate_board_version"], samples["tidegate_board_age_seconds"]) == (
        3,
        7,
        10.0,
    )
