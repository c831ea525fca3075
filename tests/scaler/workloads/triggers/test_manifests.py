"""Tests what `tidegate check` reports of a manifest: the exact message and position."""

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.config import parse
from scaler.config.scalars import ENGINES
from scaler.lint.triggers import is_manifest
from tests.fakes.manifests import check_manifests

_NO_WAKE_SOURCE = "0 without a gateway: nothing can wake it, so one replica is kept (reason no_wake_source)"
_STRING = "must be a string: put it in quotes"


def _scaled(metadata, kind="external-push", spec="minReplicaCount: 1", more=""):
    """Line 5 is `spec`, line 8 the metadata, which begins in column 17."""
    return dedent(f"""\
        apiVersion: keda.sh/v1alpha1
        kind: ScaledObject
        metadata: {{namespace: ai, name: chat}}
        spec:
          {{{spec}, scaleTargetRef: {{name: chat}}, cooldownPeriod: 30, triggers: [{{
            type: {kind},
            {more}
            metadata: {{{metadata}}}}}]}}
        """)


def _check(text, config=None):
    return [str(problem) for problem in check_manifests(text, "m.yaml", config).problems]


def _ours(keys):
    return f'scalerAddress: "tidegate:6000", {keys}'


def test_two_keys_with_a_minimum_are_valid():
    assert _check(_scaled(_ours("engine: vllm"))) == []


@pytest.mark.parametrize(("keys", "expected"), [
    ("engine: vlm", ("8:56: {0}engine: must be one of " + ", ".join(ENGINES) + " (did you mean vllm?), got 'vlm'")),
    ("engine: vllm, keep-warm: 5m", "8:62: {0}keep-warm: unknown key; did you mean keep_warm?"),
    ("engine: vllm, gateway: http://169.254.169.254", ("8:71: {0}gateway: must be the name of a Service in its own "
     "namespace, or of a shared gateway of Tidegate's configuration; an address is never fetched, and another "
     "namespace's Service is not asked, got 'http://169.254.169.254'")),
    ("engine: vllm, keep_warm: 10s", "8:73: {0}keep_warm: must be at least 3 scrape intervals (15s), got '10s'"),
    ("port: '80', gateway: a", "8:48: {0}port: goes with engine, which is not given"),
    # Kubernetes refuses values that are not strings.
    ("engine: vllm, port: 8000", f"8:68: {{0}}port: {_STRING}, got '8000'"),
    ("engine: vllm, model: on", f"8:69: {{0}}model: {_STRING}, got 'on'"),
    ("engine: vllm, model: ~", f"8:69: {{0}}model: {_STRING}, got '~'"),
    ("engine: vllm, model: 1e3", f"8:69: {{0}}model: {_STRING}, got '1e3'"),
    ("engine: vllm, model: [a]", "8:62: {0}model: must be a string, not a mapping or list"),
    ("engine: vllm, model: a, model: b", "8:72: {0}model: duplicate key: which value applies is undefined"),
])  # fmt: skip
def test_invalid_key_is_reported_at_its_position(keys, expected):
    prefix = "spec.triggers.0.metadata."
    lines = _check(_scaled(_ours(keys)))

    assert lines[:1] == [f"m.yaml:{expected.format(prefix)}"]


@pytest.mark.parametrize("value", ["5m", "1:30", "2026-11-21", "'5'", "vllm", "0x", "1.2.3"])
def test_value_that_kubernetes_reads_as_a_string_is_valid(value):
    assert not [line for line in _check(_scaled(_ours(f"engine: vllm, model: {value}"))) if _STRING in line]


def test_trigger_without_an_address_is_an_error():
    (line,) = _check(_scaled("engine: vllm"))

    assert line == "m.yaml:8:15: spec.triggers.0.metadata.scalerAddress: must be given: the address of Tidegate"


def test_metric_type_must_be_average_value():
    (line,) = _check(_scaled(_ours("engine: vllm"), more="metricType: Value,"))

    assert line.startswith("m.yaml:7:17: error TG034: spec.triggers.0.metricType: must be AverageValue or absent")


@pytest.mark.parametrize(("spec", "expected"), [
    ("minReplicaCount: 0", f"5:4: warning TG001: spec.minReplicaCount: {_NO_WAKE_SOURCE}"),
    ("pollingInterval: 5", f"5:3: warning TG001: spec.minReplicaCount: {_NO_WAKE_SOURCE}; the default is 0"),
    ("minReplicaCount: 2, idleReplicaCount: 0",
     f"5:24: warning TG001: spec.idleReplicaCount: {_NO_WAKE_SOURCE.replace('one replica is', 'replicas.min are')}"),
])  # fmt: skip
def test_zero_without_a_gateway_is_a_warning(spec, expected):
    assert _check(_scaled(_ours("engine: vllm"), spec=spec)) == [f"m.yaml:{expected}"]


