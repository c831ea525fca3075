"""Reads the keys of a trigger's metadata and of annotations: those of the configuration, each as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.config import Endpoint, Objectives, Replicas, Smoothing, Workload
from scaler.config.errors import TriggerErrors
from scaler.config.scalars import ENGINES
from scaler.config.trigger import TRIGGER_KEYS, Trigger, read
from scaler.config.workload import GpuShare, RoleRatio, SleepMode, Slo

_ENGINES = ", ".join(ENGINES)
_GATEWAY = "must be the name of a Service in its own namespace, or of a shared gateway of Tidegate's configuration"
_NO_ADDRESS = f"{_GATEWAY}; an address is never fetched, and another namespace's Service is not asked"
_NO_SOURCE = "metadata.engine: must be given, or gateway, or objectives.gpu_engine: else nothing shows how busy it is"


def problems_of(metadata, origin="metadata"):
    """Each problem as its line; none if the metadata is valid."""
    try:
        read(metadata, origin=origin)
    except TriggerErrors as error:
        return [str(problem) for problem in error.problems]
    return []


def test_two_keys_are_enough():
    trigger = read({"scalerAddress": "tidegate.tidegate.svc:6000", "engine": "vllm"}, origin="metadata")

    assert trigger == Trigger(engine="vllm")
    assert (trigger.keep_warm, trigger.objectives, trigger.smoothing) == ("auto", Objectives(), Smoothing())


def test_every_key_is_read_like_the_configuration():
    metadata = {
        "engine": "vllm", "model": "llama", "port": "8001", "path": "/m", "scheme": "https",
        "gateway": "epp", "gateway_kind": "ray_serve", "gateway_port": "9090", "gateway_path": "/g",
        "gateway_scheme": "http", "objectives.work": "16.5", "objectives.kv_cache": "null",
        "slo.ttft": "500ms", "slo.itl": "0.04", "slo.start_within": "5m",
        "objectives.gpu_engine": "0.8", "smoothing.up": "0", "smoothing.down": "1m30s", "keep_warm": "600",
        "keep_warm_min": "2m", "keep_warm_max": "1h",
        "scale_down_band": "0.5", "gpu_quiet": "0", "on_blind": "wake", "on_incomplete": "accept",
        "lease_max": "20m",
        "schedules": "0 8 * * 1-5 for 10h floor 2",
        "hpa_tolerance": "0.05",
        "gpu_hour": "2.5",
        "probe_period": "0", "group": "llama", "role": "decode", "weight": "0.1", "order": "2", "ratio.to": "prefill",
        "ratio.min": "0.5", "ratio.max": "3", "share.priority": "-5", "share.weight": "2",
        "sleep_mode.gpu_share": "0.1", "sleep_mode.after": "45s", "sleep_mode.calls": "true",
        "sleep_mode.timeout": "20s",
    }  # fmt: skip
    expected = {
        "engine": "vllm", "model": "llama", "port": 8001, "path": "/m", "scheme": "https",
        "gateway": "epp", "gateway_kind": "ray_serve", "gateway_port": 9090, "gateway_path": "/g",
        "gateway_scheme": "http", "objectives": Objectives(work=16.5, kv_cache=None, gpu_engine=0.8),
        "slo": Slo(ttft=0.5, itl=0.04, start_within=300.0),
        "smoothing": Smoothing(up=0.0, down=90.0), "keep_warm": 600.0,
        "keep_warm_min": 120.0, "keep_warm_max": 3600.0, "scale_down_band": 0.5, "gpu_quiet": 0.0,
        "hpa_tolerance": 0.05, "gpu_hour": 2.5,
        "on_blind": "wake", "on_incomplete": "accept", "lease_max": 1200.0, "probe_period": 0.0,
        "group": "llama", "role": "decode", "share": GpuShare(priority=-5, weight=2.0),
        "sleep_mode": SleepMode(gpu_share=0.1, after=45.0, calls=True, timeout=20.0),
        "schedules": "0 8 * * 1-5 for 10h floor 2", "weight": 0.1, "order": 2,
        "ratio": RoleRatio(to="prefill", min=0.5, max=3.0),
    }  # fmt: skip

    assert read(metadata, origin="metadata") == Trigger(**expected)
    assert read(
        metadata | {"mode": "observe", "replicas.min": "1", "replicas.max": "4"}, origin="annotations"
    ) == Trigger(**expected, mode="observe", replicas=Replicas(min=1, max=4))
    assert set(metadata) | {"workload", "mode", "replicas.min", "replicas.max"} == set(TRIGGER_KEYS)


@pytest.mark.parametrize("name", ["7", "true", "1e3", "5m"])
def test_model_named_like_a_number_keeps_its_name(name):
    assert read({"engine": "vllm", "model": name}, origin="metadata").model == name


def test_missing_keys_have_the_defaults_of_the_configuration():
    mine, theirs = Trigger(), Workload(namespace="ai", name="chat")
    same = ("engine", "model", "objectives", "smoothing", "keep_warm", "scale_down_band", "gpu_quiet")
    same += ("mode", "on_blind", "on_incomplete", "lease_max", "keep_warm_min", "keep_warm_max")
    same += ("hpa_tolerance", "probe_period", "group", "role", "weight", "order", "ratio", "slo")

    assert [getattr(mine, key) for key in same] == [getattr(theirs, key) for key in same]
    assert [mine.port, mine.path, mine.scheme] == [getattr(Endpoint(), key) for key in ("port", "path", "scheme")]


def test_key_has_the_description_of_the_configuration():
    described = {
        "keep_warm": Workload, "objectives.kv_cache": Objectives, "smoothing.down": Smoothing, "replicas.max": Replicas,
    }  # fmt: skip
    for name, section in described.items():
        key = name.rpartition(".")[2]
        assert TRIGGER_KEYS[name].field.description == section.model_fields[key].description
        assert TRIGGER_KEYS[name].field.default == section.model_fields[key].default


def test_keys_of_keda_are_ignored():
    keys = ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")
    settings = dict.fromkeys([*keys, *(f"{key}FromEnv" for key in keys)], "x")

    assert problems_of({"engine": "vllm"} | settings) == []
    assert problems_of({"engine": "vllm", "scalerAddress": "x"}, "annotations")[0].startswith(
        "tidegate.dev/scalerAddress: unknown key; "
    )


@pytest.mark.parametrize(("metadata", "expected"), [
    ({"engine": "vlm"}, f"metadata.engine: must be one of {_ENGINES} (did you mean vllm?), got 'vlm'"),
    ({"engine": ""}, f"metadata.engine: must be one of {_ENGINES}, got ''"),
    ({"engine": "vllm", "keep_warm": "soon"},
     "metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, or auto, got 'soon'"),
    ({"engine": "vllm", "keep_warm": "null"},
     "metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, or auto, got 'null'"),
    ({"engine": "vllm", "objectives.work": "0"}, "metadata.objectives.work: must be above 0, got '0'"),
    ({"engine": "vllm", "slo.itl": "0"}, "metadata.slo.itl: must be at least 1ms, got '0'"),
    ({"engine": "vllm", "slo.ttft": "fast"},
     "metadata.slo.ttft: must be a duration such as 500ms, 5s, 2m or 1h30m, got 'fast'"),
    ({"engine": "vllm", "slo": "2s"}, "metadata.slo: unknown key; did you mean slo.itl?"),
    ({"engine": "vllm", "objectives.work": "many"}, "metadata.objectives.work: must be a number, got 'many'"),
    # An empty value of a template must not turn the guard off.
    ({"engine": "vllm", "objectives.kv_cache": ""}, "metadata.objectives.kv_cache: must be a number, got ''"),
    ({"engine": "vllm", "port": "8000.5"}, "metadata.port: must be a whole number, got '8000.5'"),
    ({"engine": "vllm", "port": "70000"}, "metadata.port: must be at most 65535, got '70000'"),
    ({"engine": "vllm", "path": "metrics"}, "metadata.path: must be a path such as /metrics, got 'metrics'"),
    ({"engine": "vllm", "scheme": "ftp"}, "metadata.scheme: must be one of http, https, got 'ftp'"),
    # Keys.
    ({"engine": "vllm", "objektives.work": "1"},
     "metadata.objektives.work: unknown key; did you mean objectives.work?"),
    ({"engine": "vllm", "keep-warm": "5m"}, "metadata.keep-warm: unknown key; did you mean keep_warm?"),
    ({"engine": "vllm", "objectives": "1"}, "metadata.objectives: unknown key; did you mean objectives.work?"),
    ({"egnine": "vllm"}, "metadata.egnine: unknown key; did you mean engine?"),
    ({"engineFromEnv": "ENGINE"}, "metadata.engineFromEnv: is not resolved: write engine and its value out"),
    ({"engine": "vllm", "replicas.min": "1"},
     "metadata.replicas.min: is not allowed here: use the ScaledObject's minReplicaCount, got '1'"),
    ({"engine": "vllm", "mode": "enforce"}, "metadata.mode: must be one of act, observe, got 'enforce'"),
    # Combinations.
    ({}, _NO_SOURCE),
    ({"keep_warm": "5m"}, _NO_SOURCE),
    ({"workload": "chat", "engine": "vllm"},
     "metadata.engine: is not allowed beside workload, which Tidegate's configuration defines"),
    ({"workload": "team-a/chat"},
     ("metadata.workload: must be the name of a Kubernetes workload (lower-case letters, digits and '-', at most 253 "
     "characters), got 'team-a/chat'")),
    ({"gateway": "epp", "port": "80"}, "metadata.port: goes with engine, which is not given"),
    ({"engine": "vllm", "gateway_kind": "epp"}, "metadata.gateway_kind: goes with gateway, which is not given"),
])  # fmt: skip
def test_invalid_key_is_reported_with_bound_and_value(metadata, expected):
    assert problems_of(metadata) == [expected]


@pytest.mark.parametrize("value", [
    "http://169.254.169.254/latest", "epp:9090", "team-b/epp", "epp.team-b", "epp.team-b.svc", "10.0.0.7", "[::1]",
    "//evil", "epp.", ".",
])  # fmt: skip
def test_gateway_is_a_name_and_never_an_address(value):
    assert problems_of({"engine": "vllm", "gateway": value}) == [f"metadata.gateway: {_NO_ADDRESS}, got {value!r}"]


@pytest.mark.parametrize("value", ["Epp", "", "a b", "-a", "a" * 64])
def test_gateway_name_must_be_a_service_name(value):
    assert problems_of({"engine": "vllm", "gateway": value}) == [f"metadata.gateway: {_GATEWAY}, got {value!r}"]


def test_all_errors_are_reported_in_the_given_order():
    lines = problems_of({"keep_warm": "x", "egnine": "vllm", "port": "0", "gateway": "a.b", "gateway_port": "y"})

    assert [line.split(":")[0] for line in lines] == [
        "metadata.keep_warm", "metadata.egnine", "metadata.port", "metadata.gateway", "metadata.gateway_port",
    ]  # fmt: skip


def test_errors_of_annotations_name_the_annotation():
    lines = problems_of(
        {"engine": "vllm", "keep_warm": "x", "workload": "chat", "replicas.max": "0", "gate": "a"}, "annotations"
    )

    assert [line.split(", ")[0] for line in lines] == [
        "tidegate.dev/keep_warm: must be a duration such as 500ms",
        "tidegate.dev/workload: is not allowed here: it is for the metadata of a trigger",
        "tidegate.dev/replicas.max: must be at least 1",
        "tidegate.dev/gate: unknown key; did you mean gateway?",
    ]


def test_text_of_a_tenant_is_quoted_cut_and_in_ascii():
    (long,) = problems_of({"engine": "vllm", "gateway_x" * 100: "y"})
    (kyrillic,) = problems_of({"engine": "vllm", "\u0435ngine": "y"})
    (value,) = problems_of({"engine": "v" * 5000})

    assert len(long) < 740
    assert kyrillic.startswith("'metadata.\\u0435ngine': unknown key; known here: ")
    assert value.endswith("... (5000 characters)")
    assert all(line.isascii() for line in (long, kyrillic, value))


def test_thousand_unknown_keys_are_counted_and_not_listed():
    lines = problems_of({"engine": "vllm"} | {f"key{number}": "" for number in range(1000)})

    assert len(lines) == 17
    assert "metadata: has 984 further unknown keys" in lines


_KEYS = st.one_of(st.sampled_from(sorted(TRIGGER_KEYS)), st.text(max_size=12))
_VALUES = st.one_of(
    st.sampled_from(["vllm", "5m", "1", "0.5", "null", "epp", "/m", "http", "a/b"]), st.text(max_size=12)
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=8), st.sampled_from(["metadata", "annotations"]))
def test_arbitrary_text_is_read_or_refused(metadata, origin):
    problems = ()
    try:
        read(metadata, origin=origin)
    except TriggerErrors as bad:
        problems = bad.problems or ("a refusal without a reason \u00e9",)
    assert all(str(problem).isascii() and "Input should" not in str(problem) for problem in problems)
