"""The page of one workload shows its evidence, history and explanation, as far as the server has them."""

from dataclasses import replace

import pytest

from scaler.model import Reason

from .conftest import BUSY, NOW, decision, facts, history
from .responses import one_of_everything

pytestmark = pytest.mark.asyncio(loop_scope="module")

FACTS = facts(".evidence .facts > div")
PANELS = "[...document.querySelectorAll('.panel:not([hidden])')].map((each) => each.querySelector('h2')?.textContent)"


async def test_workload_page_shows_the_evidence_with_units(visit):
    noted = replace(
        BUSY, notes=("two of its pods do not answer",), kv_cache_used=0.004, gpu_memory_held_bytes=3.5 * 2**30
    )
    page = await visit([decision("chat", evidence=noted)], "#/ai/chat")
    await page.until("document.querySelector('.evidence .facts')")
    facts = await page.evaluate(FACTS)
    assert facts["waiting"] == "30"
    assert facts["KV cache used"] == "<1 %"
    assert facts["memory held"] == "3.5 GiB"
    assert facts["oldest reading"] == "2 s ago"
    assert await page.evaluate("document.querySelector('.title .figure').textContent") == "2 → 3"
    assert await page.evaluate("document.querySelector('.notes li').textContent") == "two of its pods do not answer"
    assert await page.evaluate("[...document.querySelectorAll('.objectives td')].map((td) => td.textContent)") == [
        "40", "16", "2.5", "unknown", "80 %", "unknown",
    ]  # fmt: skip
    assert page.errors == []


async def test_workload_page_shows_the_attainment_of_the_slo_once_and_rounded_down(visit):
    sentence = (
        "99.4 % of the requests of the last 3 days met the SLO: ttft 2s, itl 60ms; 43 % of the error budget is left"
    )
    measured = replace(
        BUSY, slo=sentence, slo_attainment=0.9943, slo_attainment_hour=0.99999, slo_attainment_least=0.991,
        slo_attainment_most=1.0, slo_error_budget=0.43, slo_requests_total=5e4, slo_misses_total=300.0,
    )  # fmt: skip
    page = await visit([decision("chat", evidence=measured)], "#/ai/chat")
    await page.until("document.querySelector('.evidence .facts')")
    facts = await page.evaluate(FACTS)
    assert facts["the last 3 days"] == sentence
    assert (facts["met in the last hour"], facts["at least, by the buckets"], facts["at most"]) == (
        "99.9 %", "99.1 %", "100 %",
    )  # fmt: skip
    assert not [name for name in facts if name.startswith("slo")]
    assert page.errors == []


async def test_unknown_evidence_is_shown_as_unknown(visit):
    page = await visit([decision("chat", Reason.UNKNOWN)], "#/ai/chat")
    await page.until("document.querySelector('.evidence .facts')")
    facts = await page.evaluate(FACTS)
    always = ("waiting", "in progress", "spec.replicas", "ready", "activity", "oldest reading")
    assert {facts[name] for name in always} == {"unknown"}
    assert await page.evaluate("document.querySelector('.title .figure').textContent") == "unknown"


async def test_workload_page_without_a_log_shows_the_evidence(visit):
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelector('.evidence .facts')")
    assert await page.evaluate(PANELS) == ["Evidence"]


async def test_explanation_shows_all_steps_also_unknown_ones(visit, site):
    site.more = one_of_everything([decision("chat")])
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelectorAll('.chain li').length === 3")
    titles = "[...document.querySelectorAll('.chain h3')].map((each) => each.textContent)"
    assert await page.evaluate(titles) == ["What the targets report", "Published replicas", "A step of a later version"]
    assert await page.evaluate("[...document.querySelectorAll('.chain td')].map((td) => td.textContent)") == [
        "chat-a", "3", "0.625", "chat-b", "–unknown", "–unknown",
    ]  # fmt: skip
    assert await page.evaluate("document.querySelector('.chain td.num') !== null")
    assert page.errors == []


async def test_click_opens_a_past_decision_and_escape_returns_to_the_present(visit, site):
    queries = []
    site.more = one_of_everything([decision("chat")], queries)
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelectorAll('.timeline li').length === 3")
    both = "[li.querySelector('.number').textContent, li.lastChild.textContent]"
    assert await page.evaluate(f"[...document.querySelectorAll('.timeline li')].map((li) => {both})") == [
        ["3", "of_tomorrow"],
        ["unknown", "unknown"],
        ["0", "asleep"],
    ]
    await page.evaluate("document.querySelector('.timeline li:last-child a').click()")
    past = f"3 replicas as of {NOW - 900.0:.0f}"
    await page.until(f"document.querySelector('.summary-line')?.textContent === '{past}'")
    assert {"at": f"{NOW - 900.0:.0f}"} in queries
    await page.press("Escape")
    await page.until(f"document.querySelector('.summary-line')?.textContent === '3 replicas as of {NOW:.0f}'")


async def test_follower_names_the_leader_that_it_repeats(visit, site):
    site.more = one_of_everything([decision("chat")], follows="10.0.0.2:7000")
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelector('.explained').textContent.includes('leader')")
    shown = await page.evaluate("document.querySelector('.explained').textContent")
    assert "the decision of the leader at 10.0.0.2:7000" in shown


