"""The demo runs as a process with the real daemon; its day begins and ends at zero replicas."""

import json
import socket
import subprocess
import sys


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


def test_port_in_use_is_a_one_line_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        demo = subprocess.run(
            [sys.executable, "-m", "scaler", "demo", "-o", "json", "--duration", "1", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert demo.returncode == 1
    assert demo.stderr.splitlines()[-1] == f"Error: listen.http: 127.0.0.1:{port} is already in use"
    assert "Traceback" not in demo.stderr
