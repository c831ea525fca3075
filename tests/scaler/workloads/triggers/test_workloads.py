"""The workload that a tenant's words make, and what is said of it."""

import pytest

from exporter.model import WorkloadKey
from scaler.config import Config, DcgmExporter, Endpoint, Kubernetes, Objectives, Replicas, Scrape, Smoothing
from scaler.config.errors import TriggerErrors, TriggerProblem
from scaler.config.rules import NO_WAKE_SOURCE, RISES_SLOWLY
from scaler.config.trigger import Trigger, bounds, check_workload, read

_KEY = WorkloadKey("ai", "chat", "decode")
_CONFIG = Config(kubernetes=Kubernetes())
_SHARED = Endpoint(service="epp.gateways", port=9090)
_NO_WAKER = "0 without a gateway: nothing can wake it, so one replica is kept (reason no_wake_source)"


def _made(words, replicas=None, shared=None, config=_CONFIG, place="metadata"):
    trigger = read(words, origin=place)
    workload = trigger.workload(_KEY, "Deployment/chat", replicas or Replicas(min=1, max=100), shared)
    return workload, check_workload(trigger, workload, config, origin=place)


def test_its_pods_are_those_of_what_is_scaled():
    workload, said = _made({"engine": "vllm", "port": "8001", "path": "/m", "scheme": "https", "model": "llama"})

    assert workload.pods == Endpoint(target="Deployment/chat", port=8001, path="/m", scheme="https")
    assert (workload.engine, workload.model, workload.gateway) == ("vllm", "llama", None)
    assert said == ()


def test_its_key_says_which_trigger_it_is():
    workload, _ = _made({"engine": "vllm"})

    assert workload.key == _KEY
    assert (workload.namespace, workload.name) == ("ai", "chat")


def test_its_gateway_is_a_service_of_its_own_namespace():
    words = {"engine": "vllm", "gateway": "epp", "gateway_kind": "ray_serve", "gateway_port": "9", "gateway_path": "/g"}
    workload, said = _made(words, Replicas(min=0, max=100))

    assert workload.gateway == Endpoint(service="epp", kind="ray_serve", port=9, path="/g")
    assert workload.gateway.service_in(workload.namespace) == ("ai", "epp")
    assert workload.gateway_kind == "ray_serve"
    assert said == ()


def test_without_an_engine_no_pod_is_asked():
    workload, said = _made({"gateway": "epp"}, Replicas())

    assert workload.pods is None
    assert said == ()


def test_a_shared_gateways_page_is_the_configurations():
    workload, said = _made({"engine": "vllm", "gateway": "epp", "model": "llama"}, shared=_SHARED)

    assert workload.gateway == _SHARED
    assert said == ()


def test_what_the_words_say_is_what_the_workload_says():
    words = {"engine": "vllm", "objectives.work": "8", "smoothing.down": "2m", "keep_warm": "10m", "gpu_quiet": "0.1"}
    workload, _ = _made(words | {"scale_down_band": "0"}, Replicas(min=2, max=5, idle=0))

    assert workload.objectives == Objectives(work=8.0)
    assert workload.smoothing == Smoothing(down=120.0)
    assert (workload.keep_warm, workload.gpu_quiet, workload.scale_down_band) == (600.0, 0.1, 0.0)
    assert workload.replicas.sleeps
    assert workload.work == 8.0


def test_annotations_may_ask_to_be_observed_only():
    workload, said = _made({"engine": "vllm", "mode": "observe"}, place="annotations")

    assert workload.mode == "observe"
    assert said == ()


@pytest.mark.parametrize("target", ["Widget/chat", "chat", "Deployment/", ""])
def test_a_target_whose_pods_cannot_be_found_is_a_bad_word(target):
    with pytest.raises(TriggerErrors) as caught:
        Trigger(engine="vllm").workload(_KEY, target, Replicas(), None)

    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("spec.scaleTargetRef", target)
    assert Trigger(gateway="epp").workload(_KEY, target, Replicas(), None).pods is None  # they are not asked for


@pytest.mark.parametrize(("counts", "expected"), [
    ((0, 100, None), Replicas(min=0, max=100)),
    ((2, 5, 0), Replicas(min=2, max=5, idle=0)),
])  # fmt: skip
def test_the_counts_of_a_scaled_object_are_bounds(counts, expected):
    assert bounds(*counts) == expected


