"""The page shows every workload, unknown values as unknown, and the last view while the server is silent."""

import json
import random
import re
from dataclasses import replace

import pytest
from aiohttp import web

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.explain import formats
from scaler.explain.outcome_inputs import ControllerOutcome, OutcomeCode
from scaler.explain.rows import Placement, row
from scaler.explain.summary import OBSTACLES, REASONS, STATES, WorkloadState
from scaler.model import Reason

from .conftest import BUSY, EVERY_REASON, NOW, ROWS, decision, facts, history

pytestmark = pytest.mark.asyncio(loop_scope="module")

CELLS = f"""{ROWS}.map((tr) => ({{
    name: tr.querySelector('th a').textContent,
    word: tr.querySelector('.word').textContent,
    why: tr.querySelector('.why').textContent,
    numbers: ['replicas', 'load', 'gpu'].map((name) => tr.querySelector(`td.${{name}} .number`).textContent),
    demand: tr.querySelector('td.demand').textContent,
    age: tr.querySelector('td.age').textContent,
    notes: tr.querySelector('.chip.quiet:last-child').hidden,
}}))"""
NAMES = f"{ROWS}.map((tr) => tr.querySelector('th a').textContent)"
HOSTILE = '<img src=x onerror="window.owned=1">"\'&amp;'


def expected(each, now=NOW):
    """Returns the cells of a row as the terminal prints them."""
    cells = row(each, now)
    gpu = "none" if cells.state is WorkloadState.ASLEEP else formats.ratio(cells.gpu)
    return {
        "name": f"{cells.namespace}/{cells.label}", "word": STATES[cells.state].word,
        "why": cells.why, "numbers": [cells.shift, formats.count(cells.load), gpu],
        "demand": formats.count(cells.demand), "age": cells.age(now), "notes": not cells.notes,
    }  # fmt: skip


async def test_every_workload_has_the_same_texts_as_in_the_terminal(visit):
    page = await visit(EVERY_REASON)
    shown = {cells["name"]: cells for cells in await page.evaluate(CELLS)}
    assert shown == {str(each.workload): expected(each) for each in EVERY_REASON}
    assert page.errors == []


async def test_unknown_is_shown_as_unknown_and_never_as_0(visit):
    page = await visit([decision("silent", Reason.UNKNOWN)])
    (cells,) = await page.evaluate(CELLS)
    assert cells["numbers"] == ["unknown", "unknown", "unknown"]
    assert (cells["demand"], cells["age"], cells["word"]) == ("unknown", "unknown", "unknown")
    gpus = await page.evaluate("[...document.querySelectorAll('.gpus dd')].map((dd) => dd.textContent)")
    assert gpus == ["unknown"] * 4, "the number of its GPUs is unknown, so no sum is a number"


async def test_header_sums_gpus_by_state_and_counts_workloads_without_a_number(visit):
    uncounted = decision("nvml", evidence=replace(BUSY, gpus_held=None))
    page = await visit(
        [decision("a"), decision("b"), decision("c", Reason.WARM), decision("d", Reason.ASLEEP), uncounted]
    )
    assert await page.evaluate(facts(".gpus > div", pairs=True)) == [
        ["GPUs serving", "8"], ["GPUs idle, warm", "4"], ["GPUs starting", "0"], ["GPUs, use unknown", "0"],
    ]  # fmt: skip
    assert await page.evaluate("document.querySelector('.uncounted').textContent") == (
        "Without one workload: its number of GPUs is unknown."
    )
    states = "[...document.querySelectorAll('.tide button:not([hidden])')].map((each) => each.textContent)"
    assert await page.evaluate(states) == ["3serving", "1idle, warm", "1asleep"]


