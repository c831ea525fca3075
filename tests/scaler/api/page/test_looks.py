"""The page fits every screen, is readable, and follows the preferences of its reader."""

import json
import re
from dataclasses import replace

import pytest

from scaler.model import Evidence, Objective, Reason

from .conftest import BUSY, EVERY_REASON, ROWS, decision, history
from .responses import one_of_everything

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Each visible piece of text with its colour and its background colours, the nearest first. Decoration (aria-hidden)
# has a text beside it.
TEXTS = """(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        const ignored = '[aria-hidden=true], .hidden, .skip, noscript, option';
        if (!node.textContent.trim() || !element.checkVisibility() || element.closest(ignored)) continue;
        const behind = [];
        for (let up = element; up; up = up.parentElement) behind.push(getComputedStyle(up).backgroundColor);
        const { fill, color } = getComputedStyle(element);
        found.push([node.textContent.trim(), element instanceof SVGElement ? fill : color, behind]);
    }
    return found;
})()"""
PHONE = {"width": 360, "height": 740}


def rgba(text):
    """Reads `rgb(1, 2, 3)`, `rgba(1, 2, 3, 0.5)` or `color(srgb 0.1 0.2 0.3 / 0.5)` as three numbers 0..1 and alpha."""
    numbers = [float(part) for part in re.findall(r"[\d.]+(?:e-\d+)?", text.partition("(")[2])]
    unit = 1.0 if text.startswith("color(") else 255.0
    return [*(part / unit for part in numbers[:3]), *(numbers[3:] or [1.0])]


def over(colour, ground):
    return [part * colour[3] + below * (1.0 - colour[3]) for part, below in zip(colour[:3], ground, strict=True)]


