"""`tidegate report --prometheus` reads accounts and profiles from a real Prometheus with an hour of data."""

import socket
import subprocess
import time
import urllib.request

import pytest

from exporter.model import Credentials
from scaler.cli.report.history import HistoryReportRequest, collect_history
from scaler.cli.report.run import BadReportRequest

BEGIN = 1_700_000_000
HOUR_S, SCRAPES_S = 3600, 30
PATIENCE_S = 60.0


def series(name, labels, value):
    """A family with one series: a gauge of `value`, or a counter that rises by `value` per second."""
    kind = "counter" if name.endswith("_total") else "gauge"
    text = ",".join(f'{key}="{each}"' for key, each in labels.items())
    points = range(0, HOUR_S + 1, SCRAPES_S)
    lines = [f"{name}{{{text}}} {value * at if kind == 'counter' else value} {BEGIN + at}" for at in points]
    return name, kind, lines


def engine(pod):
    target = {"instance": f"{pod}:8000", "job": "engines", "namespace": "ai", "pod": pod}
    model = {**target, "model_name": "m"}
    yield series("up", target, 1)
    yield series("vllm:num_requests_running", model, 8)
    yield series("vllm:num_requests_waiting", model, 3)
    yield series("vllm:kv_cache_usage_perc", model, 0.5)
    config = {**target, "num_gpu_blocks": "1000", "block_size": "16", "gpu_memory_utilization": "0.85"}
    yield series("vllm:cache_config_info", config, 1)
    yield series("vllm:request_success_total", {**model, "finished_reason": "stop"}, 2)
    yield series("vllm:prompt_tokens_total", model, 400)
    yield series("vllm:generation_tokens_total", model, 100)


def gpus(uuid, *pods, **values):
    node = {"instance": "node-0:9400", "job": "dcgm", "namespace": "gpu", "pod": "dcgm-exporter-x"}
    for pod in pods:
        held = {**node, "UUID": uuid, "exported_namespace": "ai", "exported_pod": pod}
        for name, value in values.items():
            yield series(f"DCGM_FI_{name}", held, value)


def tidegate():
    chat = {"namespace": "ai", "workload": "chat", "instance": "tidegate-0", "job": "tidegate"}
    leader = {"instance": "tidegate-0", "job": "tidegate"}
    for state, gpus_held in (("serving", 1.5), ("idle_warm", 0.5), ("asleep", 0.0)):
        yield series("tidegate_workload_gpu_seconds_total", {**chat, "state": state}, gpus_held)
        yield series("tidegate_workload_cost_total", {**chat, "state": state}, gpus_held * 2.0 / 3600)
    yield series("tidegate_workload_priced_gpu_seconds_total", chat, 2.0)
    yield series("tidegate_tokens_total", {**chat, "kind": "generation"}, 100)
    yield series("tidegate_workload_team", {**chat, "team": "search"}, 1)
    for state, held in (("held", 2.0), ("unallocated", 6.0)):
        yield series("tidegate_node_gpu_seconds_total", {**leader, "state": state}, held)


def openmetrics():
    busy = {
        "PROF_GR_ENGINE_ACTIVE": 0.95,
        "PROF_PIPE_TENSOR_ACTIVE": 0.1,
        "PROF_DRAM_ACTIVE": 0.7,
        "DEV_FB_USED": 2**16,
    }
    found = [
        *engine("chat-6c9f-aaaaa"),
        *gpus("GPU-1", "chat-6c9f-aaaaa", **busy),
        *gpus("GPU-2", "chat-6c9f-aaaaa", "other-0", PROF_DRAM_ACTIVE=0.0, DEV_FB_USED=1),  # shared
        *gpus("GPU-3", "chat-large-0", PROF_DRAM_ACTIVE=0.0, DEV_FB_USED=1),  # another workload's
        *tidegate(),
    ]
    node = {"instance": "node-0:9400", "job": "dcgm", "namespace": "gpu", "pod": "dcgm-exporter-x"}
    found.append(series("up", node, 1))
    lines = []
    for name in dict.fromkeys(name for name, _, _ in found):
        members = [(kind, each) for other, kind, each in found if other == name]
        lines.append(f"# TYPE {name.removesuffix('_total')} {members[0][0]}")
        lines += [line for _, each in members for line in each]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture
