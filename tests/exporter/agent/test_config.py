"""The configuration of `tidegate export` is parsed with defaults and precise errors."""

from textwrap import dedent

import pytest

from scaler.config import ConfigErrors
from scaler.config.agent import ExportConfig, is_export, parse_export
from scaler.lint.run import check_files

HERE = {"TIDEGATE_NODE_IP": "10.0.0.9", "TIDEGATE_POD_NAMESPACE": "ai", "TIDEGATE_POD_NAME": "chat-0"}
SIDECAR = """\
    engines: [{kind: vllm}]
    gpus: {node_port: 9400, of: pod}
    """


def problems(text, environment=None):
    try:
        return [str(each) for each in parse_export(dedent(text), "e.yaml", environment)[1]]
    except ConfigErrors as errors:
        return [str(each) for each in errors.problems]


def read(text, environment=None) -> ExportConfig:
    return parse_export(dedent(text), "e.yaml", environment)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scrape: {}", ["1:1: engines: must name an engine, or gpus must be given: the page would be empty"]),
        ("engine: [{kind: vllm}]", ["1:1: engine: unknown key; did you mean engines?"]),
        ("engines: [{}]", ["1:11: engines.0.kind: must be given"]),
        (
            "engines: [{kind: vllm}]\nscrape: {interval: 1s, timeout: 2s}",
            ["2:33: scrape.timeout: must be at most the scrape interval (1s), got 2s"],
        ),
        (
            "engines: [{kind: vllm}, {kind: vllm}]",
            ["1:25: engines.1.url: must be another target than that of engines.0, got http://127.0.0.1:8000/metrics"],
        ),
        ("gpus: {}", ["1:7: gpus: must have one of url, node_port, nvml: it locates the source"]),
        (
            "gpus: {nvml: true, node_port: 9400}",
            ["1:7: gpus: must have only one of url, node_port, nvml: node_port and nvml are given"],
        ),
        ("gpus: {nvml: true, of: namespace}", ["1:24: gpus.of: must be one of node, pod, got namespace"]),
        (
            "engines: [{kind: vllm, access: {tls: {ca_file: /ca}}}]",
            ["1:38: engines.0.access.tls: is for https: the targets are scraped over http"],
        ),
    ],
)  # fmt: skip
def test_invalid_configuration_is_reported_with_its_position(text, expected):
    assert [line[: len(f"e.yaml:{begins}")] for line, begins in zip(problems(text), expected, strict=True)] == [
        f"e.yaml:{begins}" for begins in expected
    ]


def test_environment_variables_are_required_at_run_time_only():
    assert problems(SIDECAR) == problems(SIDECAR, HERE) == []
    needs = "needs the environment variable"
    assert problems(SIDECAR, {}) == [
        f"e.yaml:2:19: gpus.node_port: {needs} TIDEGATE_NODE_IP (downward API: status.hostIP)",
        f"e.yaml:2:29: gpus.of: {needs} TIDEGATE_POD_NAMESPACE (downward API: metadata.namespace)",
        f"e.yaml:2:29: gpus.of: {needs} TIDEGATE_POD_NAME (downward API: metadata.name)",
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("engines: [{kind: vllm}]", "http://127.0.0.1:8000/metrics"),
        ("engines: [{kind: sglang}]", "http://127.0.0.1:30000/metrics"),
        ('engines: [{kind: triton, url: "http://127.0.0.1:9000"}]', "http://127.0.0.1:9000/metrics"),
        ('engines: [{kind: triton, url: "https://engine:9000/m"}]', "https://engine:9000/m"),
    ],
)
def test_engine_has_the_default_address_of_its_kind(text, address):
    assert read(text).engines[0].address == address


@pytest.mark.parametrize(
    ("text", "node", "address"),
    [
        ("gpus: {node_port: 9400}", "10.0.0.9", "http://10.0.0.9:9400/metrics"),
        ("gpus: {node_port: 9400}", "fd00::9", "http://[fd00::9]:9400/metrics"),
        ('gpus: {url: "http://dcgm.gpu.svc:9400"}', "", "http://dcgm.gpu.svc:9400/metrics"),
        ("gpus: {nvml: true}", "", None),
    ],
)
def test_exporter_of_the_node_has_the_nodes_address(text, node, address):
    environment = {"TIDEGATE_NODE_IP": node}
    assert read(text, environment).gpus.address(environment) == address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (SIDECAR, True),
        ("gpus: {nvml: true}", True),
        ("gpus: [{url: http://a}]", False),
        ("workloads: []\nengines: []", False),
        ("listen: {}", False),
        ("", False),
        ("- a", False),
    ],
)
def test_check_detects_the_kind_of_configuration(text, meant):
    assert is_export(dedent(text)) is meant


def test_check_reads_it_with_other_files(tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(dedent(SIDECAR))
    bad.write_text("engines: [{kind: vlm}]")
    report = check_files([str(good), str(bad)])
    assert [str(problem).partition(" (did")[0].partition(": must")[0] for problem in report.problems] == [
        f"{bad}:1:18: engines.0.kind"
    ]