def luminance(colour):
    """Returns the relative luminance of WCAG 2.2."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour, behind):
    ground = [1.0, 1.0, 1.0]
    for each in reversed(behind):
        ground = over(rgba(each), ground)
    light, dark = sorted((luminance(over(rgba(colour), ground)), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


async def test_contrast_is_computed_as_wcag_does():
    assert contrast("rgb(0, 0, 0)", ["rgb(255, 255, 255)"]) == pytest.approx(21.0)
    assert contrast("rgb(119, 119, 119)", ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "#/ai/w-capped"])
async def test_every_text_has_enough_contrast(visit, site, scheme, path):
    site.more = one_of_everything(EVERY_REASON)
    page = await visit(EVERY_REASON, path)
    await page.colours(scheme)
    await page.until("document.querySelector('.spark, .chain li')")
    texts = await page.evaluate(TEXTS)
    assert len(texts) > 30
    assert {
        text: round(contrast(colour, behind), 2) for text, colour, behind in texts if contrast(colour, behind) < 4.5
    } == {}


async def test_theme_follows_the_preference_or_the_readers_choice(visit, site):
    page = await visit(EVERY_REASON)
    ground = "getComputedStyle(document.body).backgroundColor"

    async def bright():
        return luminance(rgba(await page.evaluate(ground))[:3]) > 0.5

    await page.colours("dark")
    assert not await bright()
    await page.colours("light")
    assert await bright()
    chosen = []
    for _ in range(3):
        await page.evaluate("document.querySelector('#theme').click()")
        chosen.append((await page.evaluate("document.querySelector('#theme').textContent"), await bright()))
    assert chosen == [("light", True), ("dark", False), ("auto", True)]
    await page.evaluate("document.querySelector('#theme').click()")
    page = await page.wire.page(site.url)
    await page.colours("dark")
    await page.until(f"{ROWS}.length")
    assert await bright(), "a choice outlives the tab"


@pytest.mark.parametrize("path", ["", "#/ai/w-frozen"])
@pytest.mark.parametrize("width", [320, 390, 700, 1000, 1400])
async def test_page_never_scrolls_sideways(visit, site, path, width):
    site.more = one_of_everything(EVERY_REASON)
    page = await visit(EVERY_REASON, path, width=width, height=740)
    await page.until("document.querySelector('.spark, .chain li')")
    assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_phone_is_as_wide_as_the_longest_objective_allows(visit, site):
    slo = decision("chat", evidence=replace(BUSY, objectives=(Objective("slo", 1000.25, 1.0, 1000.25),)))
    site.more = one_of_everything([slo], answer=slo)
    page = await visit([slo], "#/ai/chat", width=390, height=740)
    await page.until("document.querySelector('.objectives')")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_phone_head_is_one_line_without_an_answer(visit, site):
    page = await visit(EVERY_REASON, **PHONE)
    height = "document.querySelector('.bar').offsetHeight"
    before = await page.evaluate(height)
    await site.stop()
    await page.until("!document.querySelector('#silence').hidden")
    assert await page.evaluate(height) == before < 60


async def test_unknown_figures_have_one_size(visit):
    page = await visit([decision("silent", Reason.UNKNOWN)])
    sizes = "[...document.querySelectorAll('.gpus dd')].map((each) => getComputedStyle(each).fontSize)"
    assert await page.evaluate(sizes) == ["18px"] * 4


@pytest.mark.parametrize("many", [9, 41])
async def test_reason_uses_its_lines_and_never_stops_before_a_long_word(visit, many):
    stale = Evidence(stale=("http://a-service-with-a-long-name.namespace.svc:8000/metrics",))
    page = await visit([decision(f"w{index}", Reason.UNKNOWN, evidence=stale) for index in range(many)])
    cut = "(each) => [each.scrollWidth > each.clientWidth, each.scrollHeight > each.clientHeight]"
    assert await page.evaluate(f"({cut})({ROWS}[0].querySelector('.why'))") == [many > 40, False]


async def test_hours_and_their_share_do_not_touch(visit, site):
    site.more = one_of_everything(EVERY_REASON)
    page = await visit(EVERY_REASON, "#/ai/w-capped")
    gaps = """[...document.querySelectorAll('.shares dd')].map((each) => {
        const [hours, share] = [each.firstChild, each.querySelector('.under').firstChild].map((text) => {
            const range = document.createRange();
            range.selectNodeContents(text);
            return range.getBoundingClientRect();
        });
        return share.left - hours.right;
    })"""
    await page.until("document.querySelector('.shares dd')")
    assert min(await page.evaluate(gaps)) >= 4


@pytest.mark.parametrize("width", [700, 800, 1000, 1400])
async def test_columns_fill_the_table(visit, width):
    page = await visit(EVERY_REASON, width=width, height=740)
    right = "(element) => Math.round(element.getBoundingClientRect().right)"
    edges = await page.evaluate(f"[document.querySelector('.workloads'), {ROWS}[0].lastElementChild].map({right})")
    assert abs(edges[0] - edges[1]) <= 2
    narrow = "[...document.querySelectorAll('tbody .word')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
    wide = f"{ROWS}.every((tr) => tr.querySelector('td.state').clientWidth > 150)"
    assert await page.evaluate(f"[{narrow}.length, {wide}]") == [0, True]


async def test_phone_shows_a_card_with_name_state_replicas_and_load(visit, site):
    site.more = history(EVERY_REASON)
    page = await visit(EVERY_REASON, **PHONE)
    parts = [".name", ".word", "td.replicas .number", "td.load .number", ".why", "td.age"]
    visible = f"""{ROWS}.slice(0, 3).map((tr) => {parts}.every((name) => {{
        const [box, card] = [tr.querySelector(name), tr].map((each) => each.getBoundingClientRect());
        const across = box.width > 0 && box.left >= card.left && box.right <= card.right + 0.5;
        const down = box.top >= card.top && box.bottom <= card.bottom + 0.5;
        return tr.querySelector(name).checkVisibility() && across && down;
    }}))"""
    assert await page.evaluate(visible) == [True, True, True]


async def test_screen_reader_gets_a_table_and_named_controls(visit):
    page = await visit(EVERY_REASON)
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    roles = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
    assert ("table", "Workloads by severity") in roles
    columns = [name for role, name in roles if role == "columnheader"]
    assert columns == [
        "Workload", "State and reason · problems first", "Replicas", "Requests", "Needed", "GPU activity", "Data age",
    ]  # fmt: skip
    assert len([role for role, _ in roles if role == "rowheader"]) == len(EVERY_REASON)
    assert [name for role, name in roles if role == "button" and not name] == []
    assert [name for role, name in roles if role == "link" and not name] == []
    assert [name for role, name in roles if role in ("combobox", "searchbox") and not name] == []


async def test_nothing_moves_with_reduced_motion(visit):
    page = await visit(EVERY_REASON)
    slow = "parseFloat(getComputedStyle(each).transitionDuration) > 0"
    moving = f"[...document.querySelectorAll('*')].filter((each) => {slow}).length"
    assert await page.evaluate(moving) > 0
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert await page.evaluate(moving) == 0


async def test_page_runs_only_scripts_of_its_files(visit):
    page = await visit(EVERY_REASON)
    done = await page.evaluate(
        """new Promise((resolve) => {
            document.addEventListener('securitypolicyviolation', (event) => resolve(event.violatedDirective));
            const script = document.createElement('script');
            script.textContent = 'window.owned = 1';
            document.body.append(script);
        })"""
    )
    assert (done, await page.evaluate("window.owned ?? null")) == ("script-src-elem", None)
    assert len(json.dumps(page.errors)) > 2, "a breach must be an error on the console"


@pytest.mark.parametrize("width", [390, 900, 1280])
async def test_table_wider_than_the_screen_scrolls_inside_the_page(visit, site, width):
    columns = ["target", "of", "age", *(f"what number {index} is of" for index in range(8))]
    rows = [["http://10.11.12.13:9400/metrics", "engine", "1.7 s", *[None] * 8]]
    wide = {"step": "raw", "title": "Wide", "sentences": [], "table": {"columns": columns, "rows": rows}}
    site.more = one_of_everything(EVERY_REASON, chain=[wide])
    page = await visit(EVERY_REASON, "#/ai/w-frozen", width=width, height=740)
    await page.until("document.querySelector('.chain .scroll')")
    scrolls = "((each) => each.scrollWidth > each.clientWidth)(document.querySelector('.chain .scroll'))"
    assert await page.evaluate(f"[{scrolls}, document.documentElement.scrollWidth]") == [True, width]
