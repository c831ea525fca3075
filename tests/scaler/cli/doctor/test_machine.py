"""Python, the cache, the packages' owners and the ports: each as it should be, and as it should not."""

import socket

import pytest

from scaler.cli.doctor import machine
from scaler.config import parse


@pytest.mark.parametrize(
    ("numbers", "status"), [((3, 11), "ok"), ((3, 13), "ok"), ((3, 10), "fail"), ((3, 14), "fail")]
)
def test_python(numbers, status):
    assert machine.python(numbers).status == status


def test_a_cache_that_can_be_written_is_named(tmp_path):
    made = machine.kernels_cache({"NUMBA_CACHE_DIR": str(tmp_path / "numba")})
    assert (made.status, made.said) == ("ok", f"{tmp_path / 'numba'} can be written")


def test_where_none_can_be_written_each_start_compiles(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    named = machine.kernels_cache({"NUMBA_CACHE_DIR": str(file / "numba")}, [tmp_path])  # numba tries no other then
    assert (named.status, "set NUMBA_CACHE_DIR" in named.do) == ("warn", True)
    usual = machine.kernels_cache({}, [file / "beside", file / "user"])
    assert (usual.status, usual.said) == ("warn", f"{file / 'beside'}, {file / 'user'}: cannot be written")
    assert machine.kernels_cache({}, [file / "beside", tmp_path / "user"]).status == "ok"


def test_another_distribution_with_our_packages_names_is_a_failure():
    found = machine.names({"exporter": ["tidegate"], "scaler": ["tidegate", "image-scaler", "tidegate"]})
    assert [(check.name, check.status) for check in found] == [("package exporter", "ok"), ("package scaler", "fail")]
    assert "remove image-scaler" in found[1].do
    assert [check.status for check in machine.names()] == ["ok", "ok"]


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_is_free_ours_or_taken(taken):
    assert machine.port("listen.http", "127.0.0.1", taken, ours=True).status == "ok"
    theirs = machine.port("listen.http", "127.0.0.1", taken, ours=False)
    assert (theirs.status, theirs.said) == ("fail", "taken by another program")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert machine.port("listen.http", "127.0.0.1", free, ours=False).status == "ok"


@pytest.mark.parametrize("ours", [True, False])
def test_an_address_of_another_machine_cannot_be_bound(ours):
    made = machine.port("listen.http", "192.0.2.1", 8080, ours=ours)
    assert (made.status, made.said) == ("fail", "cannot be bound: EADDRNOTAVAIL")


def test_every_listener_that_has_a_port_is_looked_at():
    files = "certificate: /c, key: /k"
    text = f"""
kubernetes: {{}}
listen:
  http: "127.0.0.1:0"
  grpc: "[::]:6000"
  metrics_api: {{{files}, external: true}}
  peers: {{{files}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}
"""
    found = machine.listeners(parse(text, "c.yaml")[0])
    assert {key: port for key, (_, port) in found.items()} == {
        "listen.grpc": 6000,
        "listen.metrics_api": 8443,
        "listen.peers": 8444,
    }
