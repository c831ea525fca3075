"""The server reads and validates the metadata of a trigger."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.api.keda.authorization import BadMetadata, ConfiguredWorkloads, read
from scaler.config import Config, Endpoint, Workload
from scaler.workloads import Doubt, RejectedCall

CHAT = WorkloadKey("team-a", "chat")


def ref(name="chat", namespace="team-a", /, **metadata):
    return namespace, name, metadata


def error_text(call) -> str:
    with pytest.raises(BadMetadata) as caught:
        read(*call)
    return str(caught.value)


def read_or_error(call) -> WorkloadKey | BadMetadata:
    try:
        return read(*call)
    except BadMetadata as bad:
        return bad


def test_workload_defaults_to_the_name_of_the_scaled_object():
    assert read(*ref()) == CHAT


def test_workload_can_name_another_one_in_the_same_namespace():
    assert read(*ref(workload="llama-3.1-8b")) == WorkloadKey("team-a", "llama-3.1-8b")


def test_kedas_keys_and_their_from_env_forms_are_accepted():
    settings = ["scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile"]
    assert read(*ref(**{key + form: "x" for key in settings for form in ("", "FromEnv")})) == CHAT


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("wrokload", "metadata.wrokload: unknown key; did you mean 'workload'? Known: workload"),
        ("Workload", "metadata.Workload: unknown key; did you mean 'workload'? Known: workload"),
        ("enableTls", "metadata.enableTls: unknown key; did you mean 'enableTLS'? Known: workload"),
        ("serverAddress", "metadata.serverAddress: unknown key; did you mean 'scalerAddress'? Known: workload"),
        (
            "engine",
            (
                "metadata.engine: not allowed: the configuration has no `kubernetes` with `triggers`, "
                "so a trigger can only name a configured workload. Known: workload"
            ),
        ),
        ("threshold", "metadata.threshold: unknown key. Known: workload"),
        ("w\u043erkload", "metadata.'w\\u043erkload': unknown key. Known: workload"),
    ],
)
def test_unknown_key_error_suggests_the_nearest_key(key, message):
    assert error_text(ref(**{key: "chat"})) == message


@pytest.mark.parametrize("name", ["", "Chat", "-chat", "chat-", "a..b", "a_b", "chat\n", "chät", "a" * 254])
def test_workload_must_be_a_dns_name(name):
    assert error_text(ref(workload=name)).startswith("metadata.workload: must be a DNS-1123 name, got '")


@pytest.mark.parametrize("name", ["team-b/chat", "/chat", "../team-b/chat"])
def test_workload_in_another_namespace_cannot_be_named(name):
    message = f"metadata.workload: must be a name in the ScaledObject's own namespace, without a '/', got {name!r}"
    assert error_text(ref(workload=name)) == message


def test_impossible_scaled_object_name_is_refused():
    assert error_text(ref("chat", "a.b")) == "scaledObjectRef.namespace: must be a DNS-1123 label, got 'a.b'"
    assert error_text(ref("chat", "")) == "scaledObjectRef.namespace: must be a DNS-1123 label, got ''"
    assert error_text(ref("")) == "scaledObjectRef.name: must be a DNS-1123 name, got ''"


def test_error_has_key_bound_and_value_as_fields():
    with pytest.raises(BadMetadata) as caught:
        read(*ref(workload="A"))
    assert (caught.value.key, caught.value.bound, caught.value.value) == (
        "metadata.workload",
        "must be a DNS-1123 name",
        "A",
    )


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["chat", ""]) | st.text(max_size=300),
    namespace=st.sampled_from(["team-a"]) | st.text(max_size=80),
    metadata=st.dictionaries(st.sampled_from(["workload", "scalerAddress"]) | st.text(), st.text(), max_size=5),
)
def test_any_metadata_is_read_as_a_workload_of_its_namespace_or_refused_briefly(name, namespace, metadata):
    outcome = read_or_error(ref(name, namespace, **metadata))
    if isinstance(outcome, BadMetadata):
        assert str(outcome).isascii()
        assert len(str(outcome)) < 300
    else:
        assert outcome == WorkloadKey(namespace, metadata.get("workload", name))
        assert "/" not in outcome.name


def test_long_odd_text_is_truncated_in_the_error():
    assert len(error_text(ref(workload="🦑" * 100_000))) < 300
    assert len(error_text(ref(**{"🦑" * 100_000: ""}))) < 300


def workload(name, mode="act", namespace="team-a") -> Workload:
    return Workload(namespace=namespace, name=name, gateway=Endpoint(url="http://gw:9090"), mode=mode)


def doubt(authorizer, *call) -> Doubt:
    with pytest.raises(RejectedCall) as caught:
        authorizer.authorize(*call)
    return caught.value.refused.doubt


def test_configuration_alone_authorizes_without_kubernetes():
    configured = ConfiguredWorkloads.by(Config(workloads=(workload("chat"), workload("watched", "observe"))))
    assert configured.authorize(*ref()) == CHAT
    assert configured.authorize(*ref("other", workload="chat")) == CHAT
    assert doubt(configured, *ref("other")) is Doubt.NOT_CONFIGURED
    assert doubt(configured, *ref("chat", "team-b")) is Doubt.NOT_CONFIGURED
    assert doubt(configured, *ref("watched")) is Doubt.OBSERVED
    assert doubt(configured, *ref(engine="vllm")) is Doubt.INVALID


def test_reload_for_another_namespace_keeps_authorizations_of_this_one():
    before = ConfiguredWorkloads.by(Config(workloads=(workload("chat"), workload("x", namespace="team-b"))))
    after = ConfiguredWorkloads.by(Config(workloads=(workload("chat"),)))
    assert before.about("team-a", "anything") == after.about("team-a", "anything")
    assert before.about("team-b", "x") != after.about("team-b", "x")
    observed = ConfiguredWorkloads.by(Config(workloads=(workload("chat", "observe"),)))
    assert before.about("team-a", "anything") != observed.about("team-a", "anything")