async def test_arrow_keys_read_the_charts_including_gaps(visit, site):
    chat = decision("chat")
    load = [float(minute) for minute in range(478)] + [None, 7.0]
    site.more = history([chat], load=load)
    page = await visit([chat], "#/ai/chat")
    await page.until("document.querySelector('.canvas path.line.load')")
    readout = "document.querySelector('.readout').textContent"
    assert await page.evaluate(readout) == "now: 7"
    await page.evaluate("document.querySelector('.canvas').focus()")
    await page.press("ArrowLeft")
    assert (await page.evaluate(readout)).endswith(": unknown")
    await page.press("ArrowLeft")
    assert (await page.evaluate(readout)).endswith(": 477")
    assert ": 477. " in await page.evaluate("document.querySelector('.workload-view [role=status]').textContent")
    label = await page.evaluate("document.querySelector('.canvas').ariaLabel")
    assert label == "Requests, waiting, running or held. now: 7. Arrow keys select other times."


async def test_no_text_of_a_chart_is_cut_off(visit, site):
    site.more = history([decision("chat")])
    page = await visit([decision("chat")], "#/ai/chat")  # NOW is a full hour, so a text stands at the right edge
    await page.until("document.querySelector('.canvas text.time')")
    cut = """[...document.querySelectorAll('.canvas svg')].flatMap((svg) => [...svg.querySelectorAll('text')].filter(
        (text) => text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 0.5
    ).map((text) => text.textContent))"""
    assert await page.evaluate(cut) == []


async def test_reader_chooses_the_time_span(visit, site):
    site.more = history([decision("chat")])
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelector('.canvas path.line.load')")
    await page.evaluate("document.querySelector('.spans [data-since=\"21600\"]').click()")
    await page.until("performance.getEntriesByType('resource').some((each) => each.name.includes('since=21600'))")
    pressed = "[...document.querySelectorAll('.spans button')].filter((each) => each.ariaPressed === 'true').length"
    assert await page.evaluate(pressed) == 1


async def test_only_observed_workloads_have_shadow_scores(visit, site):
    both = [replace(decision("watched"), observed=True), decision("chat")]
    site.more = one_of_everything(both)
    page = await visit(both, "#/ai/watched")
    await page.until("document.querySelector('.scores')?.textContent.includes('what Tidegate would have done')")
    assert await page.evaluate(facts(".scores .facts > div")) == {
        "observed for": "2 d", "GPU-hours saved": "41.2", "GPU-hours added": "0",
        "waiting while it would have more": "1.5 request-minutes", "more replicas for": "10 min",
        "fewer replicas for": "2 h 00",
    }  # fmt: skip
    await page.evaluate("location.hash = '#/ai/chat'")
    await page.until(
        "document.querySelector('h1').textContent === 'ai/chat' && document.querySelector('.scores:not([hidden])')"
    )
    assert not await page.evaluate("document.body.textContent.includes('would have done')")
    shares = "[...document.querySelectorAll('.shares dt')].map((each) => each.textContent)"
    assert await page.evaluate(shares) == ["serving", "idle, warm", "asleep"]


async def test_explain_command_can_be_copied_and_is_quoted_for_a_shell(visit, site):
    page = await visit([decision("chat"), decision("it's; rm")], "#/ai/chat")
    command = "document.querySelector('.command code').textContent"
    server = site.url.rstrip("/")
    assert await page.evaluate(command) == f"tidegate explain ai/chat --server {server}"
    await page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    await page.evaluate("document.querySelector('.command button').click()")
    await page.until("['copied', 'selected'].includes(document.querySelector('.command button').textContent)")
    await page.evaluate('location.hash = "#/ai/it\'s%3B%20rm"')
    await page.until("document.querySelector('h1').textContent === \"ai/it's; rm\"")
    assert await page.evaluate(command) == f"tidegate explain 'ai/it'\\''s; rm' --server {server}"


async def test_page_reports_a_removed_workload(visit, site):
    page = await visit([decision("chat"), decision("code")], "#/ai/chat")
    await page.until("document.querySelector('.evidence .facts')")
    site.publish([decision("code")])
    await page.until("document.querySelector('.workload-view .nothing:not([hidden])')")
    assert "not on the Board" in await page.evaluate("document.querySelector('.nothing').textContent")


async def test_head_evidence_and_steps_are_of_one_decision(visit, site):
    """The rows have 3 replicas; the explanation is of a newer decision, of 5."""
    newer = decision("chat", replicas=5, evidence=replace(BUSY, waiting=77.0))
    site.more = one_of_everything([decision("chat")], answer=newer)
    page = await visit([decision("chat")], "#/ai/chat")
    await page.until("document.querySelector('.summary-line') && document.querySelector('.evidence .facts')")
    assert await page.evaluate("document.querySelector('.title .figure').textContent") == "2 → 5"
    assert "77 waiting" in await page.evaluate("document.querySelector('.title .why').textContent")
    assert (await page.evaluate(FACTS))["waiting"] == "77"


async def test_past_explanation_says_that_the_head_is_newer(visit, site):
    site.more = one_of_everything([decision("chat")], answer=decision("chat", replicas=5))
    page = await visit([decision("chat")], f"#/ai/chat?at={NOW - 900.0:.0f}")
    await page.until("document.querySelector('.explained .of')?.textContent.includes('head and evidence are newer')")
    assert await page.evaluate("document.querySelector('.title .figure').textContent") == "2 → 3"
