"""Builds the workload of a trigger's metadata, and checks it."""

import pytest

from exporter.model import WorkloadKey
from scaler.config import Config, DcgmExporter, Endpoint, Kubernetes, Objectives, Replicas, Scrape, Smoothing
from scaler.config.errors import TriggerErrors, TriggerProblem
from scaler.config.rules import NO_WAKE_SOURCE, RISES_SLOWLY, SLO_NOT_SIZING
from scaler.config.trigger import Trigger, bounds, check_workload, read
from scaler.config.workload import Slo

_KEY = WorkloadKey("ai", "chat", "decode")
_CONFIG = Config(kubernetes=Kubernetes())
_SHARED = Endpoint(service="epp.gateways", port=9090)
_NO_WAKE_SOURCE = "0 without a gateway: nothing can wake it, so one replica is kept (reason no_wake_source)"


def _build(metadata, replicas=None, shared=None, config=_CONFIG, origin="metadata"):
    trigger = read(metadata, origin=origin)
    workload = trigger.workload(_KEY, "Deployment/chat", replicas or Replicas(min=1, max=100), shared)
    return workload, check_workload(trigger, workload, config, origin=origin)


def test_pods_are_those_of_the_scale_target():
    workload, problems = _build({"engine": "vllm", "port": "8001", "path": "/m", "scheme": "https", "model": "llama"})

    assert workload.pods == Endpoint(target="Deployment/chat", port=8001, path="/m", scheme="https")
    assert (workload.engine, workload.model, workload.gateway) == ("vllm", "llama", None)
    assert problems == ()


def test_key_contains_the_name_of_the_trigger():
    workload, _ = _build({"engine": "vllm"})

    assert workload.key == _KEY
    assert (workload.namespace, workload.name) == ("ai", "chat")


def test_gateway_is_a_service_of_the_same_namespace():
    metadata = {
        "engine": "vllm",
        "gateway": "epp",
        "gateway_kind": "ray_serve",
        "gateway_port": "9",
        "gateway_path": "/g",
    }
    workload, problems = _build(metadata, Replicas(min=0, max=100))

    assert workload.gateway == Endpoint(service="epp", kind="ray_serve", port=9, path="/g")
    assert workload.gateway.service_in(workload.namespace) == ("ai", "epp")
    assert workload.gateway_kind == "ray_serve"
    assert problems == ()


def test_workload_without_an_engine_scrapes_no_pod():
    workload, problems = _build({"gateway": "epp"}, Replicas())

    assert workload.pods is None
    assert problems == ()


def test_shared_gateway_has_the_target_of_the_configuration():
    workload, problems = _build({"engine": "vllm", "gateway": "epp", "model": "llama"}, shared=_SHARED)

    assert workload.gateway == _SHARED
    assert problems == ()


def test_keys_set_the_fields_of_the_workload():
    metadata = {
        "engine": "vllm",
        "objectives.work": "8",
        "smoothing.down": "2m",
        "keep_warm": "10m",
        "gpu_quiet": "0.1",
    }
    workload, _ = _build(metadata | {"scale_down_band": "0"}, Replicas(min=2, max=5, idle=0))

    assert workload.objectives == Objectives(work=8.0)
    assert workload.smoothing == Smoothing(down=120.0)
    assert (workload.keep_warm, workload.gpu_quiet, workload.scale_down_band) == (600.0, 0.1, 0.0)
    assert workload.replicas.sleeps
    assert workload.work == 8.0


