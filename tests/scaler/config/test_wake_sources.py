"""Checks which wake source a workload has, and the warnings if it has none."""

from __future__ import annotations

import pytest

from scaler.config.model import Config
from scaler.config.workload import woken_by


def _chat(gateway=None, minimum=0):
    chat = {"namespace": "ai", "name": "chat", "engine": "vllm", "pods": {"dns": "chat.ai.svc"}}
    chat |= {"replicas": {"min": minimum}} | ({"gateway": gateway} if gateway else {})
    return chat


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (_chat({"dns": "epp.ai.svc"}), "woken by the queue of its gateway (epp)"),
        (
            _chat({"dns": "i.keda.svc", "kind": "http_addon"}),
            "woken by the requests in flight of its gateway (http_addon)",
        ),
        (_chat({"dns": "gw.ai.svc", "kind": "envoy"}), "woken by refused requests of its gateway (envoy)"),
        (
            _chat({"dns": "front.ai.svc", "kind": "vllm"}),
            "kept at one replica at least: nothing would show a request at zero (reason no_wake_source)",
        ),
        (_chat(), "kept at one replica at least: nothing would show a request at zero (reason no_wake_source)"),
        (_chat({"dns": "epp.ai.svc"}, minimum=1), "never at zero: replicas.min is above 0"),
    ],
)
def test_wake_source_of_a_workload_is_described(workload, expected):
    [chat] = Config.model_validate({"workloads": [workload]}).workloads

    assert woken_by(chat) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("epp", []),
        ("envoy", ["envoy rejects requests at zero replicas: the first ones fail, and wake the workload"]),
        ("vllm", ["vllm shows no request at zero replicas, so one is kept (reason no_wake_source)"]),
    ],
)
def test_gateway_that_loses_requests_at_zero_is_a_warning(check, kind, expected):
    lines = check(
        f"workloads: [{{namespace: ai, name: chat, engine: vllm, pods: {{dns: a}}, gateway: {{dns: b, kind: {kind}}}}}]"
    )

    assert [line.partition("gateway.kind: ")[2] for line in lines] == expected
