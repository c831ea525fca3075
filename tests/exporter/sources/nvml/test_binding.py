"""The reader works with the real `pynvml` over a fake C library: arguments and results survive ctypes."""

import importlib.util
import json
import os
import subprocess
import sys
from math import nan
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("libnvidia-ml.c")
ROOT = Path(__file__).parents[4]
PATIENCE_S = 60.0  # never waited for: only says which program hung

# Runs in a separate process, because pynvml loads its library only once.
READ = """
import json, sys
from pathlib import Path
from exporter.model import PodKey
from exporter.sources.nvml import installed
from exporter.sources.nvml.client import NvmlNode

pods = {uid: PodKey("ai", name) for uid, name in json.loads(sys.argv[2]).items()}
node = NvmlNode(installed(), pods.get, Path(sys.argv[1]))
readings = [node.read(at) for at in (1000.0, 1005.0)]
node.close()
print(json.dumps([{
    "gpus": [[gpu.uuid, gpu.instance, gpu.profile, gpu.model, gpu.attribution, len(gpu.pods)] for gpu in one.subjects],
    "values": {quantity: one.column(quantity).tolist() for quantity in one.quantities},
    "dropped": [reason for _, reason in one.dropped],
} for one in readings]))
"""


@pytest.fixture
def read(tmp_path, debian_tool, proc):
    """`read(MIG="1")`: two readings with times 5 s apart."""
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed (pip install 'tidegate[nvml]')")
    library = tmp_path / "lib" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    subprocess.run([debian_tool("gcc"), "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=PATIENCE_S)
    proc.runs(11, "chat-0")
    proc.runs(21, "embed-0")

    def run(**environment):
        environment |= {"LD_LIBRARY_PATH": str(library.parent), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", READ, proc.path, json.dumps(proc.uids)]
        answer = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_S)
        return json.loads(answer.stdout)

    return run


def values(reading):
    return {quantity: pytest.approx(column, nan_ok=True) for quantity, column in reading["values"].items()}


def test_gpu_is_read_through_the_real_binding(read):
    first, second = read()

    assert first["gpus"] == [["GPU-x", None, None, "H100", "process", 2]]
    assert second["gpus"] == [["GPU-x", None, None, "H100", "device", 2]]  # no activity since
    assert values(second) == {
        "gpu_engine_active": [0.1],
        "gpu_utilization": [0.37],
        "gpu_sm_active": [0.2],
        "gpu_sm_occupancy": [0.3],
        "gpu_tensor_active": [nan],
        "gpu_dram_active": [1.0],
        "gpu_memory_used": [40.0],
        "gpu_memory_total": [100.0],
        "gpu_power": [71.234],
        "gpu_energy": [5.5],
        "gpu_temperature": [41.0],
        "gpu_lost": [nan],
    }
    assert values(first)["gpu_engine_active"] == [nan]
    (reason,) = first["dropped"]
    assert reason.startswith("GPU 1: handle: GPU_IS_LOST: ")


def test_mig_is_read_through_the_real_binding(read):
    _, second = read(MIG="1")

    assert second["gpus"] == [
        ["GPU-x", None, None, "H100", "none", 0],
        ["GPU-x", "9", "1g.10gb", "H100", "device", 2],
    ]
    assert values(second)["gpu_engine_active"] == [nan, 0.1]
    assert values(second)["gpu_power"] == [71.234, nan]