@pytest.mark.parametrize("origin", ["metadata", "annotations"])
@pytest.mark.parametrize(("metadata", "expected"), [
    ({"engine": "vllm"}, Slo(ttft=2.0, itl=0.06)),
    ({"engine": "sglang", "slo.itl": "40ms"}, Slo(ttft=2.0, itl=0.04)),
    ({"engine": "vllm", "slo.ttft": "500ms", "objectives.work": "8"}, Slo(ttft=0.5, itl=0.06)),
    ({"engine": "vllm", "objectives.work": "8"}, None),
    ({"engine": "nim"}, Slo(ttft=2.0, itl=0.06)),
    ({"engine": "lmdeploy"}, Slo(ttft=2.0, itl=0.06)),
    ({"engine": "triton"}, None),
    ({"engine": "trtllm"}, None),
    ({"engine": "tgi"}, None),
    ({"gateway": "epp"}, None),
])  # fmt: skip
def test_slo_sizes_an_engine_that_counts_tokens(origin, metadata, expected):
    workload, problems = _build(metadata, origin=origin)

    assert workload.latency == expected
    assert problems == ()


@pytest.mark.parametrize("source", [{"engine": "tgi"}, {"engine": "llamacpp"}, {"gateway": "epp"}])
def test_slo_without_tokens_and_latencies_is_refused(source):
    problems = _build(source | {"slo.itl": "40ms"})[1]

    engines = "lmdeploy, nim, ray_vllm, sglang, tidegate, triton, trtllm, vllm"
    bound = f"needs an engine that exposes tokens or latencies ({engines}): set objectives.work instead"
    assert problems == (TriggerProblem("metadata.slo.itl", bound),)


@pytest.mark.parametrize(("engine", "reason"), [
    ("triton", "Triton's vLLM backend exposes no running requests"),
    ("trtllm", "trtllm-serve counts the tokens of a request only when it ends"),
])  # fmt: skip
def test_slo_of_an_engine_without_counters_in_time_is_measured_and_does_not_size_it(engine, reason):
    workload, problems = _build({"engine": engine, "slo.itl": "40ms"})

    bound = f"is measured, not used for sizing: {reason}"
    assert problems == (TriggerProblem("metadata.slo.itl", bound, None, "info", SLO_NOT_SIZING),)
    assert (workload.latency, workload.sized_by_slo) == (Slo(ttft=2.0, itl=0.04), False)


def test_annotations_may_set_mode_observe():
    workload, problems = _build({"engine": "vllm", "mode": "observe"}, origin="annotations")

    assert workload.mode == "observe"
    assert problems == ()


@pytest.mark.parametrize("target", ["Widget/chat", "chat", "Deployment/", ""])
def test_unsupported_scale_target_is_refused(target):
    with pytest.raises(TriggerErrors) as caught:
        Trigger(engine="vllm").workload(_KEY, target, Replicas(), None)

    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("spec.scaleTargetRef", target)
    assert Trigger(gateway="epp").workload(_KEY, target, Replicas(), None).pods is None  # its pods are not scraped


@pytest.mark.parametrize(("counts", "expected"), [
    ((0, 100, None), Replicas(min=0, max=100)),
    ((2, 5, 0), Replicas(min=2, max=5, idle=0)),
])  # fmt: skip
def test_counts_of_a_scaled_object_are_bounds(counts, expected):
    assert bounds(*counts) == expected


def test_invalid_counts_are_refused():
    with pytest.raises(TriggerErrors) as caught:
        bounds(-1, 0, 1)

    assert [str(problem) for problem in caught.value.problems] == [
        "spec.minReplicaCount: must be from 0 to 10000, got '-1'",
        "spec.maxReplicaCount: must be from 1 to 10000, got '0'",
        "spec.idleReplicaCount: must be 0, got '1'",
    ]


