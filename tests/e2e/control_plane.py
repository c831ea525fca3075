"""The control plane of these tests: one that the environment names, or K3s in a container.

`TIDEGATE_E2E_KUBECONFIG` names a cluster with KEDA, with administrator rights; `TIDEGATE_E2E_HOST` is an address of
this host that its API server and KEDA can dial. Otherwise `TIDEGATE_E2E_KEDA_MANIFEST` is a manifest of KEDA's release,
which is applied to a K3s in Docker. Without either all tests are skipped with the reason.
"""

import fcntl
import ipaddress
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

KUBECONFIG = "TIDEGATE_E2E_KUBECONFIG"
HOST = "TIDEGATE_E2E_HOST"
KEDA_MANIFEST = "TIDEGATE_E2E_KEDA_MANIFEST"
KEDA_RESTART = "TIDEGATE_E2E_KEDA_RESTART"
WORKER = "PYTEST_XDIST_WORKER"
BEGUN_S = 600.0  # with few workers a file may begin when others are done

K3S_IMAGE = "rancher/k3s:v1.35.0-k3s1"
IN_K3S = "/keda.yaml"
KEDA_STARTS = (
    ["kubectl", "apply", "--server-side", "-f", IN_K3S],
    ["kubectl", "wait", "--for=condition=Available", "deployment", "--all", "--namespace=keda", "--timeout=300s"],
)


class ControlPlane(NamedTuple):
    """kubeconfig: a file. host: this machine's address as seen by the control plane."""

    kubeconfig: Path
    host: str


@contextmanager
def control_plane(folder):
    """A control plane for the duration of the block. Skips if there is none."""
    if KUBECONFIG in os.environ:
        host = os.environ.get(HOST)
        if host is None:
            pytest.fail(f"{KUBECONFIG} is set, and {HOST} is not: an address of this host that the cluster can dial")
        if ipaddress.ip_address(host).is_loopback:
            pytest.fail(f"{HOST} is {host}: endpoints in Kubernetes cannot be loopback addresses")
        yield ControlPlane(Path(os.environ[KUBECONFIG]), host)
        return
    with _k3s(folder) as k3s_plane:
        yield k3s_plane


@contextmanager
def turn(tmp_path_factory, name, *, alone):
    """Waits for the turn of that name among the workers: for itself alone, or beside others that are not alone."""
    with (_shared(tmp_path_factory) / name).open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)  # until it is closed
        yield


@contextmanager
def after_the_first(tmp_path_factory, name):
    """The first worker goes through alone, then all others beside each other."""
    done = _shared(tmp_path_factory) / f"{name}-done"
    with turn(tmp_path_factory, name, alone=True):
        if not done.exists():
            yield
            done.touch()
            return
    yield


def begin(tmp_path_factory, name):
    """Tell the other workers that `name` has begun."""
    (_shared(tmp_path_factory) / f"{name}-begun").touch()


def until_begun(tmp_path_factory, names):
    """Wait for `begin` of all these names, or until one has surely failed before it."""
    files = [_shared(tmp_path_factory) / f"{name}-begun" for name in names]
    over = time.monotonic() + BEGUN_S
    while time.monotonic() < over and not all(file.exists() for file in files):
        time.sleep(0.5)


def _shared(tmp_path_factory):
    """A folder of all workers."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if WORKER in os.environ else folder


@contextmanager
def _k3s(folder):
    if WORKER in os.environ and KEDA_MANIFEST in os.environ:
        pytest.skip(f"each worker would start its own K3s: without {KUBECONFIG} run tests/e2e without -n")
    if KEDA_MANIFEST not in os.environ:
        pytest.skip(f"no control plane: {KUBECONFIG} is not set, nor is {KEDA_MANIFEST} (for K3s in Docker)")
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no control plane: {KUBECONFIG} is not set, and no Docker engine answers")
    k3s = pytest.importorskip("testcontainers.community.k3s", reason="no control plane: testcontainers is missing")
    manifest = Path(os.environ[KEDA_MANIFEST]).resolve(strict=True)
    with k3s.K3SContainer(K3S_IMAGE).with_volume_mapping(str(manifest), IN_K3S) as container:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(container.config_yaml(), encoding="utf-8")
        for command in KEDA_STARTS:
            code, output = container.exec(command)
            assert code == 0, output.decode()
        container.reload()
        networks = container.get_wrapped_container().attrs["NetworkSettings"]["Networks"]
        yield ControlPlane(kubeconfig, next(network["Gateway"] for network in networks.values()))