def test_counts_that_no_workload_can_have_are_bad_words():
    with pytest.raises(TriggerErrors) as caught:
        bounds(-1, 0, 1)

    assert [str(problem) for problem in caught.value.problems] == [
        "spec.minReplicaCount: must be from 0 to 10000, got '-1'",
        "spec.maxReplicaCount: must be from 1 to 10000, got '0'",
        "spec.idleReplicaCount: must be 0, got '1'",
    ]


@pytest.mark.parametrize(("words", "replicas", "expected"), [
    ({"keep_warm": "10s"}, {"min": 1},
     TriggerProblem("metadata.keep_warm", "must be at least 3 scrape intervals (15s)", "10s")),
    ({"smoothing.up": "2m"}, {"min": 1},
     TriggerProblem("metadata.smoothing.up", "is slower than smoothing.down (1m): replicas go before they come", "2m",
             "warning", RISES_SLOWLY)),
    ({"smoothing.up": "1s"}, {"min": 1},
     TriggerProblem("metadata.smoothing.up", "must be 0 or at least the scrape interval (5s)", "1s")),
    ({}, {"min": 0}, TriggerProblem("spec.minReplicaCount", _NO_WAKER, None, "warning", NO_WAKE_SOURCE)),
    ({}, {"min": 2, "idle": 0},
     TriggerProblem("spec.idleReplicaCount",
                    "0 without a gateway: nothing can wake it, so replicas.min are kept (reason "
             "no_wake_source)", None, "warning", NO_WAKE_SOURCE)),
    ({}, {"min": 20}, TriggerProblem("spec.minReplicaCount", "must be at most replicas.max (10)", "20")),
])  # fmt: skip
def test_what_does_not_go_together_is_told_by_the_tenants_own_keys(words, replicas, expected):
    assert _made({"engine": "vllm"} | words, Replicas(**replicas))[1] == (expected,)


def test_a_bound_of_annotations_is_told_by_the_annotation():
    _, said = _made({"engine": "vllm"}, Replicas(min=0), place="annotations")

    assert said == (TriggerProblem("tidegate.dev/replicas.min", _NO_WAKER, None, "warning", NO_WAKE_SOURCE),)


def test_gpu_activity_needs_somebody_who_sees_the_gpus():
    blind = Config(kubernetes=Kubernetes(dcgm_exporter=None))
    words = {"objectives.gpu_engine": "0.8"}

    assert [word.key for word in _made(words, config=blind)[1]] == ["metadata.objectives.gpu_engine"]
    assert _made(words, config=Config(kubernetes=Kubernetes(dcgm_exporter=DcgmExporter())))[1] == ()


def test_a_constant_that_a_slow_scrape_overtakes_is_told_and_what_is_learned_gives_way():
    slow = Config(kubernetes=Kubernetes(), scrape=Scrape(interval=120.0))

    assert [str(word) for word in _made({"engine": "vllm", "keep_warm": "5m"}, config=slow)[1]] == [
        "metadata.keep_warm: must be at least 3 scrape intervals (6m), got '5m'"
    ]
    assert _made({"engine": "vllm"}, config=slow)[1] == ()


def test_bounds_of_what_is_learned_go_together_and_with_something_learned():
    words = {"engine": "vllm", "keep_warm_min": "2h", "keep_warm_max": "1h"}
    assert [str(word) for word in _made(words)[1]] == [
        "metadata.keep_warm_min: must be at most keep_warm_max (1h), got '2h'"
    ]
    words = {"engine": "vllm", "keep_warm": "5m", "keep_warm_max": "1h"}
    assert [str(word) for word in _made(words)[1]] == [
        "metadata.keep_warm_max: is not used: keep_warm is 5m, and not auto, got '1h'"
    ]


def test_a_shared_gateway_leaves_nothing_to_say_about_its_page():
    words = {"engine": "vllm", "model": "llama", "gateway": "epp", "gateway_port": "9", "gateway_kind": "epp"}
    _, said = _made(words, shared=_SHARED)

    assert [(word.key, word.value, word.severity) for word in said] == [
        ("metadata.gateway_kind", "epp", "error"),
        ("metadata.gateway_port", "9", "error"),
    ]


def test_with_a_shared_gateway_the_tenants_own_words_are_still_checked():
    _, said = _made({"engine": "vllm", "model": "llama", "gateway": "epp", "keep_warm": "3s"}, shared=_SHARED)

    assert [word.key for word in said] == ["metadata.keep_warm"]


def test_a_shared_gateway_without_a_model_counts_everybodys_queue_and_is_a_warning():
    _, said = _made({"engine": "vllm", "gateway": "epp"}, shared=_SHARED)

    assert [(word.key, word.severity) for word in said] == [("metadata.model", "warning")]