async def test_page_keeps_the_last_view_and_shows_its_age_if_the_server_stops(visit, site):
    page = await visit([decision("chat"), decision("code", Reason.ASLEEP)])
    before = await page.evaluate(CELLS)
    await site.stop()
    text = await page.until(
        "!document.querySelector('#silence').hidden && document.querySelector('#silence').textContent"
    )
    assert text.startswith("no answer: the data is ")
    assert await page.evaluate(CELLS) == before
    assert await page.evaluate("document.querySelector('#health').textContent") == "no answer"
    assert await page.evaluate("document.querySelector('#spoken').textContent") == "Tidegate does not answer"
    later = f"document.querySelector('#silence').textContent !== {json.dumps(text)}"
    await page.until(later)
    site.publish([decision("chat", Reason.WARM)])
    await site.start()
    await page.until("document.querySelector('#silence').hidden")
    assert [cells["word"] for cells in await page.evaluate(CELLS)] == ["idle, warm"]


async def test_daemon_without_ticks_is_shown_as_unhealthy(visit, site):
    page = await visit([decision("chat")])
    site.now += 40.0
    await page.until("document.querySelector('#silence').textContent.includes('last decisions are 40 s old')")
    assert await page.evaluate("document.querySelector('#health').textContent") == "no ticks"


@pytest.mark.parametrize("path", ["", "#/ai/" + "%3Cimg%20src%3Dx%20onerror%3D%22window.owned%3D1%22%3E%22'%26amp%3B"])
async def test_hostile_name_is_shown_as_text(visit, path):
    evil = replace(decision(HOSTILE), evidence=replace(BUSY, notes=(HOSTILE,), wake_source=HOSTILE))
    silent = replace(decision("b", Reason.UNKNOWN, namespace=HOSTILE))
    page = await visit([evil, replace(silent, evidence=replace(silent.evidence, stale=(HOSTILE,)))], path)
    await page.until(f"document.body.textContent.includes({json.dumps(HOSTILE)})")
    assert await page.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert await page.evaluate("window.owned ?? null") is None
    assert page.errors == []


async def test_page_requests_no_other_origin(visit, site):
    site.more = history(EVERY_REASON)
    page = await visit(EVERY_REASON)
    await page.until("document.querySelectorAll('.spark').length")
    await page.evaluate("location.hash = '#/ai/w-serving'")
    await page.until("document.querySelector('.facts')")
    assert page.requested
    assert {address for address in page.requested if not address.startswith(site.url)} == set()


async def test_all_of_five_thousand_workloads_are_reachable_and_only_visible_rows_are_drawn(visit):
    fleet = [decision(f"w{index:04d}", Reason.ASLEEP if index % 3 else Reason.SERVING) for index in range(5000)]
    page = await visit(fleet)
    assert await page.evaluate("document.querySelector('.workloads').getAttribute('aria-rowcount')") == "5001"
    assert await page.evaluate(f"{ROWS}.length") < 60
    names = set()
    for share in range(0, 101, 20):
        await page.evaluate(
            f"window.scrollTo(0, (document.documentElement.scrollHeight - innerHeight) * {share / 100})"
        )
        index = round(share / 100 * 4999)
        await page.until(f"{ROWS}.some((tr) => Math.abs(Number(tr.ariaRowIndex) - 2 - {index}) < 40)")
        names.update(await page.evaluate(NAMES))
        assert await page.evaluate(f"{ROWS}.length") < 60
    assert "ai/w0000" in names
    await page.press("End")
    await page.until("document.activeElement.textContent === 'ai/w4999'")


