"""`tidegate read` reads pages from files, standard input and URLs, and prints tables or documents."""

import asyncio
import gzip
import json
import os
import subprocess
import sys

import pytest
import yaml
from aiohttp import web

from exporter.catalog import KINDS
from scaler.cli import read
from scaler.config.model import Scrape

NO_DATA = 'The daemon would count a failed scrape ("{}") and get no data from this target'
QUEUE = {"name": "m", "waiting": 3, "running": 1, "kv_cache_used": None, "finished_total": None}


@pytest.fixture
def text(page):
    return page.vllm(waiting=3, running=1)


def test_file_standard_input_and_url_give_the_same_result(tidegate, tmp_path, serve, text):
    file = tmp_path / "page.prom"
    file.write_text(text)

    async def answer(_):
        return web.Response(text=text)

    ways = (tidegate("read", file, "-o", "json"), tidegate("read", "-", "-o", "json", stdin=text.encode()))
    for done in (*ways, tidegate("read", serve(answer), "-o", "json")):
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == {"kind": "vllm", "queues": [QUEUE], "gpus": [], "dropped": []}


def test_json_has_exactly_the_documented_keys(tidegate, page):
    text = page.gpu("GPU-1", ["chat-0"], engine=0.5) + "DCGM_FI_DEV_GPU_UTIL oops\n"
    document = json.loads(tidegate("read", "-", "-o", "json", stdin=text.encode()).stdout)
    assert list(document) == ["kind", "queues", "gpus", "dropped"]
    (gpu,), (dropped,) = document["gpus"], document["dropped"]
    assert list(gpu) == [
        "uuid", "instance", "profile", "model", "memory_used_bytes", "memory_total_bytes", "engine_active",
        "utilization", "power_watts", "attribution", "pods",
    ]  # fmt: skip
    assert gpu["pods"] == [{"namespace": "ai", "pod": "chat-0"}]
    assert list(dropped) == ["line", "reason"]
    assert gpu["utilization"] is None, "unknown is null, never 0"


def test_yaml_equals_json(tidegate, text):
    as_json = tidegate("read", "-", "-o", "json", stdin=text.encode()).stdout
    as_yaml = tidegate("read", "-", "-o", "yaml", stdin=text.encode()).stdout
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_kind_can_be_given(tidegate, text):
    assert tidegate("read", "-", "--kind", "vllm", stdin=text.encode()).stdout.startswith("vllm  standard input\n")
    done = tidegate("read", "-", "--kind", "dcgm", stdin=text.encode())
    assert done.returncode == 1
    assert "This page has neither a queue nor a GPU." in done.stdout


def test_unknown_kind_is_wrong_usage_and_lists_the_kinds(tidegate):
    done = tidegate("read", "-", "--kind", "vlm")
    assert done.returncode == 2
    assert all(kind in done.stderr for kind in KINDS)
    assert "got vlm" in done.stderr


def test_page_of_no_kind_is_a_problem_and_lists_the_kinds(tidegate):
    done = tidegate("read", "-", stdin=b"node_load1 0.5\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert all(kind in done.stderr for kind in KINDS)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("body", [b"", b"\n\n", bytes(range(256))])
def test_empty_page_is_a_problem_in_every_format(tidegate, body):
    for output in ("table", "json"):
        done = tidegate("read", "-", "-o", output, stdin=body)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"<html><body>Please log in</body></html>\n", "HTML"),
        (b"[]", "/prometheus/metrics"),
        (gzip.compress(b"vllm:num_requests_waiting 1\n", mtime=0), "gzip"),
        ("vllm:num_requests_waiting 1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_body_that_is_no_metrics_page_is_a_problem_that_names_its_kind(tidegate, body, name):
    for output in ("table", "json"):
        done = tidegate("read", "-", "-o", output, stdin=body)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert name in done.stderr
    assert json.loads(done.stdout)["queues"] == []


def test_missing_file_is_a_one_line_error(tidegate, tmp_path):
    done = tidegate("read", tmp_path / "nothing.prom")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path}/nothing.prom: No such file or directory\n"
    assert tidegate("read", tmp_path).stderr == f"Error: {tmp_path}: Is a directory\n"


def test_http_error_is_one_line_with_its_status(tidegate, serve):
    async def refuse(_):
        raise web.HTTPForbidden

    url = serve(refuse)
    done = tidegate("read", url)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"Error: {url}: HTTP 403 Forbidden. {NO_DATA.format('status')}\n",
    )


