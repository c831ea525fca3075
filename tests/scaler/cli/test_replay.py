"""`tidegate replay` in a shell: the result is on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

LOAD = "each:5m,for=30m"
TWO = ("--policy", "static:replicas=1", "--policy", "tidegate:keep-warm=60")


@pytest.fixture
def on_a_terminal():
    """`on_a_terminal("replay", …)` returns the exit status, standard output, and the text on the terminal."""

    def run(*arguments):
        keyboard, screen = os.openpty()
        command = [sys.executable, "-m", "scaler", *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=screen) as process, ThreadPoolExecutor(1) as pool:
            os.close(screen)
            shown = pool.submit(everything, keyboard)
            out = process.stdout.read().decode()
            return process.wait(120), out, shown.result(120)

    return run


def everything(terminal):
    output = b""
    try:
        while more := os.read(terminal, 65_536):
            output += more
    except OSError:  # Linux: EIO if the other side is closed
        pass
    os.close(terminal)
    return output.decode()


def test_only_the_result_is_on_standard_output(on_a_terminal, tmp_path):
    report = tmp_path / "report.html"
    status, out, shown = on_a_terminal("replay", LOAD, *TWO, "--seed", "3", "-o", "json", "--html", report)

    assert status == 0
    assert "reading" in shown
    (document,) = json.loads(out)
    assert document["load"] == LOAD
    assert [policy["name"] for policy in document["policies"]] == ["static", "tidegate"]
    static, tidegate_policy = document["policies"]
    assert tidegate_policy["gpu_hours"] < static["gpu_hours"]
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_default_output_is_a_table(tidegate):
    done = tidegate("replay", "each:5m,for=11m", "--policy", "static:replicas=1")

    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert [word for word in ("each:5m,for=11m", "SLO met", "static", "Server A") if word not in done.stdout] == []


def test_policies_are_listed_without_a_trace(tidegate):
    done = tidegate("replay", "--policy", "list")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\nknative: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "TRACE: must be given"),
        ((LOAD, "--policy", "nope"), "there is no policy 'nope'"),
        ((LOAD, "--policy", "static:4"), "should be key=value"),
        (("--prometheus", "http://127.0.0.1:1", "--workload", "chat"), "--workload: must be NAMESPACE/NAME, got chat"),
        (
            ("--prometheus", "http://127.0.0.1:1", "--workload", "ai/chat", "--since", "x"),
            "--since: must be a duration",
        ),
    ],
)
def test_wrong_usage_is_one_error_with_status_2(tidegate, arguments, message):
    done = tidegate("replay", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert message in done.stderr


def test_invalid_server_profile_is_a_bad_configuration(tidegate, tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("name: mine\nstart: soon\n")
    done = tidegate("replay", LOAD, "--server", file)

    assert (done.returncode, done.stdout) == (78, "")
    assert f"{file}:2:" in done.stderr
    assert all(line.startswith(str(file)) for line in done.stderr.splitlines())


def test_options_are_checked_before_the_simulation(tidegate, tmp_path):
    lost = tidegate("replay", LOAD, "--html", tmp_path / "missing" / "report.html")
    assert lost.returncode == 2
    assert "--html: must be in a folder that exists" in " ".join(lost.stderr.split()).replace("'--html'", "--html")
    aimless = tidegate("replay", LOAD, "--workload", "ai/chat")
    assert aimless.returncode == 2
    assert "--workload: needs --prometheus" in aimless.stderr