async def test_filters_and_states_select_rows_and_show_their_number(visit):
    page = await visit(
        [decision("chat"), decision("code", Reason.ASLEEP), decision("ocr", Reason.ASLEEP, namespace="lab")]
    )
    counted = "document.querySelector('.counted').textContent"
    assert await page.evaluate(counted) == "3 workloads"
    await page.press("/")
    for letter in "code":
        await page.press(letter)
    await page.until(f"{ROWS}.length === 1")
    assert (await page.evaluate(NAMES), await page.evaluate(counted)) == (["ai/code"], "1 of 3 workloads")
    await page.press("Escape")
    await page.until(f"{ROWS}.length === 3")
    await page.evaluate("document.querySelector('.tide [data-state=asleep]').click()")
    assert await page.evaluate(NAMES) == ["ai/code", "lab/ocr"]
    assert await page.evaluate("document.querySelector('.tide [data-state=asleep]').ariaPressed") == "true"
    choose = "(element, value) => { element.value = value; element.dispatchEvent(new Event('change')); }"
    await page.evaluate(f"({choose})(document.querySelector('[aria-label=namespace]'), 'lab')")
    assert await page.evaluate(NAMES) == ["lab/ocr"]
    await page.evaluate(f"({choose})(document.querySelector('[aria-label=reason]'), 'asleep')")
    assert await page.evaluate(NAMES) == ["lab/ocr"]
    await page.evaluate("document.querySelector('.filters [aria-pressed]').click()")
    assert await page.evaluate("document.querySelector('.nothing').textContent") == "No workload matches the filters."


async def test_column_sorts_with_unknown_last_in_both_directions(visit):
    small = replace(decision("small"), evidence=replace(BUSY, waiting=1.0, running=1.0))
    page = await visit([decision("silent", Reason.UNKNOWN), small, decision("large")])
    head = "document.querySelector('th.load button')"
    await page.evaluate(f"{head}.click()")
    assert await page.evaluate(NAMES) == ["ai/large", "ai/small", "ai/silent"]
    await page.evaluate(f"{head}.click()")
    assert await page.evaluate(NAMES) == ["ai/small", "ai/large", "ai/silent"]
    assert await page.evaluate("document.querySelector('th.load').ariaSort") == "ascending"


async def test_keys_move_through_the_rows_open_one_and_return_to_it(visit):
    page = await visit([decision(name) for name in ("a", "b", "c")])
    focused = "document.activeElement.textContent"
    await page.press("j")
    assert await page.evaluate(focused) == "ai/a"
    await page.press("ArrowDown")
    await page.press("j")
    await page.press("j")
    assert await page.evaluate(focused) == "ai/c", "the focus stays on the last row"
    await page.press("k")
    assert await page.evaluate(focused) == "ai/b"
    await page.press("Enter")
    await page.until("document.querySelector('.workload-view h1')?.textContent === 'ai/b'")
    assert await page.evaluate("document.title") == "ai/b · Tidegate"
    await page.press("Escape")
    await page.until(f"{ROWS}.length === 3")
    assert await page.evaluate(focused) == "ai/b"


async def test_poll_keeps_the_focus(visit, site):
    page = await visit([decision("a"), decision("b")])
    await page.press("j")
    await page.press("j")
    site.publish([decision("b", Reason.CAPPED), decision("a"), decision("z", Reason.UNKNOWN)])
    await page.until(f"{ROWS}.length === 3")
    assert await page.evaluate(NAMES) == ["ai/z", "ai/b", "ai/a"]
    assert await page.evaluate("document.activeElement.textContent") == "ai/b"


async def test_sparklines_show_the_last_hour_with_gaps(visit, site):
    fleet = [decision("chat")]
    load = [10.0] * 30 + [None] * 10 + [20.0] * 20
    site.more = history(fleet, load=load)
    page = await visit(fleet)
    path = await page.until("document.querySelector('td.load path.line')?.getAttribute('d')")
    assert path.count("M") == 2
    label = await page.evaluate("document.querySelector('td.load svg').getAttribute('aria-label')")
    assert label == "load in the last hour: at most 20 requests"