def test_zero_with_a_gateway_needs_a_push_trigger():
    keys = _ours("engine: vllm, gateway: epp")

    assert _check(_scaled(keys, spec="minReplicaCount: 0")) == []
    assert _check(_scaled(keys, spec="minReplicaCount: 0", kind="external")) == [
        (
            "m.yaml:6:5: warning TG003: spec.triggers.0.type: wakes only when KEDA polls (pollingInterval, 30 s "
            "by default): "
            "external-push wakes at once"
        )
    ]
    assert _check(_scaled(keys, kind="external")) == []


def test_default_cooldown_is_reported_as_added_to_keep_warm():
    text = _scaled(_ours("gateway: epp, keep_warm: 10m"), spec="minReplicaCount: 0").replace("cooldownPeriod: 30, ", "")

    assert _check(text) == [
        (
            "m.yaml:5:3: warning TG006: spec.cooldownPeriod: is 5m by default and begins when "
            "keep_warm (10m) is "
            "over: asleep after 15m; set it to 60"
        )
    ]
    assert _check(text.replace("minReplicaCount: 0", "minReplicaCount: 1")) == []


def test_invalid_replica_counts_are_errors():
    (line,) = _check(_scaled(_ours("engine: vllm"), spec="minReplicaCount: 1, idleReplicaCount: 1"))

    assert line.endswith("spec.idleReplicaCount: must be 0, got '1'")


def test_unsupported_scale_target_is_an_error():
    text = _scaled(_ours("engine: vllm")).replace("{name: chat}, cool", "{kind: Widget, name: chat}, cool")

    assert "spec.scaleTargetRef: must be KIND/NAME, KIND one of Deployment, " in _check(text)[0]
    assert _check(text.replace("engine: vllm", "gateway: epp")) == []


@pytest.mark.parametrize(("name", "position"), [("", "3:11"), ("name: Chat", "3:33"), ("name: 7_7", "3:33")])
def test_invalid_object_name_is_an_error(name, position):
    bad = "must be the name of a Kubernetes workload (lower-case letters, digits and '-', at most 253 characters), got "
    scaled = _scaled(_ours("engine: vllm")).replace("name: chat}", f"{name}}}", 1)
    (line,) = _check(scaled)
    assert line.startswith(f"m.yaml:{position}: metadata.name: {bad}")
    annotated = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{annotations: {{tidegate.dev/engine: vllm}}, {}}}\n"
    (line,) = _check(annotated.format(name))
    assert ": metadata.name: must name a Deployment: lower-case letters, digits, '-' and '.'" in line


def test_scaled_job_is_its_own_target():
    text = _scaled(_ours("engine: vllm, gateway: epp"), spec="minReplicaCount: 0").replace("ScaledObject", "ScaledJob")

    assert _check(text.replace("scaleTargetRef: {name: chat}, cooldownPeriod: 30, ", "")) == []


@pytest.mark.parametrize("metadata", [
    'scalerAddress: "other:6000", path: /x, query: y',  # with keys of another scaler
    'scalerAddress: "other:6000"',
    "value: '5'",
])  # fmt: skip
def test_trigger_of_another_scaler_is_skipped(metadata):
    checked = check_manifests(_scaled(metadata), "m.yaml", None)

    assert checked == ([], 1)


@pytest.mark.parametrize("metadata", [
    'scalerAddress: "x:6000", engine: vlm',
    'scalerAddress: "x:6000", workload: A',
    'scalerAddress: "my-tidegate.infra:6000", quer: y',
])  # fmt: skip
def test_trigger_is_ours_by_its_address_or_its_keys(metadata):
    assert len(_check(_scaled(metadata))) >= 1


def test_other_documents_are_counted_and_skipped():
    others = "apiVersion: v1\nkind: ConfigMap\ndata: {a: &x b, c: *x, on: yes}\n---\n---\n"
    checked = check_manifests(others + _scaled(_ours("engine: vllm")), "m.yaml", None)

    assert checked == ([], 1)


def test_items_of_a_list_are_checked():
    item = _scaled(_ours("engine: vlm")).replace("\n", "\n    ")
    (problem,) = check_manifests(f"apiVersion: v1\nkind: List\nitems:\n  - {item}", "m.yaml", None).problems

    assert problem.line == 3 + 8


def test_merged_keys_are_read():
    text = f"x: &m {{{_ours('engine: vllm')}}}\n---\n" + _scaled(_ours("engine: vllm"))
    merged = _scaled("<<: {scalerAddress: 'tidegate:6000', engine: vlm}, engine: vllm")

    assert _check(text) == []
    assert _check(merged) == []


def test_invalid_yaml_is_reported_with_its_position_after_the_documents_before_it():
    lines = _check(_scaled(_ours("engine: vlm")) + "---\na: [\n")

    assert [line.split(": ")[0] for line in lines] == ["m.yaml:8:56", "m.yaml:11:1"]
    assert "not valid YAML" in lines[1]
    assert _check("[" * 2000) == ["m.yaml:1:1: is nested too deep"]


