"""The page shows GPUs that match no workload, and late and skipped scrapes, with the reason and the remedy."""

import pytest

from exporter.scrape.loop import Skipped
from scaler.workloads.unmatched import UnmatchedGpus, UnmatchedReason

from .conftest import EVERY_REASON, decision

pytestmark = pytest.mark.asyncio(loop_scope="module")

TITLE = "document.querySelector('.findings:not([hidden]) summary')?.textContent"
ITEMS = """[...document.querySelectorAll('.findings:not([hidden]) li')].map(
    (each) => [...each.childNodes].map((part) => part.textContent)
)"""
HIDDEN = "document.querySelector('.findings').hidden"
GONE = UnmatchedGpus(UnmatchedReason.NO_POD, 17, ("ai/gone",), 1, "the cluster has no such pod")


def foreign(count):
    """Returns this many entries of one GPU each."""
    return [
        UnmatchedGpus(UnmatchedReason.NO_WORKLOAD, 1, (f"ai/w{index}",), 1, f"nothing scales w{index}")
        for index in range(count)
    ]


async def test_gpus_without_a_workload_are_shown_with_reason_and_remedy(visit, site):
    site.unmatched = lambda: [GONE]
    page = await visit([decision("chat")])
    assert await page.until(TITLE) == "17 GPUs match no workload"
    assert await page.evaluate(ITEMS) == [
        [
            "17 GPUs of ai/gone match no workload: the cluster has no such pod. ",
            "Restart the exporter if the pod has ended; check that it belongs to this cluster.",
        ]
    ]
    assert await page.evaluate("document.querySelector('.findings').open")
    assert page.errors == []


async def test_long_list_of_gpus_without_a_workload_is_folded(visit, site):
    site.unmatched = lambda: foreign(4)
    page = await visit([decision("chat")])
    assert await page.until(TITLE) == "4 GPUs match no workload"
    assert not await page.evaluate("document.querySelector('.findings').open")


@pytest.mark.parametrize("unmatched", [None, ()])
async def test_nothing_is_shown_without_findings(visit, site, unmatched):
    site.unmatched = lambda: unmatched
    page = await visit([decision("chat")])
    assert await page.evaluate(HIDDEN)


async def poll_after(site, page, scrapes, late=0, skipped=(0, 0)):
    """Waits until the page shows a new Board with these counts added."""
    site.scrapes += scrapes
    site.delays.late += late
    site.delays.skipped.update(dict(zip((Skipped.OVERLOAD, Skipped.SLOW_TARGET), skipped, strict=True)))
    site.now += 2.0
    site.publish(EVERY_REASON)
    await page.until(f"document.body.dataset.version === '{site.board.version}'")


async def test_late_and_skipped_scrapes_of_the_last_minutes_are_shown(visit, site):
    site.scrapes, site.delays.late = 1000, 900  # before the page was opened
    page = await visit(EVERY_REASON)
    await poll_after(site, page, 100, late=5)
    assert await page.evaluate(HIDDEN), "a twentieth is not many"
    await poll_after(site, page, 100, late=30, skipped=(4, 50))
    assert await page.until(TITLE) == "Late readings"
    assert await page.evaluate(ITEMS) == [
        [
            "Tidegate is overloaded: of the last 200 scrapes, 35 began late; 4 more were skipped. ",
            "Give it a faster CPU or a longer scrape.interval, or split its workloads in two.",
        ],
        [
            "50 scrapes were skipped, of 250: their targets had not responded to the request before. ",
            "See the durations of the targets in an explanation, or run tidegate doctor.",
        ],
    ]
    site.now += 400.0
    await poll_after(site, page, 100)
    await poll_after(site, page, 100)
    assert await page.evaluate(HIDDEN), "the delays are older than five minutes"