def prometheus(debian_tool, folder):
    """The URL of a real Prometheus that stores the hour."""
    program, promtool = debian_tool("prometheus"), debian_tool("promtool", "prometheus")
    data, past = folder / "tsdb", folder / "past.txt"
    if not past.exists():
        past.write_text(openmetrics())
        command = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(past), str(data)]
        subprocess.run(command, check=True, capture_output=True)
        (folder / "prometheus.yml").write_text("{}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
         f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y", "--log.level=error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def wait_for(url):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=PATIENCE_S).close()
        except OSError:
            assert time.monotonic() < deadline, f"{url}: does not answer"
            time.sleep(0.05)
        else:
            return


async def test_month_of_a_history_has_its_days_and_gaps(prometheus):
    """The hour is 22:13 to 23:13 on 2023-11-14, so the other days are unknown."""
    request = HistoryReportRequest.of_month((), prometheus, "2023-11", BEGIN + 20 * 86400.0, Credentials())
    report = await collect_history(request, lambda what, share: None)
    assert report["month"] == "2023-11"
    days = {each["day"]: each["gpu_hours_held"] for each in report["days"]}
    assert len(days) == 30
    assert {day for day, held in days.items() if held is not None} == {"2023-11-14"}
    assert days["2023-11-14"] == pytest.approx(2.0, rel=0.02)
    assert report["days"][13]["cost"] == pytest.approx(4.0, rel=0.02)
    with pytest.raises(BadReportRequest, match="must not be in the future"):
        HistoryReportRequest.of_month((), prometheus, "2023-12", float(BEGIN), Credentials())


async def test_accounts_and_profile_of_a_history(prometheus):
    read = []
    request = HistoryReportRequest((), prometheus, float(HOUR_S), float(BEGIN + HOUR_S))
    report = await collect_history(request, lambda what, share: read.append(what))
    (chat,) = report["workloads"]
    assert (chat["name"], chat["team"], read) == ("chat", "search", ["ai/chat"])
    assert chat["gpu_hours"]["serving"] == pytest.approx(1.5, rel=0.02)
    assert chat["cost_held"] == pytest.approx(2.0 * 2.0, rel=0.02)
    # 4 of money for an hour of 100 tokens per second.
    assert chat["per_million_tokens"]["cost"]["generation"] == pytest.approx(4.0 / 0.36, rel=0.02)
    assert report["reconciliation"]["nodes"] == pytest.approx(8.0, rel=0.02)
    assert abs(report["reconciliation"]["difference"]) <= 0.001
    (profile,) = report["profiles"]
    usage = profile["usage"]
    assert (usage["gpu_dram_active"]["mean"], usage["requests_running"]["mean"]) == pytest.approx((0.7, 8.0))
    assert usage["gpu_memory_used_bytes"]["peak"] == 2**36
    assert usage["requests_per_second"]["mean"] == pytest.approx(2.0, rel=0.02)
    assert profile["queue_seconds"] == pytest.approx(1.5, rel=0.02)
    assert profile["binding"]["verdict"] == "undersized"
    assert profile["engine_memory"] == {"kv_tokens": 16_000, "utilization": 0.85}
    (throughput,) = profile["slice_throughputs"]  # of its own GPU, with 3 requests waiting all the time
    assert (throughput["profile"], throughput["rate"]) == ("", pytest.approx(100.0, rel=0.02))
    assert throughput["seconds"] > 0.9 * HOUR_S
    assert [each["verdict"] for each in profile["binding"]["also"]] == ["memory_bandwidth"]


async def test_workload_with_a_common_name_prefix_has_only_its_own_gpus(prometheus):
    request = HistoryReportRequest(("ai/chat-large",), prometheus, float(HOUR_S), float(BEGIN + HOUR_S))
    report = await collect_history(request, lambda what, share: None)
    (profile,) = report["profiles"]
    assert (report["workloads"], profile["usage"]["gpu_memory_used_bytes"]["peak"]) == ([], 2**20)


async def test_unreachable_server_is_an_error_with_its_address():
    with pytest.raises(BadReportRequest, match=r"http://127.0.0.1:1: "):
        await collect_history(HistoryReportRequest((), "http://127.0.0.1:1", 3600.0, 1e9), lambda what, share: None)
