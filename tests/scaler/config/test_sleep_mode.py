"""Checks `sleep_mode`: it needs an engine that shows its state, and a gateway that shows a request meanwhile."""

import pytest

POD, EPP = "engine: vllm, pods: {dns: a}", "gateway: {dns: b}"
KINDS = "epp, envoy, knative, http_addon"


def lines(check, sources, sleep="gpu_share: 0.1"):
    text = f"workloads: [{{namespace: ai, name: chat, replicas: {{min: 1}}, {sources}, sleep_mode: {{{sleep}}}}}]"
    return [line.partition("sleep_mode")[2] for line in check(text) if "sleep_mode" in line]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (f"{POD}, {EPP}", []),
        (f"{POD}, gateway: {{dns: b, kind: http_addon}}", []),
        (f"{POD}, gateway: {{dns: b, kind: ray_serve}}", []),
        (f"{POD}, gateway: {{dns: b, kind: litellm}}",
         [f": needs a gateway that counts open requests ({KINDS}): an engine that sleeps shows none"]),
        (POD, [f": needs a gateway that counts open requests ({KINDS}): an engine that sleeps shows none"]),
        (f"engine: sglang, pods: {{dns: a}}, {EPP}",
         [": needs engine vllm and its pods: no other engine shows that it sleeps"]),
    ],
)  # fmt: skip
def test_sleep_mode_needs_an_engine_and_a_gateway_that_show_it(check, sources, expected):
    assert lines(check, sources) == expected


def test_engine_behind_a_prometheus_cannot_be_called(check):
    prometheus = f"engine: vllm, pods: {{prometheus: {{url: http://p}}}}, {EPP}"
    expected = [".calls: needs pods that are scraped: through Prometheus no engine can be called"]
    assert lines(check, prometheus, "gpu_share: 0.1, calls: true") == expected
    assert lines(check, prometheus) == []


def test_time_of_sleep_needs_as_many_readings_as_idleness(check):
    assert lines(check, f"{POD}, {EPP}", "after: 14s") == [".after: must be at least 3 scrape intervals (15s), got 14s"]


def test_sleep_that_costs_as_much_as_ready_has_no_effect(check):
    expected = [".gpu_share: is 1: asleep a replica costs as much as ready, so it never sleeps"]
    assert lines(check, f"{POD}, {EPP}", "calls: true") == expected
    assert lines(check, f"{POD}, {EPP}", "after: 1m") == []