async def test_sparklines_use_their_width_from_the_first_minute(visit, site):
    """Two minutes of history: its first point is at the left edge and its last one at the right."""
    at = [NOW - 120.0 + 4.0 * index for index in range(31)]
    series = {**decision("chat").workload._asdict(), "at": at, **dict.fromkeys(("load", "demand", "gpu"), [0.5] * 31)}
    series |= {"replicas": [1] * 31, "actual": [1] * 31, "reason": ["serving"] * 31}

    async def answer(_):
        return web.json_response({"now": NOW, "workloads": [series]})

    site.more = [web.get("/api/v1/history", answer)]
    page = await visit([decision("chat")])
    path = await page.until("document.querySelector('td.load path.line')?.getAttribute('d')")
    places = [float(place) for place in re.findall(r"[ML]([\d.]+)", path)]
    assert (places[0], places[-1]) == (0.0, 120.0)
    await page.until("document.querySelector('.counts').textContent.startsWith('charts: last 2 min')")


async def test_filters_by_node_and_team_and_hides_what_sleeps(visit, site):
    chat, code, nap = decision("chat"), decision("code"), decision("nap", Reason.ASLEEP)
    nodes = {"chat": ("gpu-1", "gpu-2"), "code": ("gpu-2",), "nap": ()}
    site.placements = lambda: {
        each.workload: Placement(Ref("ai", "Deployment", each.workload.name), nodes[each.workload.name])
        for each in (chat, code, nap)
    }
    teams = {"chat": "search", "code": "tools", "nap": "search"}

    async def accounts(_):
        listed = [{**each.workload._asdict(), "team": teams[each.workload.name]} for each in (chat, code, nap)]
        return web.json_response({"now": NOW, "since": None, "gpu_hour": None, "workloads": listed})

    site.more = [web.get("/api/v1/accounts", accounts)]
    page = await visit([chat, code, nap])
    await page.until("!document.querySelector('[aria-label=team]').hidden")
    set_it = "each.value = value; each.dispatchEvent(new Event('change'))"
    choose = f"(name, value) => {{ const each = document.querySelector(`[aria-label=${{name}}]`); {set_it}; }}"
    for name, value, found in (
        ("node", "gpu-1", ["ai/chat"]),
        ("node", "gpu-2", ["ai/chat", "ai/code"]),
        ("node", "", ["ai/chat", "ai/code", "ai/nap"]),
        ("team", "search", ["ai/chat", "ai/nap"]),
    ):
        await page.evaluate(f"({choose})({name!r}, {value!r})")
        assert await page.evaluate(NAMES) == found
    await page.evaluate("document.querySelector('.filters [aria-pressed]').click()")
    assert await page.evaluate(NAMES) == ["ai/chat"]
    assert await page.evaluate("document.querySelector('[aria-label=namespace]').hidden"), "there is only one"
    assert page.errors == []


async def test_money_is_in_the_head_only_with_a_price_and_only_if_known(visit, site):
    seconds = {"serving": 3600.0, "idle_warm": None, "asleep": 7200.0}
    given = {"price": None, "seconds": seconds, "cost": None}

    async def accounts(_):
        listed = [{**decision("chat").workload._asdict(), "gpu_seconds": given["seconds"], "cost": given["cost"]}]
        return web.json_response({"now": NOW, "since": NOW - 60.0, "gpu_hour": given["price"], "workloads": listed})

    site.more = [web.get("/api/v1/accounts", accounts)]
    own = {"serving": 4.0, "idle_warm": None, "asleep": 6.0}  # its own price
    for price, sums, cost, shown in (
        (None, seconds, None, {"GPU-hours asleep": "2"}),
        (2.5, seconds, own, {"GPU-hours asleep": "2", "spent": "4", "saved asleep": "6"}),
        (None, seconds, dict.fromkeys(own), {"GPU-hours asleep": "2"}),
        (2.5, seconds, None, {"GPU-hours asleep": "2", "spent": "2.5", "saved asleep": "5"}),
        (2.5, {"serving": None, "asleep": 7200.0}, None, {"GPU-hours asleep": "2", "saved asleep": "5"}),
        (2.5, dict.fromkeys(seconds), None, {}),
    ):
        given |= {"price": price, "seconds": sums, "cost": cost}
        page = await visit([decision("chat")])
        await page.until("performance.getEntriesByType('resource').some((each) => each.name.includes('accounts'))")
        figures = facts(".gpus > div")
        figures = await page.until(f"Object.keys({figures}).length >= {4 + len(shown)} && {figures}")
        assert {name: value for name, value in figures.items() if not name.startswith("GPUs")} == shown
        await site.stop()


