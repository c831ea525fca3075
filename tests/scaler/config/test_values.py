"""Checks the exact message and position for a single invalid value."""

import pytest

from exporter.catalog import KINDS
from scaler.config.scalars import ENGINES

_DURATION = "must be a duration such as 500ms, 5s, 2m or 1h30m"
_ENGINES = ", ".join(ENGINES)
_URL = "must be a URL such as http://chat.ai.svc:8000/metrics"
_HOST_NAME = "must be a host name in lower case, without scheme and port, such as tidegate.example.com"
_ADDRESS = 'must be host:port such as 0.0.0.0:8080 or "[::]:8080"'
_WORKLOAD = "must be the name of a Kubernetes workload"
_SPELLING = "(lower-case letters, digits and '-', at most 253 characters)"


@pytest.mark.parametrize(("text", "expected"), [
    # Durations. `1:30` is 90 to YAML 1.1, and `010` is 8.
    ("tick: fast", f"1:7: tick: {_DURATION}, got fast"),
    ("tick: 1:30", f"1:7: tick: {_DURATION} (hours and minutes are 1h30m, minutes and seconds 1m30s), got 1:30"),
    ("tick: 010", f"1:7: tick: {_DURATION}, got 010"),
    ("tick: 1m1h", f"1:7: tick: {_DURATION}, got 1m1h"),
    ('tick: "1"', f'1:7: tick: {_DURATION}, got "1"'),
    ("tick: on", f"1:7: tick: {_DURATION}, got on"),
    ("tick: true", f"1:7: tick: {_DURATION}, got true"),
    ("tick:", f"1:6: tick: {_DURATION}, got nothing"),
    ("tick: .nan", f"1:7: tick: {_DURATION}, got .nan"),
    ("tick: 1e400", "1:7: tick: must be a duration from 0s to 365d, got 1e400"),
    ("tick: -1", "1:7: tick: must be a duration from 0s to 365d, got -1"),
    ("tick: 50ms", "1:7: tick: must be at least 100ms, got 50ms"),
    ("tick: 2m", "1:7: tick: must be at most 1m, got 2m"),
    # Sizes.
    ("scrape: {body_limit: 8Mb}",
     "1:22: scrape.body_limit: must be a size such as 512KiB, 8MiB or a whole number of bytes, got 8Mb"),
    ("scrape: {body_limit: 1B}", "1:22: scrape.body_limit: must be at least 1KiB, got 1B"),
    ("scrape: {body_limit: 2GiB}", "1:22: scrape.body_limit: must be at most 1GiB, got 2GiB"),
    # Numbers.
    ("scrape: {concurrency: 0}", "1:23: scrape.concurrency: must be at least 1, got 0"),
    ("scrape: {concurrency: 9999}", "1:23: scrape.concurrency: must be at most 1024, got 9999"),
    ("scrape: {concurrency: 1.5}", "1:23: scrape.concurrency: must be a whole number, got 1.5"),
    ('scrape: {concurrency: "8"}', '1:23: scrape.concurrency: must be a whole number, got "8"'),
    ("scrape: {concurrency: 1_000}", "1:23: scrape.concurrency: must be a whole number, got 1_000"),
    ("freshness: {intervals: 1:30}", "1:24: freshness.intervals: must be a number, got 1:30"),
    ("freshness: {intervals: 1e400}", "1:24: freshness.intervals: must be a finite number, got 1e400"),
    # Addresses.
    ("listen: {http: 8080}", f"1:16: listen.http: {_ADDRESS}, got 8080"),
    ("listen: {http: 0.0.0.0}", f"1:16: listen.http: {_ADDRESS}, got 0.0.0.0"),
    ("listen: {http: 0.0.0.0:65536}", "1:16: listen.http: must have a port of at most 65535, got 0.0.0.0:65536"),
    ('listen: {http: "[:::]:80"}',
     '1:16: listen.http: must have an IPv6 address between its brackets, got "[:::]:80"'),
    ("listen: {http_hosts: [a.example:80]}", f"1:23: listen.http_hosts.0: {_HOST_NAME}, got a.example:80"),
    ("listen: {http_hosts: [Tidegate]}", f"1:23: listen.http_hosts.0: {_HOST_NAME}, got Tidegate"),
    ("listen: {grpc_tls: {certificate: a}}", "1:20: listen.grpc_tls.key: must be given"),
    ('listen: {grpc_tls: {certificate: a, key: ""}}', '1:42: listen.grpc_tls.key: must not be empty, got ""'),
    # Enumerations and mappings.
    ("log: {level: off}", "1:14: log.level: must be one of debug, info, warning, error, got off"),
    ("log: debug", "1:6: log: must be a mapping of keys to values, got debug"),
    ("log:", "1:5: log: must be a mapping of keys to values, got nothing"),
    ("log: {lvel: info}", "1:7: log.lvel: unknown key; did you mean level?"),
    ("log: {colour: true}", "1:7: log.colour: unknown key; known here: format, level"),
    ("gpus: {dns: a}", "1:7: gpus: must be a list, got a mapping"),
    ("gpus: [dcgm-exporter]", "1:8: gpus.0: must be a mapping of keys to values, got dcgm-exporter"),
    # Endpoints.
    ("gpus: [{url: dcgm:9400}]", f"1:14: gpus.0.url: {_URL}, got dcgm:9400"),
    ("gpus: [{url: ftp://dcgm}]", f"1:14: gpus.0.url: {_URL}, got ftp://dcgm"),
    ("gpus: [{url: http://dcgm:x}]", f"1:14: gpus.0.url: {_URL}, its port from 1 to 65535, got http://dcgm:x"),
    ("gpus: [{url: http://dcgm:0}]", f"1:14: gpus.0.url: {_URL}, its port from 1 to 65535, got http://dcgm:0"),
    ("gpus: [{url: http://dcgm#x}]", f"1:14: gpus.0.url: {_URL}, got http://dcgm#x"),
    ("gpus: [{url: http://dc gm}]", f"1:14: gpus.0.url: {_URL}, got http://dc gm"),
    ("gpus: [{urls: []}]", "1:15: gpus.0.urls: must have at least one item, got a list"),
    ("gpus: [{dns: http://dcgm}]",
     "1:14: gpus.0.dns: must be the DNS name of a Service such as chat.ai.svc: a URL goes into url, got http://dcgm"),
    ("gpus: [{dns: dcgm:9400}]",
     "1:14: gpus.0.dns: must be the DNS name of a Service such as chat.ai.svc: its port goes into port, got dcgm:9400"),
    ("gpus: [{dns: DCGM}]", "1:14: gpus.0.dns: must be the DNS name of a Service such as chat.ai.svc, got DCGM"),
    ("gpus: [{dns: a, port: 70000}]", "1:23: gpus.0.port: must be at most 65535, got 70000"),
    ("gpus: [{dns: a, path: metrics}]", "1:23: gpus.0.path: must be a path such as /metrics, got metrics"),
    ("gpus: [{dns: a, scheme: ftp}]", "1:25: gpus.0.scheme: must be one of http, https, got ftp"),
    ("gpus: [{dns: a, kind: dgcm}]",
     f"1:23: gpus.0.kind: must be one of {', '.join(sorted(KINDS))} (did you mean dcgm?), got dgcm"),
    ("gpus: [{dns: a, scheme: https, access: {tls: {insecure_skip_verify: yes}}}]",
     "1:69: gpus.0.access.tls.insecure_skip_verify: must be true or false, got yes"),
])  # fmt: skip
def test_invalid_value_is_reported_with_bound_and_position(check, text, expected):
    errors = [line for line in check(text) if ": warning " not in line]

    assert errors == [f"c.yaml:{expected}"]


