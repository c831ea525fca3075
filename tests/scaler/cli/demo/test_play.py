"""The demo runs as a process with the real daemon; its day begins and ends at zero replicas."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from scaler.cli.demo.run import PortInUse, choose_port
from tests.fakes.ports import free_ports


def test_demo_wakes_the_workload_answers_all_requests_and_ends_asleep():
    # 1080 simulated seconds: a quiet start, a morning, a burst, an evening, and a night of 300 s, of which 150 s are
    # needed to fall asleep. The simulated clock waits for a busy machine, so no speed is too high for one.
    day = subprocess.run(
        [sys.executable, "-m", "scaler", "demo", "-o", "json", "--speed", "240", "--duration", "4.5"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert day.returncode == 0, day.stderr
    document = json.loads(day.stdout)
    requests, replicas = document["requests"], document["replicas"]
    assert requests["lost"] == 0
    assert requests["answered"] == requests["sent"] > 1000
    assert replicas["max"] > 1
    assert replicas["final"] == 0
    assert document["slept"] is True
    assert document["woke_after_s"] is not None
    assert document["gpu_hours"] > 0
    assert document["always_on"]["gpu_hours"] > document["gpu_hours"]
    assert document["always_on"]["slo_met_ratio"] > 0.9


def refused(port: int) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "scaler", "demo", "--duration", "1", "--port", str(port)]
    demo = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    return demo.returncode, demo.stdout, demo.stderr


def test_port_in_use_is_a_one_line_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert refused(port) == (1, "", f"Error: port {port} is in use; choose another with --port\n")


@pytest.mark.parametrize("port", [99999, -1])
def test_port_out_of_range_is_a_one_line_usage_error(port):
    assert refused(port) == (2, "", f"Error: --port: must be from 0 to 65535, got {port}\n")


def test_next_free_port_is_chosen_if_the_default_one_is_in_use(monkeypatch):
    first = next(port for port in free_ports(300) if all_free(port, 3))
    monkeypatch.setattr("scaler.cli.demo.run.DEFAULT_PORT", first)
    assert choose_port(None) == first
    with socket.create_server(("127.0.0.1", first)):
        assert choose_port(None) == first + 1
        with pytest.raises(PortInUse, match=f"port {first} is in use"):
            choose_port(first)


def all_free(first: int, count: int) -> bool:
    try:
        return all(choose_port(port) for port in range(first, first + count))
    except PortInUse:
        return False


def test_demo_on_a_terminal_serves_its_page_after_the_day_until_ctrl_c():
    leader, follower = pty.openpty()
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "scaler", "demo", "--speed", "100", "--duration", "1", "--port", str(port)]
    demo = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    try:
        output = b""
        while b"runs on until Ctrl-C" not in output:
            output += os.read(leader, 65_536)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rows", timeout=60) as response:
            rows = json.load(response)
        demo.send_signal(signal.SIGINT)
        while demo.poll() is None:
            drain(leader)
    finally:
        demo.kill()
        os.close(leader)
    assert demo.returncode == 0
    assert [row["name"] for row in rows["workloads"]] == ["chat"]
    # The daemon's times cannot be taken for the present.
    assert time.gmtime(rows["now"])[:3] == (2000, 1, 1)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())
    for part in (f"http://localhost:{port}/", f"explain demo/chat --server localhost:{port}", "quickstart.md"):
        assert part in text


def drain(leader: int) -> None:
    try:
        os.read(leader, 65_536)
    except OSError:
        time.sleep(0.01)  # the terminal has no writer left: the process ends