async def test_money_says_what_was_idle_and_what_always_on_would_have_cost(visit, site):
    priced = {
        "gpu_seconds": {"serving": 3600.0, "idle_warm": 1800.0, "asleep": 7200.0},
        "cost": {"serving": 4.0, "idle_warm": 2.0, "asleep": 6.0},
        "baseline": {"cost": {"held": 6.0, "maximum": 20.0, "peak": 11.0}},
    }
    unpriced = {"gpu_seconds": {"serving": 3600.0}, "cost": {"serving": None}, "baseline": {"cost": {"held": None}}}

    async def accounts(_):
        named = decision("chat").workload._asdict()
        return web.json_response({"now": NOW, "since": None, "gpu_hour": None, "workloads": [
            {**named, **priced}, {**named, **unpriced},
        ]})  # fmt: skip

    site.more = [web.get("/api/v1/accounts", accounts)]
    page = await visit([decision("chat")])
    await page.until("document.querySelector('.gpus .saved')")
    spent, saved = [
        (await page.evaluate(f"document.querySelector('.gpus .{name}').title")).split("; ")
        for name in ("spent", "saved")
    ]
    without = "without 1 of 2 workloads: unknown"
    assert spent == ["for the GPU-hours that workloads held, 2 of it idle", without]
    more = "always on would have cost 14 more with the maximum of replicas, 5 more with the peak of each day"
    assert saved == ["for the GPU-hours asleep", without, more]


async def test_links_are_shown_only_where_they_are_configured(visit, site):
    page = await visit([decision("chat")])
    assert await page.evaluate("document.querySelector('#grafana').checkVisibility()") is False
    await site.stop()
    console = "https://c.example.com/{kind}s/{namespace}/{name}"
    site.links = lambda: {"grafana": "https://g.example.com/", "object": console}
    site.placements = lambda: {decision("chat").workload: Placement(Ref("ai", "Deployment", "chat-vllm"), ())}
    page = await visit([decision("chat")])
    assert await page.evaluate("document.querySelector('#grafana').href") == "https://g.example.com/d/tidegate-overview"
    await page.evaluate("location.hash = '#/ai/chat'")
    await page.until("document.querySelector('.links a')")
    assert await page.evaluate("[...document.querySelectorAll('.links a')].map((each) => each.href)") == [
        "https://g.example.com/d/tidegate-workload?var-namespace=ai&var-workload=chat",
        "https://c.example.com/deployments/ai/chat-vllm",
    ]
    assert all(url.startswith(site.url) for url in page.requested if url.startswith("http"))


async def test_help_explains_every_state_reason_and_obstacle(visit):
    page = await visit([decision("chat")])
    await page.press("?")
    await page.until("document.querySelector('dialog').open")
    text = await page.evaluate("document.querySelector('dialog').innerText")
    for word in (*STATES.values(), *REASONS.values(), *OBSTACLES.values()):
        assert word.meaning in text
    assert "Tidegate " in await page.evaluate("document.querySelector('#release').textContent")
    await page.evaluate("document.querySelector('dialog button').click()")
    await page.press("j")
    await page.until("document.activeElement?.textContent === 'ai/chat'")


async def test_page_without_a_history_shows_everything_else(visit):
    page = await visit([decision("chat")])
    await page.until("performance.getEntriesByType('resource').some((each) => each.name.includes('/api/v1/history'))")
    assert await page.evaluate("document.querySelectorAll('.spark').length") == 0
    assert await page.evaluate(CELLS) == [expected(decision("chat"))]