@pytest.mark.parametrize(("line", "expected"), [
    ("name: Chat", f"3:9: workloads.0.name: {_WORKLOAD} {_SPELLING}, got Chat"),
    ("name: 7", f"3:9: workloads.0.name: {_WORKLOAD}: put it in quotes, got 7"),
    ("model: 7", "3:10: workloads.0.model: must be text: put it in quotes, got 7"),
    ("model: []", "3:10: workloads.0.model: must be text, got a list"),
    ("engine: vlm", f"3:11: workloads.0.engine: must be one of {_ENGINES} (did you mean vllm?), got vlm"),
    ("engine: dcgm", f"3:11: workloads.0.engine: must be one of {_ENGINES} (its pages go under gpus), got dcgm"),
    ('pod_pattern: ""', '3:16: workloads.0.pod_pattern: must be a glob of pod names such as chat-*-decode-*, got ""'),
    ("replicas: {max: 0}", "3:19: workloads.0.replicas.max: must be at least 1, got 0"),
    ("replicas: {min: -1}", "3:19: workloads.0.replicas.min: must be at least 0, got -1"),
    ("objectives: {work: 0}", "3:22: workloads.0.objectives.work: must be above 0, got 0"),
    ("objectives: {kv_cache: 90}", "3:26: workloads.0.objectives.kv_cache: must be at most 1, got 90"),
    ("objectives: {kv_cache: 90%}", "3:26: workloads.0.objectives.kv_cache: must be a number, got 90%"),
    ("gpu_quiet: 1", "3:14: workloads.0.gpu_quiet: must be below 1, got 1"),
    ("scale_down_band: -0.1", "3:20: workloads.0.scale_down_band: must be at least 0, got -0.1"),
    ("repliccas: {max: 5}", "3:3: workloads.0.repliccas: unknown key; did you mean replicas?"),
    ("keep-warm: 5m", "3:3: workloads.0.keep-warm: unknown key; did you mean keep_warm?"),
])  # fmt: skip
def test_invalid_workload_value_is_reported_with_bound_and_position(check, line, expected):
    rest = {"namespace": "ai", "name": "chat", "engine": "vllm", "pods": "{dns: chat.ai.svc}"}
    rest.pop(line.split(":")[0], None)
    text = "\n".join(["workloads:", "-", f"  {line}", *(f"  {key}: {value}" for key, value in rest.items())])

    assert [one for one in check(text) if ": warning " not in one] == [f"c.yaml:{expected}"]


