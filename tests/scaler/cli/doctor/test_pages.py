"""Each page the configuration names, asked over loopback: as it should be, and as it should not."""

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from exporter.clock import WallClock
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import RESOURCES
from scaler.cli.doctor.pages import MOST_PAGES, examine
from scaler.config import parse
from tests.fakes import objects

WORKLOAD = """
scrape: {{timeout: 1s}}
{more}
workloads:
- {{namespace: ai, name: chat, engine: vllm, replicas: {{min: 1}}, pods: {{urls: [{urls}]}}}}
"""


@pytest.fixture
def ask(pages):
    """`ask(url, ...)`: the checks of a workload with pods at these."""

    async def asked(*urls, more="", cluster=None):
        text = WORKLOAD.format(urls=", ".join(f'"{url}"' for url in urls), more=more)
        return await examine(parse(text, "c.yaml")[0], cluster, WallClock())

    return asked


def one(checks, part):
    [found] = [check for check in checks if part in check.name]
    return found


async def test_a_page_says_what_is_on_it_and_how_old_that_is(ask, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    checks = await ask(url)
    assert one(checks, url).status == "ok"
    assert one(checks, url).name == f"pods of ai/chat {url}"
    assert one(checks, url).said == "vllm, 1 queue: requests_waiting, requests_running; 0.0 s old"
    assert one(checks, "clocks of pages").status == "ok"


async def test_a_page_that_cannot_be_had_says_why_and_what_to_do(ask, pages):
    gone, closed = pages.at("/gone", "", status=404), "http://127.0.0.1:1/metrics"
    html, empty = pages.at("/html", "<!doctype html><p>Log in"), pages.at("/empty", "")
    checks = await ask(gone, closed, html, empty)
    found = {url: one(checks, url) for url in (gone, closed, html, empty)}
    assert {check.status for check in found.values()} == {"fail"}
    assert found[gone].said == "status: HTTP 404 Not Found"
    assert "is the path right?" in found[gone].do
    assert "Connection refused" in found[closed].said
    assert "HTML" in found[html].said
    assert "reloads" in found[empty].do


async def test_a_name_that_nobody_knows_is_a_failure(ask):
    [found] = [check for check in await ask("http://nobody.invalid:8000/metrics") if check.name.startswith("pods")]
    assert found.status == "fail"
    assert found.said.startswith("refused: nobody.invalid:8000: ")


async def test_a_page_without_a_queue_is_a_warning(ask, pages):
    url = pages.at("/metrics", "python_info 1\n")
    assert (one(await ask(url), url).status, "nothing on it" in one(await ask(url), url).said) == ("warn", True)


@pytest.mark.parametrize(
    ("age_s", "status", "words"),
    [(3, "ok", " s old"), (60, "fail", "60 s old, and believed for 15 s"), (-30, "warn", " s in our future")],
)
async def test_a_pages_own_time_is_looked_at(ask, pages, age_s, status, words):
    stamp = int((time.time() - age_s) * 1000)
    url = pages.at("/metrics", f'vllm:num_requests_waiting{{model_name="m"}} 3 {stamp}\n')
    found = one(await ask(url), url)
    assert (found.status, words in found.said) == (status, True)


async def test_a_host_whose_clock_is_off_is_told(ask, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    pages.date = format_datetime(datetime.fromtimestamp(time.time() + 60, UTC), usegmt=True)
    found = one(await ask(url), "clock of 127.0.0.1")
    assert (found.status, "ahead of ours" in found.said) == ("warn", True)


async def test_of_very_many_pages_some_are_asked_and_that_is_said(ask, pages, page):
    urls = [pages.at(f"/{number}", page.vllm(waiting=0, running=0)) for number in range(MOST_PAGES + 3)]
    checks = await ask(*urls)
    assert one(checks, "more pages").said.startswith("3 were not asked")
    assert len([check for check in checks if check.name.startswith("pods")]) == MOST_PAGES


async def test_a_prometheus_that_does_not_answer_is_a_failure(pages):
    text = """
workloads:
- {namespace: ai, name: chat, engine: vllm, replicas: {min: 1},
   pods: {prometheus: {url: "http://127.0.0.1:1", selector: 'pod=~"chat-.*"'}}}
"""
    checks = await examine(parse(text, "c.yaml")[0], None, WallClock())
    assert [(check.name, check.status) for check in checks] == [("pods of ai/chat", "fail")]
    assert "127.0.0.1:1" in checks[0].said


@pytest.fixture
def cluster():
    """`cluster(document, ...)`: one that has these, and says so."""

    def made(*documents):
        known = Cluster(blind_s=1e9)
        for resource in RESOURCES:
            mine = [document for document in documents if document["kind"] == resource.kind]
            known.replace(resource, None, mine, time.time())
        return known

    return made


IN_A_CLUSTER = "scrape: {timeout: 1s}\nkubernetes: {}\n"


async def test_what_triggers_name_is_found_in_the_cluster_and_asked(cluster, pages, page):
    url = pages.at("/metrics", page.vllm(waiting=3, running=1))
    words = {"engine": "vllm", "port": str(pages.port), "gateway": "front"}
    known = cluster(
        objects.deployment("chat"),
        objects.replicaset("chat-1", owner=("Deployment", "chat")),
        objects.pod("chat-1-x", owner=("ReplicaSet", "chat-1"), address="127.0.0.1"),
        objects.scaled_object("chat", triggers=[objects.trigger(**words)]),
    )
    checks = await examine(parse(IN_A_CLUSTER, "c.yaml")[0], known, WallClock())
    assert (one(checks, url).status, one(checks, url).name) == ("ok", f"pods of ai/chat {url}")
    assert (one(checks, "gateway of ai/chat").status, one(checks, "gateway of ai/chat").said) == (
        "warn",
        "no ready address",
    )
    assert (one(checks, "gpus").status, "no dcgm-exporter is there" in one(checks, "gpus").said) == ("warn", True)


async def test_what_is_wrong_with_somebodys_object_is_told(cluster):
    known = cluster(objects.deployment("chat"), objects.scaled_object("chat", triggers=[objects.trigger(engine="vlm")]))
    checks = await examine(parse(IN_A_CLUSTER, "c.yaml")[0], known, WallClock())
    found = one(checks, "object ai/ScaledObject/chat")
    assert (found.status, "engine" in found.said) == ("fail", True)


async def test_without_anything_to_read_that_is_said():
    [only] = await examine(parse("tick: 1s", "c.yaml")[0], None, WallClock())
    assert (only.name, only.status) == ("pages", "warn")
