"""Makes the pictures of docs/images: `make pictures` runs the demo, and shows an example fleet on the real page.

Needs `chromium` and Pillow. The demo's picture is one frame of a real run. The page is the real one, with an invented
fleet: nine workloads in every state, and GPUs that match no workload.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web
from PIL import Image  # type: ignore[import-not-found]
from rich.console import Console

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.cli.demo.run import DemoRequest, play
from scaler.cli.demo.screen import DemoLinks, draw, remember
from scaler.cli.demo.world import ScreenFrame
from scaler.explain.outcome_inputs import ControllerOutcome, OutcomeCode
from scaler.explain.rows import Placement
from scaler.model import Decision, Evidence, Objective, Reason
from scaler.workloads.unmatched import UnmatchedGpus, UnmatchedReason
from tests.scaler.api.page.browser import chromium
from tests.scaler.api.page.conftest import NOW, ROWS, Site, decision

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 96, 30  # of the terminal
MOMENT_S = 2950.0  # of the demo's day: asleep again
COLOURS = 128
# Without the fonts that rich's own format fetches from another host.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
FLEET = (
    ("ai", "agents", Reason.HELD, 3, 3, 44.0, 0.81), ("search", "summarise", Reason.CAPPED, 8, 8, 150.0, 0.97),
    ("ai", "whisper", Reason.LOADING, 1, 1, 6.0, 0.0), ("ai", "chat", Reason.SERVING, 3, 4, 61.0, 0.85),
    ("ai", "code", Reason.SERVING, 2, 2, 23.0, 0.64), ("ai", "vision", Reason.SERVING, 1, 1, 12.0, 0.67),
    ("batch", "translate", Reason.SCHEDULED, 3, 3, 0.0, 0.0), ("batch", "embed", Reason.WARM, 1, 1, 0.0, 0.0),
    ("search", "rerank", Reason.ASLEEP, 0, 0, 0.0, None),
)  # fmt: skip


def picture_demo(path: Path) -> None:
    """Runs the demo and draws the frame of MOMENT_S."""
    frames: list[ScreenFrame] = []
    pictures: list[str] = []

    @contextmanager
    def record(_: Console, links: DemoLinks) -> Iterator[Callable[[ScreenFrame], None]]:
        def show(frame: ScreenFrame) -> None:
            remember(frames, frame)
            if frame.at_s >= MOMENT_S and not pictures:
                pictures.append(_svg(frames, links))

        yield show

    play(DemoRequest(60.0, 60.0, 7, None, as_json=False), record)
    path.write_text(pictures[0])


def _svg(frames: Sequence[ScreenFrame], links: DemoLinks) -> str:
    out = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    out.print(draw(frames, links, WIDTH, HEIGHT))
    text = out.export_svg(title="tidegate demo", unique_id="demo", code_format=SVG)
    return re.sub(r"\n\s+", "\n", text)


def fleet() -> list[Decision]:
    def one(namespace: str, name: str, reason: Reason, cluster: int, published: int, load: float, gpu: float | None):
        made = decision(name, reason, namespace)
        waiting = load if reason is Reason.LOADING else load // 9
        evidence = replace(
            made.evidence, running=load - waiting, waiting=waiting, gpu_engine_active=gpu, replicas_wanted=cluster,
            replicas_ready=0 if reason is Reason.LOADING else cluster, gpus_held=2 * cluster,
            objectives=(Objective("work", load, 16.0, load / 16),),
            schedule="at least 3 replicas Mon-Fri 08:00-18:00 (Europe/Berlin)" if reason is Reason.SCHEDULED else None,
        )  # fmt: skip
        return replace(made, replicas=published, published=None, evidence=evidence)

    return [one(*each) for each in FLEET]


def routes(decisions: Sequence[Decision]) -> list[web.RouteDef]:
    """An hour of waves for each workload, and a day of accounts."""

    def series(index: int, each: Decision) -> dict[str, object]:
        evidence: Evidence = each.evidence
        wave = [1.0 + 0.5 * math.sin(point / 6.0 + index) for point in range(60)]
        wave = [value / wave[-1] for value in wave]
        load, gpu = (evidence.running or 0.0) + (evidence.waiting or 0.0), evidence.gpu_engine_active
        replicas = [math.ceil((each.replicas or 0) * value - 0.3) if load else each.replicas for value in wave]
        return {
            **each.workload._asdict(), "at": [NOW - 3600.0 + 61.0 * point for point in range(60)],
            "load": [load * value for value in wave], "demand": [load / 16 * value for value in wave],
            "replicas": replicas, "actual": [replicas[0], *replicas[:-1]],
            "gpu": [None if not gpu else min(1.0, gpu * value) for value in wave],
            "reason": [str(each.reason)] * 60,
        }  # fmt: skip

    async def history(_: web.Request) -> web.Response:
        return web.json_response({"now": NOW, "workloads": [series(*each) for each in enumerate(decisions)]})

    async def accounts(_: web.Request) -> web.Response:
        hours = {"serving": 30.0, "idle_warm": 3.0, "loading": 0.8, "asleep": 14.0}
        seconds = {state: 3600.0 * value for state, value in hours.items()}
        listed = [
            {**each.workload._asdict(), "team": each.workload.namespace, "observed": False, "gpu_seconds": seconds}
            for each in decisions
        ]
        return web.json_response({"now": NOW, "since": NOW - 86400.0, "gpu_hour": 2.5, "workloads": listed})

    return [web.get("/api/v1/history", history), web.get("/api/v1/accounts", accounts)]


async def picture_page(browser_path: str) -> None:
    decisions = fleet()
    placements = {
        each.workload: Placement(Ref(each.workload.namespace, "Deployment", each.workload.name), ("gpu-1", "gpu-2"))
        for each in decisions
    }
    cause = "no trigger or annotation scales StatefulSet research/notebook"
    unmatched = UnmatchedGpus(UnmatchedReason.NO_WORKLOAD, 2, ("research/notebook-0",), 1, cause)

    def outcome(each: Decision) -> ControllerOutcome:
        code = OutcomeCode.RATE_LIMITED if each.workload == WorkloadKey("ai", "chat") else OutcomeCode.SETTLED
        return ControllerOutcome(code, ("the HPA adds at most 1 replica per 30 s",))

    site = Site(
        routes(decisions), outcome_of=outcome, unmatched=lambda: [unmatched],
        placements=lambda: placements,
        links=lambda: {"grafana": "https://grafana.example.com"},
    )  # fmt: skip
    site.publish(decisions)
    await site.start()
    async with chromium(browser_path, tempfile.mkdtemp()) as browser:
        page = await browser.page(site.url, width=1280, height=1060)
        for scheme in ("light", "dark"):
            await page.colours(scheme)
            await page.until(
                f"{ROWS}.length === 9 && ['.spark', '.spent'].every((name) => document.querySelector(name))"
            )
            picture = Image.open(io.BytesIO(await page.picture())).convert("RGB").quantize(COLOURS)
            picture.save(IMAGES / f"page-{scheme}.png", optimize=True)
    await site.stop()


if __name__ == "__main__":
    asyncio.run(picture_page(shutil.which("chromium") or "chromium"))
    picture_demo(IMAGES / "demo.svg")