def test_missing_key_is_reported_at_its_mapping(check):
    lines = check("workloads:\n  - name: chat\n    engine: vllm\n    pods: {dns: a}\n")

    assert lines[0] == "c.yaml:2:5: workloads.0.namespace: must be given"


def test_misspelt_key_is_not_also_reported_as_missing(check):
    lines = check("workloads: [{namspace: ai, name: chat, engine: vllm, pods: {dns: a}, replicas: {min: 1}}]")

    assert lines == ["c.yaml:1:14: workloads.0.namspace: unknown key; did you mean namespace?"]


def test_default_of_a_misspelt_key_is_not_checked(check):
    # The timeout fits the intended interval, but not the default one.
    lines = check("scrape: {intervall: 30s, timeout: 9s}\ngpus: [{dns: a}]")

    assert lines == ["c.yaml:1:10: scrape.intervall: unknown key; did you mean interval?"]


def test_password_in_a_url_is_not_printed(check):
    (line,) = check("gpus: [{url: http://user:secret/@dcgm:9400}]")

    assert "secret" not in line
    assert line.endswith("got http://...@dcgm:9400")


def test_long_value_is_cut_and_unprintable_character_is_escaped(check):
    # 57 + "..." = 60
    lines = check(f'log: {{level: "{"x" * 100}", format: "a\\x07b"}}')

    assert lines[1].endswith(f'got "{"x" * 57}..."')
    assert lines[2].endswith('got "a\\x07b"')
