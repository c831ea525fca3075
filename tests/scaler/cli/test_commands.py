"""The other commands: what they print, how they end, and that asking for help costs nothing."""

import json
import os
import socket
import subprocess
import sys

import pytest
import yaml

from scaler.cli import main

BAD = """\
tick: 2m
workloads:
  - {namespace: ai, name: chat, engine: vlm, pods: {dns: chat.ai.svc}, replicas: {min: 1}}
"""
UNREACHED = """
workloads:
  - {namespace: ai, name: chat, engine: vllm, pods: {url: "http://127.0.0.1:1/metrics"}, replicas: {min: 1}}
"""
WORDS = {
    "run": "Run the daemon",
    "export": "Collect and expose only",
    "check": "Check configuration files",
    "schema": "JSON Schema",
    "read": "what Tidegate sees",
    "demo": "whole loop",
    "explain": "why a workload has",
    "replay": "recorded load",
    "report": "Where GPU-hours went",
    "top": "in the terminal",
    "doctor": "everything is there",
    "version": "version of Tidegate",
}


@pytest.mark.parametrize("command", [[], *([name] for name in WORDS)], ids=["tidegate", *WORDS])
def test_help_is_there_and_imports_nothing_heavy(tidegate, command):
    done = tidegate(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert WORDS[command[0]] in done.stdout if command else all(f"\n  {name} " in done.stdout for name in WORDS)
    assert tidegate(*command, "-h").stdout == done.stdout
    # -X importtime names every module that is imported, on standard error.
    quick = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "scaler", *command, "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in quick.stderr.splitlines()}
    assert "scaler.cli" in imported
    heavy = {"numba", "numpy", "grpc", "aiohttp", "pydantic", "rich", "requests", "prometheus_client", "asyncio"}
    assert not heavy & imported


def test_every_command_is_described_above():
    assert set(main.commands) == set(WORDS)


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run"], ["check"], ["read"], ["--nonsense"], ["check", "x", "-o", "xml"], ["demo", "--speed", "0"]],
)
def test_wrong_usage_is_status_2_with_a_hint_and_no_traceback(tidegate, arguments):
    done = tidegate(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
    assert "Traceback" not in done.stderr


def test_version_names_what_it_runs_on(tidegate):
    table = tidegate("version")
    document = json.loads(tidegate("version", "-o", "json").stdout)
    assert list(document)[:2] == ["tidegate", "python"]
    assert table.stdout == "".join(f"{name:<9} {number}\n" for name, number in document.items())
    assert tidegate("--version").stdout == f"tidegate {document['tidegate']}\n"


def test_the_schema_is_json_that_names_itself_a_schema(tidegate):
    done = tidegate("schema")
    document = json.loads(done.stdout)
    assert (done.returncode, document["type"]) == (0, "object")
    assert document["$schema"].startswith("https://json-schema.org/")
    assert "workloads" in document["properties"]


class TestCheck:
    def test_a_good_file_is_fine(self, tidegate, config):
        done = tidegate("check", config())
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["1 file(s) fine", "  ai/chat: never asleep: replicas.min is above 0"]

    def test_all_errors_are_said_at_once_with_their_places(self, tidegate, config):
        file = config(BAD)
        done = tidegate("check", file)
        assert (done.returncode, done.stderr) == (1, "")
        first, second = done.stdout.splitlines()
        assert first.startswith(f"{file}:1:7: tick: must be at most 1m, got 2m")
        assert second.startswith(f"{file}:3:41: workloads.0.engine: must be one of ")

    def test_one_bad_file_of_two_is_a_problem(self, tidegate, config):
        good, bad = config(), config(BAD, "bad.yaml")
        done = tidegate("check", good, bad)
        assert done.returncode == 1
        assert all(line.startswith(str(bad)) for line in done.stdout.splitlines())

    def test_a_warning_is_said_and_is_no_failure(self, tidegate, config):
        # At zero nothing could see the next request.
        file = config("workloads: [{namespace: ai, name: chat, engine: vllm, pods: {dns: chat.ai.svc}}]\n")
        done = tidegate("check", file)
        assert done.returncode == 0
        assert ": warning TG001: workloads.0.replicas.min: " in done.stdout
        assert "1 file(s) fine, 1 warning(s)\n" in done.stdout

    def test_json_and_yaml_are_the_same_list_of_problems(self, tidegate, config):
        file = config(BAD)
        done = tidegate("check", file, "-o", "json")
        problems = json.loads(done.stdout)
        assert done.returncode == 1
        assert [(problem["line"], problem["key"]) for problem in problems] == [(1, "tick"), (3, "workloads.0.engine")]
        assert set(problems[0]) == {"file", "line", "column", "key", "message", "severity", "rule"}
        assert yaml.safe_load(tidegate("check", file, "-o", "yaml").stdout) == problems
        assert tidegate("check", config(), "-o", "json").stdout == "[]\n"

    def test_a_file_that_is_not_there_is_a_problem_of_that_file(self, tidegate, tmp_path):
        done = tidegate("check", tmp_path / "none.yaml")
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout == f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"


class TestRun:
    def test_a_bad_configuration_is_status_78_and_those_lines_and_nothing_else(self, tidegate, config):
        file = config(BAD)
        done = tidegate("run", "-c", file)
        assert (done.returncode, done.stdout) == (78, "")
        assert done.stderr == tidegate("check", file).stdout

    def test_a_configuration_that_is_not_there_is_status_78(self, tidegate, tmp_path):
        done = tidegate("run", "-c", tmp_path / "none.yaml")
        assert done.returncode == 78
        assert done.stderr == f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"

    @pytest.mark.parametrize("listener", ["http", "grpc"])
    def test_a_port_in_use_is_one_line_that_names_it(self, tidegate, config, listener):
        good = config().read_text()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            ports = {"http": 0, "grpc": 0, listener: port}
            listen = ", ".join(f'{name}: "127.0.0.1:{number}"' for name, number in ports.items())
            done = tidegate("run", "-c", config(f"listen: {{{listen}}}\n{good}"))
        assert (done.returncode, done.stdout) == (1, "")
        *others, line = done.stderr.splitlines()
        assert line.startswith("Error: ")
        # gRPC's core cannot be kept from saying it first, in its own words.
        assert not [each for each in others if listener != "grpc" or "add_port.cc" not in each]
        assert f"127.0.0.1:{port}" in line

    def test_certificates_that_are_not_there_are_a_bad_configuration(self, tidegate, config, tmp_path):
        tls = f"grpc_tls: {{certificate: {tmp_path}/a.crt, key: {tmp_path}/a.key}}"
        done = tidegate("run", "-c", config(f'listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0", {tls}}}\n'))
        assert done.returncode == 78
        assert f"{tmp_path}/a.crt" in done.stderr
        assert "Traceback" not in done.stderr

    def test_logs_are_json_on_standard_error_and_a_warning_is_one_of_them(self, config):
        workload = "workloads: [{namespace: ai, name: chat, engine: vllm, pods: {url: 'http://127.0.0.1:1/'}}]\n"
        file = config(f'listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}\n{workload}')
        daemon = subprocess.Popen(
            [sys.executable, "-m", "scaler", "run", "-c", str(file)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        with daemon:
            said = []
            while not said or said[-1]["event"] != "listening":
                said.append(json.loads(daemon.stderr.readline()))
            daemon.terminate()
            out, rest = daemon.communicate(timeout=60)
        said += [json.loads(line) for line in rest.splitlines()]
        assert (daemon.returncode, out) == (0, "")
        assert (said[0]["level"], said[0]["event"]) == ("warning", "configuration")
        assert said[-1]["event"] == "stopped"
        assert all({"event", "level", "timestamp"} <= set(entry) for entry in said)


def test_doctor_says_what_is_wrong_and_ends_with_1_and_with_0_where_nothing_is(tidegate, config):
    quiet = 'listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}\n'
    well = tidegate("doctor", "-c", config(quiet))
    assert (well.returncode, well.stderr) == (0, "")
    assert "fail" not in well.stdout
    ill = tidegate("doctor", "-c", config(quiet + UNREACHED), "-o", "json")
    assert (ill.returncode, ill.stderr) == (1, "")
    [failure] = [check for check in json.loads(ill.stdout) if check["status"] == "fail"]
    assert failure["name"] == "pods of ai/chat http://127.0.0.1:1/metrics"
    assert "Connection refused" in failure["said"]
    assert failure["do"]
