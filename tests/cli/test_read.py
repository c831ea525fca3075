"""`tidegate read`: pages from anywhere, and what a person or a program is told of them."""

import asyncio
import gzip
import json

import pytest
import yaml
from aiohttp import web

from exporter.catalog import KINDS

QUEUE = {"name": "m", "waiting": 3, "running": 1, "kv_cache_used": None, "finished_total": None}


@pytest.fixture
def text(page):
    return page.vllm(waiting=3, running=1)


def test_a_file_standard_input_and_a_url_are_read_alike(tidegate, tmp_path, serve, text):
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


def test_yaml_says_the_same_as_json(tidegate, text):
    as_json = tidegate("read", "-", "-o", "json", stdin=text.encode()).stdout
    as_yaml = tidegate("read", "-", "-o", "yaml", stdin=text.encode()).stdout
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_a_kind_can_be_said(tidegate, text):
    assert tidegate("read", "-", "--kind", "vllm", stdin=text.encode()).stdout.startswith("vllm  standard input\n")
    done = tidegate("read", "-", "--kind", "dcgm", stdin=text.encode())
    assert done.returncode == 1
    assert "Nothing on this page is a queue or a GPU." in done.stdout


def test_a_kind_that_nobody_knows_is_wrong_usage_and_the_kinds_are_named(tidegate):
    done = tidegate("read", "-", "--kind", "vlm")
    assert done.returncode == 2
    assert all(kind in done.stderr for kind in KINDS)
    assert "got vlm" in done.stderr


def test_a_page_of_no_known_kind_is_a_problem_and_the_kinds_are_named(tidegate):
    done = tidegate("read", "-", stdin=b"node_load1 0.5\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert all(kind in done.stderr for kind in KINDS)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("body", [b"", b"\n\n", bytes(range(256))])
def test_a_page_with_nothing_on_it_is_a_problem_in_every_format(tidegate, body):
    for output in ("table", "json"):
        done = tidegate("read", "-", "-o", output, stdin=body)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html><body>Please log in</body></html>\n", "HTML"),
        (b"[]", "/prometheus/metrics"),
        (gzip.compress(b"vllm:num_requests_waiting 1\n", mtime=0), "gzip"),
        ("vllm:num_requests_waiting 1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_no_page_is_called_what_it_is_and_is_a_problem(tidegate, body, said):
    for output in ("table", "json"):
        done = tidegate("read", "-", "-o", output, stdin=body)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert said in done.stderr
    assert json.loads(done.stdout)["queues"] == []


def test_a_file_that_is_not_there_is_one_line(tidegate, tmp_path):
    done = tidegate("read", tmp_path / "nothing.prom")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path}/nothing.prom: No such file or directory\n"
    assert tidegate("read", tmp_path).stderr == f"Error: {tmp_path}: Is a directory\n"


def test_an_http_error_is_one_line_with_its_status(tidegate, serve):
    async def refuse(_):
        raise web.HTTPForbidden

    url = serve(refuse)
    done = tidegate("read", url)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {url}: HTTP 403 Forbidden\n")


def test_nobody_there_is_one_line_with_the_reason(tidegate):
    done = tidegate("read", "http://127.0.0.1:1/metrics")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: http://127.0.0.1:1/metrics: [Errno 111] Connection refused\n"


@pytest.mark.parametrize("speed", ["silent", "a line now and then"])
def test_a_page_that_does_not_end_in_time_is_given_up(tidegate, serve, speed):
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
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {url}: no whole page within 0.3 s\n")


def test_a_page_without_end_is_given_up_before_the_memory_is_full(tidegate, serve):
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
    assert done.stderr == f"Error: {url}: larger than 64 MiB, so no page of metrics\n"


def test_a_file_without_end_is_given_up_too(tidegate):
    done = tidegate("read", "/dev/zero")
    assert (done.returncode, done.stderr) == (1, "Error: /dev/zero: larger than 64 MiB, so no page of metrics\n")


def test_a_timeout_of_nothing_is_wrong_usage(tidegate):
    assert tidegate("read", "-", "--timeout", "0").returncode == 2
