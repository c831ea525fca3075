"""The memory of the real daemon, and the arithmetic of the chart's memory limit."""

import asyncio
import re
from pathlib import Path

import yaml

from exporter.budget import BODIES, SERIES, SERIES_BYTES
from scaler.config.model import Scrape

CHART = Path(__file__).parents[3] / "deploy" / "chart" / "values.yaml"
BASE = Path(__file__).parents[3] / "deploy" / "kustomize" / "base" / "deployment.yaml"
MIB = 2**20
TARGETS, LINES = 16, 4500  # a response just below the 64 KiB that the fixture's configuration allows


def resident(metrics):
    return float(re.search(r"^process_resident_memory_bytes (\S+)$", metrics, re.MULTILINE)[1])


async def test_extra_at_each_scrape_leak_no_memory(daemon, targets, vllm):
    attack, turn = asyncio.Event(), asyncio.Condition()

    class Fresh(type(targets["plain"])):
        async def respond(self, request):
            first = self.scrapes * LINES
            extra = b"".join(b"a%x 1\n" % (0x1000000 + first + i) for i in range(LINES)) if attack.is_set() else b""
            self.body = vllm(waiting=1) + extra
            async with turn:
                turn.notify_all()
            return await super().respond(request)

    names = [f"engine-{number}" for number in range(TARGETS)]
    for name in names:
        targets[name] = Fresh()

    async def until_scraped(times):
        goal = {name: targets[name].scrapes + times for name in names}
        async with asyncio.timeout(60.0), turn:
            await turn.wait_for(lambda: all(targets[name].scrapes >= goal[name] for name in names))

    urls = ", ".join(f'"{targets.url(name)}"' for name in names)
    async with daemon(f"  - {{namespace: ai, name: chat, engine: vllm, pods: {{urls: [{urls}]}}}}\n") as running:
        await until_scraped(3)
        before = resident((await running.get("/metrics"))[1])
        attack.set()
        await until_scraped(5)
        _, metrics = await running.get("/metrics")
        assert not re.search(r'^tidegate_scrape_failures_total\{.*reason="too_large"', metrics, re.MULTILINE)
        # Remembering 72,000 series took 56 MiB.
        assert resident(metrics) - before < 25 * MIB


def number(pattern, text):
    return float(re.search(pattern, text)[1].replace(",", ""))


def test_limit_of_the_chart_follows_from_the_budgets():
    text = CHART.read_text(encoding="utf-8")
    comment = text[: text.index("\nresources:")].rpartition("\n\n")[2]
    bodies = number(r"([0-9,]+) MiB: responses", comment)
    assert bodies == 2 * BODIES * Scrape().body_limit / MIB
    series = number(r"([0-9,]+) MiB: selected series", comment)
    assert series == -(-SERIES * SERIES_BYTES // MIB)
    parts = [float(part) for part in re.findall(r"# +([0-9]+) MiB: ", comment)]
    limit = yaml.safe_load(text)["resources"]["limits"]["memory"]
    assert limit == "1Gi"
    assert sum(parts) == 1024


def test_kustomization_has_the_limit_of_the_chart():
    container = next(yaml.safe_load_all(BASE.read_text(encoding="utf-8")))["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == yaml.safe_load(CHART.read_text(encoding="utf-8"))["resources"]
