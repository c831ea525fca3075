"""Tests that the daemon and `tidegate check` read triggers alike: which are Tidegate's, and their problems."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.kubernetes import decode
from exporter.kubernetes.resources import SCALEDJOBS, SCALEDOBJECTS
from scaler.config import Config, Endpoint, Kubernetes, SharedGateway, Workload
from scaler.config.rules import COOLDOWN_ADDS_UP, CRON_BESIDE, WAKES_BY_POLLING
from scaler.workloads import take
from scaler.workloads.triggers import TriggerContext, parse_triggers
from tests.fakes.manifests import check_manifests

CONFIG = Config(
    kubernetes=Kubernetes(),
    gateways=(SharedGateway(name="llm-d", namespaces=("ai",), page=Endpoint(url="http://llm-d.infra.svc:9090/m")),),
    workloads=tuple(
        Workload(namespace="ai", name=name, engine="vllm", pods=Endpoint(dns=f"{name}.ai.svc"), mode=mode)
        for name, mode in (("llama", "act"), ("watched", "observe"))
    ),
)
ONLY_IN_CHECK = {rule.id for rule in (WAKES_BY_POLLING, COOLDOWN_ADDS_UP, CRON_BESIDE)}  # about KEDA alone


def scaled(*triggers, kind="ScaledObject", name="chat", **spec):
    target = {"jobTargetRef": {}} if kind == "ScaledJob" else {"scaleTargetRef": {"name": name}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": kind,
        "metadata": {"namespace": "ai", "name": name},
        "spec": {**target, **spec, "triggers": list(triggers)},
    }


def trigger(address="tidegate:6000", type_="external-push", name=None, **metadata):
    keys = {key.replace("__", "."): value for key, value in metadata.items()}
    where = {} if address is None else {"scalerAddress": address}
    return {"type": type_, **({"name": name} if name else {}), "metadata": {**where, **keys}}


def record(document):
    resource = SCALEDJOBS if document["kind"] == "ScaledJob" else SCALEDOBJECTS
    return decode.decode(decode.identify(resource, document), document)


def of_daemon(document):
    """Severity, key and bound of each problem."""
    registry = take(CONFIG, [record(document)], [], [])
    return {
        (one.severity, one.key.replace("object.", "metadata."), one.message.partition(", got ")[0])
        for one in registry.object_errors
    }


def of_check(document):
    problems = check_manifests(json.dumps(document), "m.yaml", CONFIG).problems
    return {
        (one.severity, one.key, one.message.partition(", got ")[0].partition("; the default is")[0])
        for one in problems
        if one.rule not in ONLY_IN_CHECK
    }


def ours(document):
    around = TriggerContext(CONFIG, {workload.key: not CONFIG.observes(workload) for workload in CONFIG.workloads})
    return [one.position for one in parse_triggers(record(document), around) if one.ours]


ADDRESSES = {
    "tidegate:6000": True,
    "tidegate.tidegate:6000": True,
    "tidegate.tidegate.svc.cluster.local:6000": True,
    "tidegate.tidegate.svc.cluster.local.:9443": True,
    "dns:///tidegate.tidegate.svc:6000": True,
    "dns://10.0.0.10/tidegate.tidegate.svc:6000": True,
    "passthrough:///tidegate:6000": True,
    "Tidegate.tidegate.svc:6000": True,
    "my-tidegate.infra:6000": True,
    "tidegate-canary.infra:6000": True,
    "tidegate": True,
    "other.tidegate.svc:6000": False,  # another scaler in Tidegate's namespace
    "scaler.infra:6000": False,
    "10.0.0.7:6000": False,
    "": False,
}


@pytest.mark.parametrize("type_", ["external", "external-push"])
@pytest.mark.parametrize(("address", "expected"), ADDRESSES.items())
def test_trigger_at_the_address_of_tidegate_is_recognised_by_both(address, expected, type_):
    document = scaled(trigger(address, type_, enigne="vllm"))
    assert (ours(document) == [0], bool(of_check(document))) == (expected, expected)
    assert of_check(document) == of_daemon(document)


@pytest.mark.parametrize(("keys", "expected"), [
    ({"engine": "vlm"}, True),
    ({"gateway": "epp", "keep_warm": "soon"}, True),
    ({"workload": "unknown"}, True),
    ({"keep_warm": "5m"}, True),  # the engine was forgotten
    ({"path": "/x"}, False),  # another scaler may use these keys
    ({"model": "m", "port": "80"}, False),
    ({"engine": "vlm", "query": "y"}, False),
    ({}, False),
])  # fmt: skip
@pytest.mark.parametrize("type_", ["external", "external-push", "prometheus"])
def test_trigger_at_another_address_is_recognised_by_its_keys_by_both(keys, expected, type_):
    document = scaled(trigger("scaler.infra:6000", type_, **keys))
    expected = expected and type_ != "prometheus"
    assert (ours(document) == [0], bool(of_check(document))) == (expected, expected)
    assert of_check(document) == of_daemon(document)


@pytest.mark.parametrize("document", [
    scaled(trigger(engine="vllm")),
    scaled(trigger(engine="vllm"), trigger(engine="vllm")),  # KEDA's calls would not distinguish them
    scaled(trigger(engine="vllm"), trigger(engine="sglang"), trigger(engine="tgi", name="decode")),
    scaled(trigger(engine="vllm"), trigger(engine="sglang", name="no name!")),
    scaled({"type": "cron", "metadata": {"start": "0 8 * * *"}}, trigger(engine="vlm")),
    scaled(trigger(engine="vllm"), kind="ScaledJob"),
    scaled(trigger(engine="vllm"), kind="ScaledJob", minReplicaCount=2),
    scaled(trigger(engine="vllm"), kind="ScaledJob", maxReplicaCount=0),
    scaled(trigger(engine="vllm"), idleReplicaCount=1),
    scaled(trigger(engine="vllm"), trigger(engine="sglang"), maxReplicaCount=10**9),
    scaled(trigger(engine="vllm"), name="llama"),  # the configuration has that workload
    scaled(trigger(), name="llama"),
    scaled(trigger(), name="watched"),
    scaled(trigger(workload="llama")),
    scaled(trigger(workload="watched")),
    scaled(trigger(workload="unknown")),
    scaled(trigger(workload="llama", engine="vllm")),
    scaled(trigger(workload="../llama")),
    scaled(trigger()),
    scaled(trigger(engine="vllm", gateway="llm-d")),
    scaled(trigger(engine="vllm", gateway="llm-d", gateway_port="9")),
    scaled(trigger(engine="vllm", gateway="epp", keep_warm="1s"), minReplicaCount=0),
    scaled(trigger(gateway="epp"), trigger(gateway="epp", model="m", name="decode")),  # both count one queue
    scaled(trigger(gateway="epp", model="m"), trigger(gateway="epp", model="7", name="decode")),
    scaled(trigger(gateway="llm-d", model="m"), trigger(gateway="llm-d", model="m", keep_warm="5m", name="decode")),
    scaled(trigger(engine="vllm", model="m" * 2000)),
    scaled(trigger(engine="vllm", **{f"key{number}": "" for number in range(100)})),
    scaled(trigger(engine="vllm", portFromEnv="PORT")),
    scaled(*(trigger(engine="vllm", model=str(number)) for number in range(70))),
    scaled(trigger(engine="vllm"), name="a" * 100),
    scaled({**trigger(engine="vllm"), "metadata": {"engine": "vllm", "scalerAddressFromEnv": "WHERE"}}),
])  # fmt: skip
def test_both_report_the_same_problems(document):
    assert of_check(document) == of_daemon(document)


VALUES = {
    "engine": ["vllm", "vlm", ""],
    "gateway": ["epp", "llm-d", "http://169.254.169.254"],
    "workload": ["llama", "watched", "unknown"],
    "keep_warm": ["5m", "1s", "soon"],
    "model": ["m", "7"],
    "port": ["8000", "x"],
    "objectives.work": ["16", "-1"],
    "slo.itl": ["40ms", "0"],
    "schedules": ["0 8 * * 1-5 for 10h floor 2", "always"],
    "query": ["y"],
    "tokenFromEnv": ["TOKEN"],
    "mode": ["observe", "sleep"],
}
TRIGGERS = st.builds(
    lambda type_, name, address, keys: trigger(address, type_, name, **keys),
    st.sampled_from(["external", "external-push", "external-push", "cpu"]),
    st.sampled_from([None, None, "decode", "two words"]),
    st.sampled_from([*ADDRESSES, None]).filter(lambda address: address is not None),
    st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4).flatmap(
        lambda keys: st.fixed_dictionaries({key: st.sampled_from(VALUES[key]) for key in keys})
    ),
)
DOCUMENTS = st.builds(
    lambda triggers, kind, name, counts: scaled(*triggers, kind=kind, name=name, **counts),
    st.lists(TRIGGERS, min_size=1, max_size=4),
    st.sampled_from(["ScaledObject", "ScaledObject", "ScaledJob"]),
    st.sampled_from(["chat", "llama", "watched"]),
    st.fixed_dictionaries({}, optional={
        "minReplicaCount": st.sampled_from([0, 1, 20_000]),
        "maxReplicaCount": st.sampled_from([1, 8, 0]),
        "idleReplicaCount": st.sampled_from([0, 1]),
    }),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS)
@example(scaled(trigger(engine="vllm")))
@example(scaled(trigger(name="decode", engine="vllm"), trigger(name="decode", engine="vllm")))
def test_both_report_the_same_problems_of_any_object(document):
    assert of_check(document) == of_daemon(document)
    assert bool(ours(document)) or not of_check(document)
