"""Reads the load from a real Prometheus with an hour of data."""

import re
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.cli.replay.history import HistoryRequest, from_prometheus
from scaler.replay.traces import BadLoad

BEGIN = 1_700_000_000.0
SCRAPES_S = 15
CHAT = WorkloadKey("ai", "chat")
LARGE = WorkloadKey("ai", "chat-large")
PATIENCE_S = 60.0
LENGTHS = {"prompt": 100, "generation": 10}


def openmetrics(series):
    """{(name, labels): [(second, value)…]} in the format of promtool: families complete, each in order of time."""
    lines, families = [], {}
    for (name, labels), points in series.items():
        families.setdefault(name, []).append((labels, points))
    for name, members in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# TYPE {name.removesuffix('_total')} {kind}")
        for labels, points in members:
            text = ",".join(f'{key}="{value}"' for key, value in labels)
            lines += [f"{name}{{{text}}} {value} {BEGIN + second}" for second, value in points]
    return "\n".join([*lines, "# EOF", ""])


def pod(name, seconds, finished, prompt=200, output=50):
    """A vLLM pod, scraped at `seconds`, with `finished(second)` requests finished by then."""
    labels = (("instance", f"{name}:8000"), ("job", "engines"), ("namespace", "ai"), ("pod", name))
    model = (("engine", "0"), *labels, ("model_name", "m"))
    counts = [(second, finished(second)) for second in seconds]
    half = [(second, count // 2) for second, count in counts]
    rest = [(second, count - count // 2) for second, count in counts]
    return {
        ("up", labels): [(second, 1) for second in seconds],
        ("vllm:num_requests_running", model): [(second, 1) for second in seconds],
        ("vllm:request_success_total", (*model, ("finished_reason", "stop"))): half,
        ("vllm:request_success_total", (*model, ("finished_reason", "length"))): rest,
        ("vllm:prompt_tokens_total", model): [(second, prompt * count) for second, count in counts],
        ("vllm:generation_tokens_total", model): [(second, output * count) for second, count in counts],
    }


def hour():
    """…-aaaaa serves 2 requests/s all the time, …-bbbbb 1/s from 1800 s to 2400 s; no data from 2700 to 3000 s.

    chat-large serves 5/s, and is another workload.
    """
    there = [second for second in range(0, 3601, SCRAPES_S) if not 2700 < second < 3000]
    first = pod("chat-6c9f-aaaaa", there, lambda second: 5_000_000 + 2 * second)
    second = pod("chat-6c9f-bbbbb", [at for at in there if 1800 <= at <= 2400], lambda at: at - 1785)
    other = pod("chat-large-7d8e-aaaaa", there, lambda second: 5 * second, output=9)
    return {**first, **second, **other, **tidegate_hour()}


def tidegate_hour():
    """Tidegate's counters of `ai/led` at 3/s: one of its replicas leads until 1800 s, another from then on.

    Each begins at 0 with its process; the second has counted 15 s when it is scraped first.
    """

    def replica(name, seconds, finished):
        labels = (("instance", name), ("job", "tidegate"), ("namespace", "ai"), ("workload", "led"))
        counts = [(second, finished(second)) for second in seconds]
        tokens = {kind: [(second, each * count) for second, count in counts] for kind, each in LENGTHS.items()}
        return {
            ("tidegate_requests_finished_total", labels): counts,
            **{("tidegate_tokens_total", (("kind", kind), *labels)): points for kind, points in tokens.items()},
        }

    first = replica("a", range(0, 1800, SCRAPES_S), lambda second: 3 * second)
    return {**first, **replica("b", range(1815, 3601, SCRAPES_S), lambda second: 3 * (second - 1800))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture(scope="module")
def running():
    processes = []
    yield processes
    for process in processes:
        process.terminate()
        process.wait()


@pytest.fixture
def prometheus(debian_tool, folder, running):
    """The URL of a real Prometheus that stores the hour."""
    program, promtool = debian_tool("prometheus"), debian_tool("promtool", "prometheus")
    address = folder / "address"
    if not running:
        (folder / "past.txt").write_text(openmetrics(hour()))
        generated = [
            promtool,
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            str(folder / "past.txt"),
            str(folder / "tsdb"),
        ]
        subprocess.run(generated, check=True, capture_output=True)
        (folder / "prometheus.yml").write_text("{}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address.write_text(f"127.0.0.1:{probe.getsockname()[1]}")
        running.append(
            subprocess.Popen(
                [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
                 f"--web.listen-address={address.read_text()}", "--storage.tsdb.retention.time=100y",
                 "--log.level=error"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip
    url = f"http://{address.read_text()}"
    wait_for(f"{url}/-/ready")
    return url


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


def past(url, workload=CHAT, since=0, until=3600, **more):
    return HistoryRequest(url, workload, BEGIN + since, BEGIN + until, **more)


async def test_load_equals_the_requests_finished_by_its_pods(prometheus):
    progress = []
    load, notes = await from_prometheus(past(prometheus), progress=progress.append)
    assert load.name == "ai/chat"
    counts = np.histogram(load.at, bins=[0, 600, 1200, 1800, 2400, 2700, 3000, 3600])[0]
    # 2/s all the time, 1/s more from 1785 s to 2400 s; the counter continues across the gap.
    assert counts.tolist() == [1200, 1200, 1215, 1800, 600, 600, 1200]
    assert np.histogram(load.at, bins=[2700, 2760, 2820, 2880, 2940, 3000])[0].tolist() == [120] * 5
    assert set(load.prompt) == {200}
    assert set(load.output) == {50}
    # A sample counts for a minute and a half after its scrape, so the gap of five minutes is shorter.
    assert any(re.search(r"knew nothing for 3m(15|30)s in 1 gap", note) for note in notes), notes
    assert progress[-1] == 1.0


async def test_counters_of_tidegate_are_the_load_if_no_engine_is_scraped(prometheus):
    load, _ = await from_prometheus(past(prometheus, WorkloadKey("ai", "led")))
    counts = np.histogram(load.at, bins=[0, 900, 1785, 1830, 2700, 3600])[0]
    # Across the change of leader each replica has counted its part.
    assert counts[[0, 1, 3, 4]].tolist() == [2700, 2655, 2610, 2700]
    assert 45 <= counts[2] <= 135
    assert (set(load.prompt), set(load.output)) == ({100}, {10})


async def test_workload_with_a_common_name_prefix_has_only_its_own_pods(prometheus):
    load, _ = await from_prometheus(past(prometheus, LARGE, until=600))
    assert len(load.at) == 3000
    assert set(load.output) == {9}


async def test_given_selector_is_used(prometheus):
    load, _ = await from_prometheus(past(prometheus, until=600, selector='job="engines"'))
    assert len(load.at) == 4200


async def test_step_shorter_than_the_scrape_interval_makes_no_sawtooth(prometheus):
    load, _ = await from_prometheus(past(prometheus, until=600, step_s=5.0))
    assert set(np.histogram(load.at, bins=np.arange(0, 601, 15))[0]) == {30}
    assert set(np.histogram(load.at, bins=np.arange(0, 601, 5))[0]) == {10}


async def test_same_seed_yields_the_same_load(prometheus):
    one, two, other = [(await from_prometheus(past(prometheus, until=300), seed)).load.at for seed in (1, 1, 2)]
    assert one.tolist() == two.tolist()
    assert one.tolist() != other.tolist()


async def test_history_queried_in_many_parts_is_the_same(prometheus, monkeypatch):
    whole = (await from_prometheus(past(prometheus))).load
    monkeypatch.setattr("scaler.cli.replay.history.AT_ONCE", 17)
    parts = (await from_prometheus(past(prometheus))).load
    assert whole.at.tolist() == parts.at.tolist()


async def test_history_longer_than_the_data_begins_with_the_data(prometheus):
    load, notes = await from_prometheus(past(prometheus, since=-3600, until=600))
    assert len(load.at) == 1200
    assert load.at[0] < 15.0
    assert "ai/chat: the server knows nothing from before 2023-11-14 22:13:20Z" in notes


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"workload": WorkloadKey("ai", "chad")}, "no series of ai/chad in this time"),
        ({"kind": "sglang"}, "no series of ai/chat in this time"),
        ({"until": 10}, "the history must be at least two steps"),
        ({"selector": "}"}, "parse error"),
    ],
)
async def test_missing_history_is_reported(prometheus, more, expected):
    with pytest.raises(BadLoad, match=expected):
        await from_prometheus(past(prometheus, **more))


async def test_unreachable_server_is_reported():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(BadLoad, match="refused"):
            await from_prometheus(past(f"http://127.0.0.1:{unused.getsockname()[1]}"))