def test_refused_connection_is_one_line_with_the_reason(tidegate):
    done = tidegate("read", "http://127.0.0.1:1/metrics")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"Error: http://127.0.0.1:1/metrics: 127.0.0.1:1: Connection refused. {NO_DATA.format('refused')}\n"
    )


@pytest.mark.parametrize("speed", ["silent", "a line now and then"])
def test_slow_page_is_aborted_at_the_time_limit(tidegate, serve, speed):
    async def trickle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                if speed != "silent":
                    await response.write(b'vllm:num_requests_waiting{model_name="m"} 1\n')
                await asyncio.sleep(0.05)
        except ConnectionError:
            return response

    url = serve(trickle)
    done = tidegate("read", url, "--timeout", "0.3")
    why = f"no complete answer within 0.3 s. {NO_DATA.format('timeout')}: its limit is scrape.timeout"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {url}: {why}\n")


def test_endless_page_is_aborted_at_the_size_limit(tidegate, serve):
    async def flood(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x 1\n" * 2**18)
        except ConnectionError:
            return response

    url = serve(flood)
    done = tidegate("read", url, "--timeout", "60")
    assert (done.returncode, done.stdout) == (1, "")
    why = f"more than {Scrape().body_limit} bytes (scrape.body_limit). {NO_DATA.format('too_large')}"
    assert done.stderr == f"Error: {url}: {why}\n"


def test_endless_file_is_aborted_at_the_size_limit(tidegate):
    done = tidegate("read", "/dev/zero")
    assert (done.returncode, done.stderr) == (1, "Error: /dev/zero: larger than 64 MiB, not a metrics page\n")


def test_timeout_of_zero_is_wrong_usage(tidegate):
    assert tidegate("read", "-", "--timeout", "0").returncode == 2


def test_default_timeout_is_the_daemons():
    [timeout] = [parameter for parameter in read.params if parameter.name == "timeout"]
    assert Scrape().timeout == timeout.default


def test_slow_header_is_aborted_at_the_time_limit(tidegate, raw):
    """Every byte arrives in time, but the response never ends."""
    url = raw(b"HTTP/1.1 200 OK\r\nX: ", more=b"a")
    done = tidegate("read", url, "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {url}: no complete answer within 0.3 s. ")


def test_redirect_is_not_followed(tidegate, serve, text):
    visits = []

    async def elsewhere(request):
        visits.append(request)
        return web.Response(text=text)

    target = serve(elsewhere)

    async def redirect(_):
        raise web.HTTPFound(target.replace("127.0.0.1", "localhost"))

    url = serve(redirect)
    done = tidegate("read", url)
    assert (done.returncode, done.stdout, visits) == (1, "", [])
    why = f"HTTP 302 Found. {NO_DATA.format('status')}: it follows no redirect; give the final address"
    assert done.stderr == f"Error: {url}: {why}\n"


@pytest.mark.parametrize(
    ("broken", "kind", "why"),
    [
        (lambda packed: packed[:-9], "refused", "the gzip stream does not end where the response ends"),
        (lambda packed: packed + b"and more", "refused", "the gzip stream does not end"),
        (lambda packed: packed[:-5] + b"\0" + packed[-4:], "unreadable", "not valid gzip"),
    ],
)
def test_broken_gzip_body_is_an_error(tidegate, raw, text, broken, kind, why):
    body = broken(gzip.compress(text.encode() * 100, mtime=0))
    url = raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    done = tidegate("read", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {url}: {why}")
    assert done.stderr.endswith(f"{NO_DATA.format(kind)}\n")


def test_hanging_name_look_up_is_aborted_at_the_time_limit(tmp_path):
    """The look-up runs in a thread that cannot be cancelled: it reads a pipe without a writer."""
    hanging = "import os, socket\nsocket.getaddrinfo = lambda *_, **__: os.read(os.pipe()[0], 1)\n"
    (tmp_path / "sitecustomize.py").write_text(hanging)
    done = subprocess.run(
        [sys.executable, "-m", "scaler", "read", "http://slow.example/metrics", "--timeout", "0.3"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "no complete answer within 0.3 s" in done.stderr


def test_page_of_an_exporter_without_sources_is_a_one_line_problem(tidegate):
    page = 'tidegate_export_source_up{source="http://127.0.0.1:8000/metrics",kind="vllm"} 0\n'
    done = tidegate("read", "-", stdin=page.encode())
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
