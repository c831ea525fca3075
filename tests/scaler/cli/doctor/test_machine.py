"""Each check of this machine passes and fails as it should."""

import socket

import pytest

from scaler.cli.doctor import machine
from scaler.config import parse


@pytest.mark.parametrize(
    ("version", "status"), [((3, 11), "ok"), ((3, 13), "ok"), ((3, 10), "fail"), ((3, 14), "fail")]
)
def test_supported_python_versions_pass(version, status):
    assert machine.check_python(version).status == status


def test_writable_kernel_cache_passes(tmp_path):
    check = machine.check_kernel_cache({"NUMBA_CACHE_DIR": str(tmp_path / "numba")})
    assert (check.status, check.result) == ("ok", f"{tmp_path / 'numba'} is writable")


def test_kernel_cache_without_a_writable_directory_is_a_warning(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    named = machine.check_kernel_cache({"NUMBA_CACHE_DIR": str(file / "numba")}, [tmp_path])  # numba tries no other
    assert (named.status, "set NUMBA_CACHE_DIR" in named.remedy) == ("warn", True)
    usual = machine.check_kernel_cache({}, [file / "beside", file / "user"])
    assert (usual.status, usual.result) == ("warn", f"{file / 'beside'}, {file / 'user'}: not writable")
    assert machine.check_kernel_cache({}, [file / "beside", tmp_path / "user"]).status == "ok"


def test_distribution_with_the_same_packages_is_a_failure():
    checks = machine.check_packages({"exporter": ["tidegate"], "scaler": ["tidegate", "image-scaler", "tidegate"]})
    assert [(check.name, check.status) for check in checks] == [("package exporter", "ok"), ("package scaler", "fail")]
    assert "remove image-scaler" in checks[1].remedy
    assert [check.status for check in machine.check_packages()] == ["ok", "ok"]


@pytest.fixture
def used_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_port_must_be_free_or_used_by_the_running_daemon(used_port):
    assert machine.check_port("listen.http", "127.0.0.1", used_port, daemon_runs=True).status == "ok"
    failed = machine.check_port("listen.http", "127.0.0.1", used_port, daemon_runs=False)
    assert (failed.status, failed.result) == ("fail", "in use by another program")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert machine.check_port("listen.http", "127.0.0.1", free, daemon_runs=False).status == "ok"


@pytest.mark.parametrize("daemon_runs", [True, False])
def test_address_of_another_machine_cannot_be_bound(daemon_runs):
    check = machine.check_port("listen.http", "192.0.2.1", 8080, daemon_runs=daemon_runs)
    assert (check.status, check.result) == ("fail", "cannot be bound: EADDRNOTAVAIL")


def test_every_listener_with_a_fixed_port_is_checked():
    files = "certificate: /c, key: /k"
    text = f"""
kubernetes: {{}}
listen:
  http: "127.0.0.1:0"
  grpc: "[::]:6000"
  metrics_api: {{{files}, external: true}}
  peers: {{{files}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}
"""
    listeners = machine.listeners(parse(text, "c.yaml")[0])
    assert {key: port for key, (_, port) in listeners.items()} == {
        "listen.grpc": 6000,
        "listen.metrics_api": 8443,
        "listen.peers": 8444,
    }