async def test_large_fleet_loads_the_history_of_visible_rows_only(visit, site):
    fleet = [decision(f"w{index:03d}") for index in range(400)]
    site.more = history(fleet)
    page = await visit(fleet)
    await page.until("document.querySelectorAll('td.load .spark').length > 5")
    requested = {address.partition("?")[0] for address in page.requested if "/api/v1/history" in address}
    assert f"{site.url}api/v1/history" not in requested
    assert len(requested) < 60


async def test_gpu_hours_asleep_are_those_of_the_accounts(visit, site):
    def account(name, asleep):
        return {"namespace": "ai", "name": name, "trigger": "", "observed": False, "gpu_seconds": {"asleep": asleep}}

    async def accounts(_):
        listed = [account("a", 3600.0), account("b", 5400.0), account("c", None)]
        return web.json_response({"now": NOW, "since": NOW - 86400.0, "workloads": listed})

    site.more = [web.get("/api/v1/accounts", accounts)]
    page = await visit([decision("a")])
    await page.until("document.querySelector('.gpus [data-state=asleep] dd')")
    assert await page.evaluate("document.querySelector('.gpus [data-state=asleep] dd').textContent") == "2.5"
    title = await page.evaluate("document.querySelector('.gpus [data-state=asleep]').title")
    assert title.endswith("; without 1 of 3 workloads: unknown")


async def test_browser_formats_numbers_exactly_as_the_terminal(visit):
    page = await visit([decision("a")])
    chance = random.Random(8)
    numbers = [0.0, 0.04, 0.05, 0.25, 0.95, 9.95, 99.95, 100.5, 999.5, 0.005, 0.015, 59.9, 60.0, 172799.0, 1e6, None]
    numbers += [chance.random() * 10.0 ** chance.randint(-3, 6) for _ in range(300)]
    as_json = json.dumps(numbers)
    for name in ("count", "ratio", "span"):
        written = await page.evaluate(f"import('./page/format.js').then((format) => {as_json}.map(format.{name}))")
        assert written == [getattr(formats, name)(number) for number in numbers], name
    pairs = json.dumps([[one, two] for one in (None, 0, 1, 2) for two in (None, 0, 1, 2)])
    written = await page.evaluate(f"import('./page/format.js').then(({{shift}}) => {pairs}.map((p) => shift(...p)))")
    assert written == [formats.shift(one, two) for one, two in json.loads(pairs)]


async def test_each_trigger_of_a_workload_has_its_row_and_page(visit):
    decode = replace(decision("chat", Reason.WARM), workload=WorkloadKey("ai", "chat", "decode"))
    page = await visit([decision("chat"), decode])
    assert sorted(await page.evaluate(NAMES)) == ["ai/chat", "ai/chat/decode"]
    await page.evaluate("location.hash = '#/ai/chat/decode'")
    await page.until("document.querySelector('.workload-view .word')?.textContent === 'idle, warm'")


async def test_controller_outcome_is_shown_in_the_row_and_on_the_workload_page(visit, site):
    message = "paused at 2 replicas by the annotation <b>"
    paused = ControllerOutcome(OutcomeCode.PAUSED, (message,))
    site.outcome_of = lambda each: (
        paused if each.workload.name == "chat" else ControllerOutcome(OutcomeCode.SETTLED, ("nothing",))
    )
    page = await visit([decision("chat"), decision("code")])
    chips = "[...tr.querySelectorAll('.chip')].filter((chip) => chip.checkVisibility())"
    text = f"{ROWS}.map((tr) => [tr.dataset.severity, {chips}.map((chip) => [chip.textContent, chip.title])])"
    assert await page.evaluate(text) == [["notice", [["paused", message]]], ["fine", []]]
    await page.evaluate(f"{ROWS}[0].click()")
    await page.until("document.querySelector('.workload-view .title .chip:not([hidden])')")
    title = "[...document.querySelectorAll('.title .chip, .title .why')].filter((each) => each.checkVisibility())"
    assert (await page.evaluate(f"{title}.map((each) => each.textContent)"))[::2] == ["paused", message]
    assert page.errors == []
