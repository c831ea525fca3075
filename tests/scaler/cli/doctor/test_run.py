"""`tidegate doctor` runs all checks in a fixed order."""

import asyncio
import os

import pytest

from exporter.clock import WallClock
from scaler.cli.doctor.run import examine
from tests.fakes.kubernetes import write_kubeconfig
from tests.fakes.ports import free_ports


@pytest.fixture
def doctor(tmp_path):
    """`await doctor(text)`: the checks of a configuration file with this text."""

    async def run(text, server=None):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        return await examine(str(file), server, os.environ, WallClock())

    return run


async def test_invalid_configuration_ends_the_list_with_all_its_errors(doctor):
    checks = await doctor("tick: 2m\nscrape: {intervall: 5s}\n")
    wrong = [check.result for check in checks if check.status == "fail"]
    assert len(wrong) == 2
    assert "config.yaml:1:7: tick: must be at most 1m" in wrong[0]
    assert {check.name for check in checks} == {
        "Python",
        "kernel cache",
        "package exporter",
        "package scaler",
        "configuration",
    }


async def test_warning_of_a_rule_names_its_page(doctor):
    checks = await doctor("workloads: []\n")
    (warning,) = [check for check in checks if check.name == "configuration" and check.status == "warn"]
    assert "TG090: workloads: nothing is configured" in warning.result
    assert warning.remedy == "tidegate check --explain TG090"


async def test_all_checks_are_in_order_and_change_nothing(doctor, fake, tmp_path, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "keda-metrics"}}
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", fake.url)
    checks = await doctor(f"""
listen: {{http: "127.0.0.1:{free_ports(1)[0]}", grpc: "127.0.0.1:{free_ports(1)[0]}"}}
kubernetes: {{kubeconfig: {kubeconfig}, dcgm_exporter: null}}
workloads:
- {{namespace: ai, name: chat, engine: vllm, replicas: {{min: 1}}, pods: {{url: "{url}"}}}}
""")
    assert [check for check in checks if check.status != "ok"] == []
    names = [check.name.split(" 127")[0].split(" http:")[0] for check in checks]
    assert names == [
        "Python",
        "kernel cache",
        "package exporter",
        "package scaler",
        "configuration",
        "listen.http",
        "listen.grpc",
        "API server",
        "clock of the API server",
        "identity",
        "kinds",
        "permissions",
        "KEDA",
        "APIService v1beta1.external.metrics.k8s.io",
        "pods of ai/chat",
        "clocks of targets",
    ]
    assert (fake.lease_writes, fake.event_writes) == ([], [])


async def test_daemon_on_this_machine_is_found_and_owns_its_ports(doctor, pages):
    pages.at("/metrics", 'tidegate_build_info{version="0.1.0"} 1.0\ntidegate_config_last_reload_successful 0.0\n')
    pages.at("/readyz", "[+] ticks ok\nok\n")
    checks = await doctor(f'listen: {{http: "127.0.0.1:{pages.port}", grpc: "127.0.0.1:0"}}\n')
    by_name = {check.name: check for check in checks}
    assert by_name[f"listen.http 127.0.0.1:{pages.port}"].result == "in use by the running daemon"
    assert by_name[f"daemon http://127.0.0.1:{pages.port}"].status == "ok"
    assert by_name["daemon's configuration"].status == "fail"


async def test_port_of_another_program_is_a_failure(doctor, pages):
    pages.at("/metrics", "python_info 1.0\n")
    checks = await doctor(f'listen: {{http: "127.0.0.1:{pages.port}", grpc: "127.0.0.1:0"}}\n')
    by_name = {check.name: check for check in checks}
    assert by_name[f"listen.http 127.0.0.1:{pages.port}"].status == "fail"


async def test_defaults_are_checked_without_a_file(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with asyncio.timeout(60):
        checks = await examine(None, None, os.environ, WallClock())
    assert "no file given" in next(check.result for check in checks if check.name == "configuration")