_ANNOTATED = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: ai
  name: chat
  annotations:
    other.example/engine: x
    tidegate.dev/engine: vllm
"""


def test_annotations_are_checked_like_a_trigger():
    text = _ANNOTATED + "    tidegate.dev/kep_warm: 5m\n    tidegate.dev/replicas.max: 5\n"
    prefix = "metadata.annotations.tidegate.dev/"

    assert _check(_ANNOTATED) == []
    assert _check(text) == [
        f"m.yaml:9:5: {prefix}kep_warm: unknown key; did you mean keep_warm?",
        f"m.yaml:10:32: {prefix}replicas.max: {_STRING}, got '5'",
    ]


def test_minimum_of_zero_in_annotations_needs_a_gateway():
    assert _check(_ANNOTATED + "    tidegate.dev/replicas.min: '0'\n") == [
        f"m.yaml:9:5: warning TG001: metadata.annotations.tidegate.dev/replicas.min: {_NO_WAKE_SOURCE}"
    ]


@pytest.mark.parametrize(("text", "expected"), [
    (_ANNOTATED.replace("Deployment", "DaemonSet"),
     ("m.yaml:8:5: warning TG080: metadata.annotations.tidegate.dev/engine: is not read on a DaemonSet: it is read on "
      "Deployment, StatefulSet, LeaderWorkerSet, Rollout")),
    (_ANNOTATED.partition("  annotations")[0]
     + "spec: {template: {metadata: {annotations: {tidegate.dev/engine: vllm}}}}\n",
     ("m.yaml:6:44: warning TG080: spec.template.metadata.annotations.tidegate.dev/engine: is not read on pods: "
      "annotate the "
      "Deployment itself")),
    (_ANNOTATED.replace("apps/v1", "keda.sh/v1alpha1").replace("Deployment", "ScaledObject"),
     ("m.yaml:8:5: warning TG080: metadata.annotations.tidegate.dev/engine: is not read on a ScaledObject: use "
      "the metadata of its trigger; only tidegate.dev/brake is read")),
])  # fmt: skip
def test_annotations_on_objects_that_are_not_read_are_a_warning(text, expected):
    assert _check(text) == [expected]


def test_manifest_is_checked_against_its_configuration():
    config = parse(
        dedent("""\
            kubernetes: {}
            scrape: {interval: 1s}
            gateways: [{name: epp, namespaces: [ai], page: {service: epp.gateways}}]
            workloads: [{namespace: ai, name: chat, gateway: {service: x}}]
            """), "c.yaml"
    )[0]  # fmt: skip
    keys = _ours("engine: vllm, gateway: epp, gateway_port: '9', keep_warm: 3s")
    shared = _scaled(keys).replace("name: chat", "name: code")

    assert [line.split(": ")[1] for line in _check(shared, config)] == [
        "warning TG087", "spec.triggers.0.metadata.gateway_port",
    ]  # fmt: skip
    assert [line.split(": ")[1] for line in _check(shared)] == ["spec.triggers.0.metadata.keep_warm"]
    assert _check(_scaled(_ours("workload: chat")), config) == []
    (line,) = _check(_scaled(_ours("workload: other")), config)
    assert line.endswith("must be a workload of this namespace in Tidegate's configuration, got 'other'")
    (line,) = _check(_scaled(keys), config)
    assert "must have no key of Tidegate's: the workload ai/chat is in Tidegate's configuration" in line
    # Without a key it is the workload of its own name.
    assert _check(_scaled('scalerAddress: "tidegate:6000"'), config) == []
    assert len(_check(_scaled('scalerAddress: "tidegate:6000"'))) == 1


@pytest.mark.parametrize(("text", "expected"), [
    ("apiVersion: v1\nkind: X\n", True),
    ('{"kind": "X",\n  "apiVersion": "v1"}', True),
    ("---\n- apiVersion: v1\n  kind: X\n", True),
    ("gpus: [{dns: a, kind: dcgm}]\n", False),
    ("gpus:\n  - dns: a\n    kind: dcgm\n", False),
])  # fmt: skip
def test_manifest_is_recognised_by_its_version_and_kind(text, expected):
    assert is_manifest(text) is expected


_PIECES = st.sampled_from([
    "apiVersion: keda.sh/v1alpha1\n", "kind: ScaledObject\n", "kind: List\n", "items: *a\n", "spec:\n", "  triggers:\n",
    "    - type: external\n", "      metadata: {engine: vllm, scalerAddress: tidegate}\n", "metadata: &a\n",
    "  <<: *a\n",
    "  annotations: {tidegate.dev/engine: x}\n", "  minReplicaCount: 1e9\n", "---\n", "- *a\n", "{", "]",
    "kind: Deployment\n",
    "  idleReplicaCount: -1\n", "  scaleTargetRef: 5\n", "? [a]\n: b\n", "  fallback: x\n",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_no_manifest_raises(text):
    for problem in check_manifests(text, "m.yaml", None).problems:
        assert problem.line >= 1
        assert "\n" not in str(problem)
