"""`tidegate export` runs as a process: its responses, its memory, and its exit."""

import asyncio
import compileall
import socket
import subprocess
from pathlib import Path

import pytest

from exporter.catalog import Reader
from exporter.model import Attribution, Gpu, PodKey, Quantity, Queue
from exporter.textformat import parse

ROOT = Path(__file__).resolve().parents[3]
LISTEN = "listen: 127.0.0.1:0\nscrape: {interval: 200ms}\n"
VLLM = (
    'vllm:num_requests_waiting{model_name="m",engine="0"} 3\n'
    'vllm:num_requests_running{model_name="m",engine="0"} 2\n'
    # A real page is mostly histograms.
    + "".join(f'vllm:request_time_seconds_bucket{{model_name="m",le="{n}"}} {n}\n' for n in range(1000))
)
MOST_KB = 60_000_000 // 1024  # 60 MB
NOT_NEEDED = ("numba.", "llvmlite.", "kubernetes.", "grpc.", "rich.")


def dcgm(*pods):
    return "".join(
        f'DCGM_FI_{name}{{UUID="GPU-{n}",modelName="H100",namespace="ai",pod="{pod}",container="c"}} {value}\n'
        for n, pod in enumerate(pods)
        for name, value in (("PROF_GR_ENGINE_ACTIVE", 0.5), ("DEV_POWER_USAGE", 300), ("DEV_FB_USED", 1024))
    )


def read(text):
    samples = Reader("auto").read(parse(text.encode()), 1000.0)
    return {
        subject: dict(zip(samples.quantities, row, strict=True))
        for subject, row in zip(samples.subjects, samples.values.tolist(), strict=True)
    }


def engine_of(beside):
    return f'engines: [{{kind: vllm, url: "{beside.url("engine")}"}}]\n'


def gpus_of(beside):
    return f'gpus: {{url: "{beside.url("metrics")}"}}\n'


async def test_sidecar_exports_the_queue_and_gpus_of_its_pod(export, beside, get):
    beside.page |= {"engine": VLLM, "metrics": dcgm("chat-0", "chat-1")}
    text = LISTEN + engine_of(beside) + f"gpus: {{node_port: {beside.port}, of: pod}}\n"
    pod = {"TIDEGATE_NODE_IP": "127.0.0.1", "TIDEGATE_POD_NAMESPACE": "ai", "TIDEGATE_POD_NAME": "chat-1"}
    with export(text, **pod) as command:
        port = command.until("listening")["port"]
        command.until("source answers")
        command.until("source answers")
        status, page = await get(port, "/metrics")
    values = read(page)
    gpu = Gpu("GPU-1", model="H100", attribution=Attribution.EXCLUSIVE, pods=(PodKey("ai", "chat-1"),))
    assert status == 200
    assert set(values) == {Queue("m"), gpu}
    assert (values[Queue("m")][Quantity.REQUESTS_WAITING], values[gpu][Quantity.GPU_ENGINE_ACTIVE]) == (3.0, 0.5)


async def test_node_exports_all_gpus(export, beside, get):
    beside.page["metrics"] = dcgm("chat-0", "chat-1", "summary-0")
    with export(LISTEN + gpus_of(beside)) as command:
        port = command.until("listening")["port"]
        command.until("source answers")
        _, page = await get(port, "/metrics")
    assert {gpu.pods[0].pod for gpu in read(page)} == {"chat-0", "chat-1", "summary-0"}


async def test_hanging_engine_does_not_delay_the_response(export, beside, get):
    beside.page |= {"engine": None, "metrics": dcgm("chat-0")}
    with export(LISTEN + engine_of(beside) + gpus_of(beside)) as command:
        port = command.until("listening")["port"]
        command.until("source answers", source=beside.url("metrics"))
        command.until("source does not answer", source=beside.url("engine"), kind="timeout")
        _, page = await get(port, "/metrics")
        ready, _ = await get(port, "/readyz")
        live, body = await get(port, "/livez?verbose")
    assert f'tidegate_export_source_up{{source="{beside.url("engine")}"}} 0.0\n' in page
    assert "requests_waiting" not in page
    assert [gpu.uuid for gpu in read(page)] == ["GPU-0"]
    # An unready sidecar would remove its engine from the Service.
    assert (ready, live, body) == (200, 200, "[+] sources ok\nok\n")