@pytest.mark.parametrize(("metadata", "replicas", "expected"), [
    ({"keep_warm": "10s"}, {"min": 1},
     TriggerProblem("metadata.keep_warm", "must be at least 3 scrape intervals (15s)", "10s")),
    ({"smoothing.up": "2m"}, {"min": 1},
     TriggerProblem("metadata.smoothing.up", "is slower than smoothing.down (1m): replicas go before they come", "2m",
             "warning", RISES_SLOWLY)),
    ({"smoothing.up": "1s"}, {"min": 1},
     TriggerProblem("metadata.smoothing.up", "must be 0 or at least the scrape interval (5s)", "1s")),
    ({}, {"min": 0}, TriggerProblem("spec.minReplicaCount", _NO_WAKE_SOURCE, None, "warning", NO_WAKE_SOURCE)),
    ({}, {"min": 2, "idle": 0},
     TriggerProblem("spec.idleReplicaCount",
                    "0 without a gateway: nothing can wake it, so replicas.min are kept (reason "
             "no_wake_source)", None, "warning", NO_WAKE_SOURCE)),
    ({}, {"min": 20}, TriggerProblem("spec.minReplicaCount", "must be at most replicas.max (10)", "20")),
])  # fmt: skip
def test_conflicting_values_are_reported_by_the_key_of_the_tenant(metadata, replicas, expected):
    assert _build({"engine": "vllm"} | metadata, Replicas(**replicas))[1] == (expected,)


def test_conflicting_bound_is_reported_by_its_annotation():
    _, problems = _build({"engine": "vllm"}, Replicas(min=0), origin="annotations")

    assert problems == (TriggerProblem("tidegate.dev/replicas.min", _NO_WAKE_SOURCE, None, "warning", NO_WAKE_SOURCE),)


def test_objective_gpu_engine_needs_dcgm_exporter():
    blind = Config(kubernetes=Kubernetes(dcgm_exporter=None))
    metadata = {"objectives.gpu_engine": "0.8"}

    assert [problem.key for problem in _build(metadata, config=blind)[1]] == ["metadata.objectives.gpu_engine"]
    assert _build(metadata, config=Config(kubernetes=Kubernetes(dcgm_exporter=DcgmExporter())))[1] == ()


def test_fixed_keep_warm_shorter_than_three_scrapes_is_an_error_and_auto_adapts():
    slow = Config(kubernetes=Kubernetes(), scrape=Scrape(interval=120.0))

    assert [str(problem) for problem in _build({"engine": "vllm", "keep_warm": "5m"}, config=slow)[1]] == [
        "metadata.keep_warm: must be at least 3 scrape intervals (6m), got '5m'"
    ]
    assert _build({"engine": "vllm"}, config=slow)[1] == ()


def test_bounds_of_keep_warm_must_be_ordered_and_used():
    metadata = {"engine": "vllm", "keep_warm_min": "2h", "keep_warm_max": "1h"}
    assert [str(problem) for problem in _build(metadata)[1]] == [
        "metadata.keep_warm_min: must be at most keep_warm_max (1h), got '2h'"
    ]
    metadata = {"engine": "vllm", "keep_warm": "5m", "keep_warm_max": "1h"}
    assert [str(problem) for problem in _build(metadata)[1]] == [
        "metadata.keep_warm_max: is not used: keep_warm is 5m, and not auto, got '1h'"
    ]


def test_target_keys_beside_a_shared_gateway_are_errors():
    metadata = {"engine": "vllm", "model": "llama", "gateway": "epp", "gateway_port": "9", "gateway_kind": "epp"}
    _, problems = _build(metadata, shared=_SHARED)

    assert [(problem.key, problem.value, problem.severity) for problem in problems] == [
        ("metadata.gateway_kind", "epp", "error"),
        ("metadata.gateway_port", "9", "error"),
    ]


def test_other_keys_are_checked_with_a_shared_gateway():
    _, problems = _build({"engine": "vllm", "model": "llama", "gateway": "epp", "keep_warm": "3s"}, shared=_SHARED)

    assert [problem.key for problem in problems] == ["metadata.keep_warm"]


def test_shared_gateway_without_a_model_is_a_warning():
    _, problems = _build({"engine": "vllm", "gateway": "epp"}, shared=_SHARED)

    assert [(problem.key, problem.severity) for problem in problems] == [("metadata.model", "warning")]
