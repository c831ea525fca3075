"""`tidegate demo --engine llama.cpp`: the real daemon scales real engines on this machine."""

import json
import subprocess
import sys

import pytest

from scaler.cli.demo.real import clients_at, problems


def demo(*arguments, **more):
    command = [sys.executable, *more.get("before", ["-m", "scaler"]), "demo", "--engine", "llama.cpp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.usefixtures("model")
def test_real_engine_is_woken_and_answers_every_request():
    # The night of so short a day has no time for sleep.
    day = demo("--duration", "5", "--port", "0", "-o", "json")
    assert day.returncode == 0, day.stderr
    document = json.loads(day.stdout)
    requests = document["requests"]
    assert requests["answered"] == requests["sent"] > 5
    assert requests["lost"] == 0
    assert document["replicas"]["max"] >= 1
    assert document["woke_after_s"] is not None
    assert document["tokens"] >= 200 * requests["answered"]


def test_missing_packages_are_a_one_line_error():
    without = "import sys; sys.modules['xllamacpp'] = None; from scaler.cli import main; main()"
    run = demo("--port", "0", before=["-c", without])
    assert run.returncode == 1
    assert run.stderr.startswith("Error: llama.cpp: needs pip install 'tidegate[engines]': ")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "2"], "--speed: llama.cpp runs in real time"),
        (["--duration", "0"], "must be above 0 with llama.cpp, got 0"),
    ],
)
def test_option_of_the_simulated_engine_is_refused(arguments, message):
    run = demo(*arguments)
    assert run.returncode == 2
    assert message in run.stderr


def test_day_begins_and_ends_without_clients():
    assert [clients_at(share) for share in (0.0, 0.1, 0.3, 0.65, 0.9)] == [0, 1, 7, 2, 0]


def test_lost_requests_and_a_missing_wake_or_sleep_are_problems():
    result = {"requests": {"sent": 5, "answered": 4, "lost": 1}, "woke_after_s": None, "slept": False}
    assert len(problems(result, 75.0)) == 3
    assert len(problems(result, 10.0)) == 2  # too short to sleep
