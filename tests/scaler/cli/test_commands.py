"""All commands print help quickly and exit with 2 on wrong usage; tests of check, run, schema and version."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from click.testing import CliRunner

from scaler.cli import main, server_url

BAD = """\
tick: 2m
workloads:
  - {namespace: ai, name: chat, engine: vlm, pods: {dns: chat.ai.svc}, replicas: {min: 1}}
"""
UNREACHED = """
workloads:
  - {namespace: ai, name: chat, engine: vllm, pods: {url: "http://127.0.0.1:1/metrics"}, replicas: {min: 1}}
"""
TEXTS = {
    "run": "Run the daemon",
    "export": "Only collect and expose metrics",
    "check": "Check configuration files",
    "schema": "JSON Schema",
    "read": "what Tidegate reads",
    "demo": "whole control loop",
    "explain": "Explain the replica count",
    "replay": "Simulate policies",
    "report": "Print GPU-hours by state",
    "top": "in the terminal",
    "doctor": "Check everything that Tidegate needs",
    "version": "versions of Tidegate",
}


KERNELS = """\
import sys, scaler.daemon
from numba.core.dispatcher import Dispatcher
for module in list(sys.modules.values()):
    if module.__name__.startswith(("scaler.", "exporter.")):
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                print(module.__name__, name)
"""


def test_daemon_imports_no_kernel_before_it_listens():
    # Compiling all of them takes 15 s without a cache. KEDA's GetMetricSpec is answered meanwhile.
    listed = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, check=True, text=True)
    assert listed.stdout == ""


@pytest.mark.parametrize("command", [[], *([name] for name in TEXTS)], ids=["tidegate", *TEXTS])
def test_help_imports_nothing_heavy(tidegate, command):
    done = tidegate(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert TEXTS[command[0]] in done.stdout if command else all(f"\n  {name} " in done.stdout for name in TEXTS)
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


def test_every_command_has_a_description():
    assert set(main.commands) == set(TEXTS)


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run"], ["check"], ["read"], ["--nonsense"], ["check", "x", "-o", "xml"], ["demo", "--speed", "0"]],
)
def test_wrong_usage_is_status_2_without_a_traceback(tidegate, arguments):
    done = tidegate(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
    assert "Traceback" not in done.stderr


def test_version_lists_main_dependencies(tidegate):
    table = tidegate("version")
    document = json.loads(tidegate("version", "-o", "json").stdout)
    assert list(document)[:2] == ["tidegate", "python"]
    assert table.stdout == "".join(f"{name:<9} {number}\n" for name, number in document.items())
    assert tidegate("--version").stdout == f"tidegate {document['tidegate']}\n"


def test_schema_is_a_json_schema(tidegate):
    done = tidegate("schema")
    document = json.loads(done.stdout)
    assert (done.returncode, document["type"]) == (0, "object")
    assert document["$schema"].startswith("https://json-schema.org/")
    assert "workloads" in document["properties"]


class TestCheck:
    def test_valid_file_passes(self, tidegate, config):
        done = tidegate("check", config())
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["1 file(s) fine", "  ai/chat: never at zero: replicas.min is above 0"]

    def test_all_errors_are_printed_with_their_positions(self, tidegate, config):
        file = config(BAD)
        done = tidegate("check", file)
        assert (done.returncode, done.stderr) == (1, "")
        first, second = done.stdout.splitlines()
        assert first.startswith(f"{file}:1:7: tick: must be at most 1m, got 2m")
        assert second.startswith(f"{file}:3:41: workloads.0.engine: must be one of ")

    def test_one_invalid_file_of_two_is_a_problem(self, tidegate, config):
        good, bad = config(), config(BAD, "bad.yaml")
        done = tidegate("check", good, bad)
        assert done.returncode == 1
        assert all(line.startswith(str(bad)) for line in done.stdout.splitlines())

    def test_warning_is_printed_and_is_no_failure(self, tidegate, config):
        # The workload has no wake source at zero.
        file = config("workloads: [{namespace: ai, name: chat, engine: vllm, pods: {dns: chat.ai.svc}}]\n")
        done = tidegate("check", file)
        assert done.returncode == 0
        assert ": warning TG001: workloads.0.replicas.min: " in done.stdout
        assert "1 file(s) checked, 1 warning(s)\n" in done.stdout

    def test_json_and_yaml_have_the_same_problems(self, tidegate, config):
        file = config(BAD)
        done = tidegate("check", file, "-o", "json")
        problems = json.loads(done.stdout)
        assert done.returncode == 1
        assert [(problem["line"], problem["key"]) for problem in problems] == [(1, "tick"), (3, "workloads.0.engine")]
        assert set(problems[0]) == {"file", "line", "column", "key", "message", "severity", "rule"}
        assert yaml.safe_load(tidegate("check", file, "-o", "yaml").stdout) == problems
        assert tidegate("check", config(), "-o", "json").stdout == "[]\n"

    def test_missing_file_is_a_problem_of_that_file(self, tidegate, tmp_path):
        done = tidegate("check", tmp_path / "none.yaml")
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout == f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"


class TestRun:
    def test_invalid_configuration_is_status_78_and_only_its_errors(self, tidegate, config):
        file = config(BAD)
        done = tidegate("run", "-c", file)
        assert (done.returncode, done.stdout) == (78, "")
        assert done.stderr == tidegate("check", file).stdout

    def test_missing_configuration_is_status_78(self, tidegate, tmp_path):
        done = tidegate("run", "-c", tmp_path / "none.yaml")
        assert done.returncode == 78
        assert done.stderr == f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"

    @pytest.mark.parametrize("name", ["http", "grpc"])
    def test_port_in_use_is_a_one_line_error(self, tidegate, config, name):
        good = config().read_text()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            ports = {"http": 0, "grpc": 0, name: port}
            listen = ", ".join(f'{key}: "127.0.0.1:{number}"' for key, number in ports.items())
            done = tidegate("run", "-c", config(f"listen: {{{listen}}}\n{good}"))
        assert (done.returncode, done.stdout) == (1, "")
        *before, line = done.stderr.splitlines()
        assert line.startswith("Error: ")
        # gRPC's core prints its own message first.
        assert not [each for each in before if name != "grpc" or "add_port.cc" not in each]
        assert f"127.0.0.1:{port}" in line

    def test_missing_certificates_are_a_bad_configuration(self, tidegate, config, tmp_path):
        tls = f"grpc_tls: {{certificate: {tmp_path}/a.crt, key: {tmp_path}/a.key}}"
        done = tidegate("run", "-c", config(f'listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0", {tls}}}\n'))
        assert done.returncode == 78
        assert f"{tmp_path}/a.crt" in done.stderr
        assert "Traceback" not in done.stderr

    def test_logs_are_json_on_standard_error_with_the_warnings(self, config):
        workload = "workloads: [{namespace: ai, name: chat, engine: vllm, pods: {url: 'http://127.0.0.1:1/'}}]\n"
        file = config(f'listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}\n{workload}')
        daemon = subprocess.Popen(
            [sys.executable, "-m", "scaler", "run", "-c", str(file)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        with daemon:
            logged = []
            while not logged or logged[-1]["event"] != "listening":
                logged.append(json.loads(daemon.stderr.readline()))
            daemon.terminate()
            out, rest = daemon.communicate(timeout=60)
        logged += [json.loads(line) for line in rest.splitlines()]
        assert (daemon.returncode, out) == (0, "")
        assert (logged[0]["level"], logged[0]["event"]) == ("warning", "configuration")
        assert logged[-1]["event"] == "stopped"
        assert all({"event", "level", "timestamp"} <= set(entry) for entry in logged)


def test_doctor_exits_with_1_only_if_a_check_fails(tidegate, config):
    quiet = 'listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}\n'
    good = tidegate("doctor", "-c", config(quiet))
    assert (good.returncode, good.stderr) == (0, "")
    assert "fail" not in good.stdout
    bad = tidegate("doctor", "-c", config(quiet + UNREACHED), "-o", "json")
    assert (bad.returncode, bad.stderr) == (1, "")
    [failure] = [check for check in json.loads(bad.stdout) if check["status"] == "fail"]
    assert failure["name"] == "pods of ai/chat http://127.0.0.1:1/metrics"
    assert "Connection refused" in failure["result"]
    assert failure["remedy"]


class TestServer:
    @pytest.fixture
    def daemon(self):
        """The address without a scheme of a server that answers as a daemon without workloads."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                document = {
                    "now": 1.0,
                    "since": 1.0,
                    "gpu_hour": None,
                    "nodes": None,
                    "workloads": [],
                    "gpus_unmatched": [],
                    "profiles": [],
                }
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
        server.server_close()

    def test_every_command_takes_an_address_without_a_scheme(self, daemon):
        parameters = {name: command.params for name, command in main.commands.items()}
        takes_server = {
            name for name, params in parameters.items() if any(each.callback is server_url for each in params)
        }
        assert takes_server == {"doctor", "explain", "report", "top"}
        shown = CliRunner().invoke(main, ["report", "--server", f"{daemon}/"])
        assert (shown.exit_code, "GPU-hours by state" in shown.output) == (0, True)
        shown = CliRunner().invoke(main, ["report"], env={"TIDEGATE_SERVER": daemon})
        assert shown.exit_code == 0

    @pytest.mark.parametrize(
        ("given", "url"),
        [
            ("localhost:18080", "http://localhost:18080"),
            ("localhost:18080/", "http://localhost:18080"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("tidegate.example", "http://tidegate.example"),
            ("https://tidegate.example/", "https://tidegate.example"),
        ],
    )
    def test_server_without_a_scheme_is_http(self, given, url):
        assert server_url(None, None, given) == url

    @pytest.mark.parametrize("given", ["", "http://", "ftp://tidegate.example", "/"])
    def test_server_that_is_no_http_url_is_a_usage_error(self, given):
        shown = CliRunner().invoke(main, ["report", "--server", given])
        assert (shown.exit_code, "must be a URL such as http://localhost:8080" in shown.output) == (2, True)