async def test_process_stays_small_and_imports_only_what_it_needs(export, beside, get):
    for package in ("exporter", "scaler"):  # like installed packages: compilation needs memory too
        compileall.compile_dir(ROOT / package, quiet=1)
    beside.page |= {"engine": VLLM, "metrics": dcgm(*(f"chat-{n}" for n in range(8)))}
    text = LISTEN + engine_of(beside) + gpus_of(beside)
    with export(text, options=["-X", "importtime"]) as command:
        port = command.until("listening")["port"]
        command.until("source answers")
        command.until("source answers")
        command.until("settled")
        for _ in range(100):
            status, _ = await get(port, "/metrics")
            assert status == 200
        resident = command.status["VmRSS"]
        assert command.end() == 0
    modules = [line.rpartition("|")[2].strip() for line in command.noise if line.startswith("import time:")]
    assert "numpy.linalg" in modules
    assert [module for module in modules if module.startswith(NOT_NEEDED)] == []
    assert resident <= MOST_KB


async def test_promtool_accepts_the_metrics(export, beside, get, debian_tool):
    promtool = debian_tool("promtool", "prometheus")
    beside.page |= {"engine": VLLM + "vllm:num_requests_running oops\n", "metrics": dcgm("chat-0")}
    with export(LISTEN + engine_of(beside) + gpus_of(beside)) as command:
        port = command.until("listening")["port"]
        command.until("source answers")
        command.until("source answers")
        _, page = await get(port, "/metrics")
    command_line = [promtool, "check", "metrics"]
    done = await asyncio.to_thread(
        subprocess.run, command_line, input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_sigterm_ends_the_process_with_status_zero(export, beside):
    beside.page["engine"] = VLLM
    with export(LISTEN + engine_of(beside)) as command:
        command.until("listening")
        assert command.end() == 0
    assert any('"stopped"' in line for line in command.noise)


def test_port_in_use_is_an_error(export, beside):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with export(f"listen: 127.0.0.1:{port}\nengines: [{{kind: vllm}}]\n") as command:
            assert command.process.wait(30) == 1
            assert command.process.stderr.read() == f"Error: listen: 127.0.0.1:{port} is already in use\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engines: [{kind: vlm}]\n", "{file}:1:18: engines.0.kind: must be one of "),
        ("gpus: {node_port: 9400}\n", "{file}:1:19: gpus.node_port: needs the environment variable TIDEGATE_NODE_IP"),
        ("", "{file}:1:1: must not be empty: see docs/how-to/collect-only.md for its keys"),
    ],
)
def test_invalid_configuration_is_rejected_with_its_position(export, tmp_path, text, expected):
    with export(text) as command:
        assert command.process.wait(30) == 78
        assert command.process.stderr.read().startswith(expected.format(file=tmp_path / "export.yaml"))


async def test_nvml_is_a_source(export, get):
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (pip install nvidia-ml-py)")
    with export(LISTEN + "gpus: {nvml: true}\n") as command:
        port = command.until("listening")["port"]
        entry = command.until_any("source answers", "source does not answer")
        _, page = await get(port, "/metrics")
    up = float(entry["event"] == "source answers")  # only machines with a GPU have a driver
    assert f'tidegate_export_source_up{{source="nvml"}} {up}\n' in page


def test_nvml_without_its_library_is_a_configuration_error(export, tmp_path):
    without = tmp_path / "without"
    without.mkdir()
    (without / "pynvml.py").write_text("raise ImportError")
    with export("gpus: {nvml: true}\n", PYTHONPATH=str(without)) as command:
        assert command.process.wait(30) == 78
        assert command.process.stderr.read().startswith(f"{tmp_path / 'export.yaml'}: gpus.nvml: needs the library")
