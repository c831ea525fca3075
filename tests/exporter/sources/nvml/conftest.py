"""Builds a node without a GPU: a fake NVML, and a /proc whose processes belong to the pods of a test."""

import importlib.util
from pathlib import Path

import pytest

from exporter.model import PodKey
from exporter.sources.nvml.client import NvmlNode

_FILE = Path(__file__).parent / "fake_nvml.py"
_SPEC = importlib.util.spec_from_file_location("fake_nvml", _FILE)
fake_nvml = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fake_nvml)

UIDS = {
    "chat-0": "d01e4b6f-5a00-11e9-b385-42010a80018d",
    "embed-0": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    "stranger-0": "11111111-2222-3333-4444-555555555555",
}
PODS = {UIDS[pod]: PodKey("ai", pod) for pod in ("chat-0", "embed-0")}


@pytest.fixture(scope="session")
def fake():
    """The module `fake_nvml`: `fake.FakeNvml([fake.FakeGpu(util=40)])`."""
    return fake_nvml


@pytest.fixture
def proc(tmp_path):
    """A node's /proc. `proc.runs(11, "chat-0")` adds a process of a pod; without a pod it is a process of the node."""
    return Proc(tmp_path)


@pytest.fixture
def node(proc):
    """`node(library)`: an NvmlNode that knows the names of chat-0 and embed-0."""

    def make(library, pods=PODS):
        return NvmlNode(library, pods.get, proc.path)

    return make


class Proc:
    uids = {uid: pod.pod for uid, pod in PODS.items()}  # noqa: RUF012 - read only

    def __init__(self, path):
        self.path = path
        (path / "self" / "ns").mkdir(parents=True)
        self.namespace("pid:[4026531836]")

    def namespace(self, name):
        link = self.path / "self" / "ns" / "pid"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def runs(self, pid, pod=None):
        of = f"kubepods/burstable/pod{UIDS[pod]}/{'a' * 64}" if pod else "system.slice/Xorg.service"
        (self.path / str(pid)).mkdir()
        (self.path / str(pid) / "cgroup").write_text(f"0::/{of}\n")


@pytest.fixture(scope="session")
def read_of(tmp_path_factory):
    """`read_of(library)`: the `read` of a node whose process 11 is of chat-0; for tests with many examples."""
    proc = Proc(tmp_path_factory.mktemp("proc"))
    proc.runs(11, "chat-0")
    return lambda library: NvmlNode(library, PODS.get, proc.path).read
