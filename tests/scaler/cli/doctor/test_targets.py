"""Each target of the configuration is scraped over loopback; each check passes and fails as it should."""

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from exporter.clock import WallClock
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import RESOURCES
from scaler.cli.doctor.targets import MOST_TARGETS, examine
from scaler.config import parse
from tests.fakes import objects
from tests.fakes.sleeping_vllm import serving_vllm

WORKLOAD = """
scrape: {{timeout: 1s}}
{more}
workloads:
- {{namespace: ai, name: chat, engine: vllm, replicas: {{min: 1}}, pods: {{urls: [{urls}]}}}}
"""

CALLED = (
    "workloads: [{{namespace: ai, name: chat, engine: vllm, replicas: {{min: 1}}, pods: {{url: '{url}'}}, {sleep}}}]"
)


@pytest.fixture
def ask(pages):
    """`ask(url, ...)`: the checks of a workload with pods at these URLs."""

    async def run(*urls, more="", cluster=None):
        text = WORKLOAD.format(urls=", ".join(f'"{url}"' for url in urls), more=more)
        return await examine(parse(text, "c.yaml")[0], cluster, WallClock())

    return run


def one(checks, part):
    [match] = [check for check in checks if part in check.name]
    return match


async def test_target_shows_its_quantities_and_their_age(ask, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    checks = await ask(url)
    assert one(checks, url).status == "ok"
    assert one(checks, url).name == f"pods of ai/chat {url}"
    assert one(checks, url).result == "vllm, 1 queue: requests_waiting, requests_running; 0.0 s old"
    assert one(checks, "clocks of targets").status == "ok"


@pytest.mark.parametrize(
    ("has_sleep_mode", "status", "result"),
    [(True, "ok", "its engine can be called"), (False, "fail", "GET /is_sleeping: HTTP 404 Not Found")],
)
async def test_engine_that_is_to_be_called_is_asked_for_its_sleep_mode(ask, has_sleep_mode, status, result):
    async with serving_vllm(has_sleep_mode=has_sleep_mode) as vllm:
        sleep = f"gateway: {{url: '{vllm.gateway}'}}, sleep_mode: {{calls: true, after: 1m}}"
        checks = await examine(parse(CALLED.format(url=vllm.metrics, sleep=sleep), "c.yaml")[0], None, WallClock())
        check = one(checks, "sleep mode of ai/chat")
        assert (check.status, check.result, vllm.calls) == (status, result, [])
        checks = await examine(
            parse(CALLED.format(url=vllm.metrics, sleep="probe_period: 0"), "c.yaml")[0], None, WallClock()
        )
        assert not [each for each in checks if "sleep" in each.name]


async def test_failed_scrape_has_its_reason_and_remedy(ask, pages):
    gone, closed = pages.at("/gone", "", status=404), "http://127.0.0.1:1/metrics"
    html, empty = pages.at("/html", "<!doctype html><p>Log in"), pages.at("/empty", "")
    checks = await ask(gone, closed, html, empty)
    by_url = {url: one(checks, url) for url in (gone, closed, html, empty)}
    assert {check.status for check in by_url.values()} == {"fail"}
    assert by_url[gone].result == "status: HTTP 404 Not Found"
    assert "404: check the path" in by_url[gone].remedy
    assert "Connection refused" in by_url[closed].result
    assert "HTML" in by_url[html].result
    assert "reload" in by_url[empty].remedy


async def test_unknown_host_name_is_a_failure(ask):
    [check] = [check for check in await ask("http://absent.invalid:8000/metrics") if check.name.startswith("pods")]
    assert check.status == "fail"
    assert check.result.startswith("refused: absent.invalid:8000: ")


async def test_page_without_a_queue_is_a_warning(ask, pages):
    url = pages.at("/metrics", "python_info 1\n")
    assert (one(await ask(url), url).status, "neither a queue" in one(await ask(url), url).result) == ("warn", True)


@pytest.mark.parametrize(
    ("age_s", "status", "text"),
    [(3, "ok", " s old"), (60, "fail", "60 s old, stale after 15 s"), (-30, "warn", " s in the future")],
)
async def test_timestamp_of_a_sample_is_checked(ask, pages, age_s, status, text):
    stamp = int((time.time() - age_s) * 1000)
    url = pages.at("/metrics", f'vllm:num_requests_waiting{{model_name="m"}} 3 {stamp}\n')
    check = one(await ask(url), url)
    assert (check.status, text in check.result) == (status, True)


async def test_clock_offset_of_a_host_is_a_warning(ask, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    pages.date = format_datetime(datetime.fromtimestamp(time.time() + 60, UTC), usegmt=True)
    check = one(await ask(url), "clock of 127.0.0.1")
    assert (check.status, "ahead of this machine" in check.result) == ("warn", True)


async def test_number_of_scraped_targets_is_bounded(ask, pages, page):
    urls = [pages.at(f"/{number}", page.vllm(waiting=0, running=0)) for number in range(MOST_TARGETS + 3)]
    checks = await ask(*urls)
    assert one(checks, "more targets").result.startswith("3 were not scraped")
    assert len([check for check in checks if check.name.startswith("pods")]) == MOST_TARGETS


async def test_unreachable_prometheus_is_a_failure(pages):
    text = """
workloads:
- {namespace: ai, name: chat, engine: vllm, replicas: {min: 1},
   pods: {prometheus: {url: "http://127.0.0.1:1", selector: 'pod=~"chat-.*"'}}}
"""
    checks = await examine(parse(text, "c.yaml")[0], None, WallClock())
    assert [(check.name, check.status) for check in checks] == [("pods of ai/chat", "fail")]
    assert "127.0.0.1:1" in checks[0].result


@pytest.fixture
def cluster():
    """`cluster(document, ...)`: a cluster with these objects."""

    def build(*documents):
        filled = Cluster(blind_s=1e9)
        for resource in RESOURCES:
            matching = [document for document in documents if document["kind"] == resource.kind]
            filled.replace(resource, None, matching, time.time())
        return filled

    return build


IN_A_CLUSTER = "scrape: {timeout: 1s}\nkubernetes: {}\n"


async def test_targets_of_triggers_are_found_in_the_cluster_and_scraped(cluster, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    metadata = {"engine": "vllm", "port": str(pages.port), "gateway": "front"}
    listed = cluster(
        objects.deployment("chat"),
        objects.replicaset("chat-1", owner=("Deployment", "chat")),
        objects.pod("chat-1-x", owner=("ReplicaSet", "chat-1"), address="127.0.0.1"),
        objects.scaled_object("chat", triggers=[objects.trigger(**metadata)]),
    )
    checks = await examine(parse(IN_A_CLUSTER, "c.yaml")[0], listed, WallClock())
    assert (one(checks, url).status, one(checks, url).name) == ("ok", f"pods of ai/chat ai/chat-1-x ({url})")
    assert (one(checks, "gateway of ai/chat").status, one(checks, "gateway of ai/chat").result) == (
        "warn",
        "no ready address",
    )
    assert (one(checks, "gpus").status, "no dcgm-exporter" in one(checks, "gpus").result) == ("warn", True)


async def test_invalid_object_is_a_failure(cluster):
    listed = cluster(
        objects.deployment("chat"), objects.scaled_object("chat", triggers=[objects.trigger(engine="vlm")])
    )
    checks = await examine(parse(IN_A_CLUSTER, "c.yaml")[0], listed, WallClock())
    check = one(checks, "object ai/ScaledObject/chat")
    assert (check.status, "engine" in check.result) == ("fail", True)


async def test_configuration_without_targets_is_a_warning():
    [only] = await examine(parse("tick: 1s", "c.yaml")[0], None, WallClock())
    assert (only.name, only.status) == ("targets", "warn")


async def test_gpus_without_a_workload_are_a_warning_with_the_remedy(ask, pages, page):
    shown = "".join(page.gpu(f"GPU-{number}", [f"llm-{number}"], engine=0.5) for number in range(17))
    url = pages.at("/gpus", shown + page.gpu("GPU-x", ["chat-0"], engine=0.5))
    checks = await ask("http://127.0.0.1:1/metrics", more=f'gpus: [{{url: "{url}"}}]')
    check = one(checks, "GPUs without a workload")
    assert (check.status, check.result) == (
        "warn",
        (
            "17 GPUs of ai/llm-0, ai/llm-1, ai/llm-10 and 14 more match no workload: "
            "no workload of the configuration has pods of this name"
        ),
    )
    assert "pod_pattern" in check.remedy


async def test_gpus_of_workloads_are_no_warning(ask, pages, page):
    url = pages.at("/gpus", page.gpu("GPU-x", ["chat-0"], engine=0.5))
    checks = await ask("http://127.0.0.1:1/metrics", more=f'gpus: [{{url: "{url}"}}]')
    assert [check for check in checks if "without" in check.name] == []
