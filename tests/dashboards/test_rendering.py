"""Shows every panel with Grafana's own code (`@grafana/data`) and the data of real Prometheus servers, or none at all.

`make test-boards` installs the packages; without them, these tests are skipped.
"""

import json
import re
import subprocess
import time
from itertools import groupby
from pathlib import Path

import pytest

from tests.dashboards.built import BOARDS, panels_of
from tests.dashboards.conftest import wait_for
from tests.dashboards.test_queries import filled_in

GRAFANA = Path(__file__).with_name("grafana")
ESBUILD = GRAFANA / "node_modules/.bin/esbuild"
GREY = "#8E8E8E"
UNKNOWN = "unknown"
# Of a machine rather than of a person; "No data" is Grafana's text for a stat without one of its own.
FORBIDDEN = re.compile(r"\b(none|null|NaN|undefined|N/A|Infinity|No data)\b|\[object|Value #", re.IGNORECASE)
# Workloads of rare_metrics.py, each with another state.
WORKLOADS = ("chat", "held", "part", "dark", "lone", "seen", "jobs")
SCENES = ("nothing", "asleep", "awake", "unpriced", *WORKLOADS)
MONEY = {"Spent", "Spent on idle GPUs", "Saved against the maximum", "Saved against the peak"}


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    """A function that passes panels and their data to render.mjs."""
    if not ESBUILD.exists():
        pytest.skip("Grafana's packages are not installed: make test-boards (needs Node 18 and npm)")
    bundle = tmp_path_factory.mktemp("render") / "render.mjs"
    options = ["--bundle", "--platform=node", "--format=esm", "--main-fields=module,main", "--log-level=error"]
    subprocess.run([ESBUILD, GRAFANA / "render.mjs", *options, f"--outfile={bundle}"], check=True)

    def render(panels):
        given, out = (bundle.with_name(name) for name in ("given.json", "shown.json"))
        given.write_text(json.dumps(panels))
        done = subprocess.run(["node", bundle, given, out], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(out.read_text())

    return render


def answers(panel, prometheus, where, workload, at):
    """The data of each query as Grafana requests it: at `at`, or over the 5 minutes before it."""
    found = {}
    for target in panel["targets"]:
        query = filled_in(target["expr"], where, workload)
        if target["instant"]:
            found[target["refId"]] = prometheus.ask("query", query=query, time=at)
        else:
            found[target["refId"]] = prometheus.ask("query_range", query=query, start=at - 300, end=at, step=5)
    return found


@pytest.fixture(scope="module")
def shown(renderer, watched):
    """Rendered panels by scene and board: {scene: {uid: [panel with `title`, `cells`, …]}}."""
    demo, pages = watched["demo"], watched["pages"]

    def last(query):
        """The last second at which the demo has a value of the query; 0 if there is none yet."""
        found = demo.over_time(query)
        return found[0]["values"][-1][0] if found else 0.0

    awake, now = last("tidegate_replicas > 2"), time.time()
    wait_for(lambda: last('tidegate_reason{reason="asleep"}') > awake, "the demo's sleep")
    asleep = last('tidegate_reason{reason="asleep"}')

    def before_prices():
        """The last second at which the target has workloads and no price."""
        query = "count(tidegate_observed) unless count(tidegate_workload_gpu_hour)"
        return pages.over_time(query)[0]["values"][-1][0]

    def data(scene, panel):
        if scene == "nothing":
            return {}
        if scene in {"asleep", "awake"}:
            return answers(panel, demo, "demo", "chat", asleep if scene == "asleep" else awake)
        if scene == "unpriced":
            return answers(panel, pages, "pages", "chat", before_prices())
        return answers(panel, pages, "pages", scene, now)

    panels = [
        {"key": [scene, uid], "panel": panel, "answers": data(scene, panel)}
        for scene in SCENES
        for uid, board in BOARDS.items()
        if uid == "tidegate-workload" or scene not in WORKLOADS[1:]  # the others show all workloads
        for panel in panels_of(board)
    ]
    found = {}
    for (scene, uid), each in groupby(renderer(panels), lambda panel: panel["key"]):
        found.setdefault(scene, {})[uid] = list(each)
    return found


def stats(uid):
    return {panel["title"] for panel in panels_of(BOARDS[uid]) if panel["type"] == "stat"}


@pytest.mark.parametrize("scene", SCENES)
def test_no_panel_fails_or_has_an_unknown_property(shown, scene):
    panels = [panel for board in shown[scene].values() for panel in board]
    assert [(panel["title"], panel["error"], panel["unknown"]) for panel in panels if panel["error"]] == []
    assert [(panel["title"], panel["unknown"]) for panel in panels if panel["unknown"]] == []


@pytest.mark.parametrize("scene", SCENES)
def test_no_panel_shows_a_word_of_the_machine(shown, scene):
    words = {
        (uid, panel["title"], cell["at"], cell["text"])
        for uid, board in shown[scene].items()
        for panel in board
        for cell in panel["cells"]
        if FORBIDDEN.search(f"{cell['at']} {cell['text']} {cell['links']}")
    }
    assert words == set()


def test_stat_without_data_is_unknown_and_grey(shown):
    seen = {
        (uid, panel["title"]): (panel["cells"][0]["text"], panel["cells"][0]["color"])
        for uid, board in shown["nothing"].items()
        for panel in board
        if panel["title"] in stats(uid)
    }
    assert len(seen) > 20
    assert {name: how for name, how in seen.items() if how != (UNKNOWN, GREY)} == {}


@pytest.mark.parametrize("scene", ["asleep", "jobs"])
def test_healthy_sleeper_has_no_unknown_tile(shown, scene):
    tiles = {
        (uid, panel["title"]): panel["cells"][0]["text"]
        for uid in {"tidegate-overview", "tidegate-workload"} & set(shown[scene])
        for panel in shown[scene][uid]
        if panel["title"] in stats(uid)
    }
    assert len(tiles) > 10
    assert {name for name, text in tiles.items() if text == UNKNOWN} == set()


def amounts(shown, scene):
    """Text and colour of each amount of money on the boards of a scene."""
    return {
        (uid, panel["title"]): (panel["cells"][0]["text"], panel["cells"][0]["color"])
        for uid in ("tidegate-overview", "tidegate-workload")
        for panel in shown[scene][uid]
        if panel["title"] in MONEY
    }


def test_money_without_a_price_is_no_zero_and_grey(shown):
    found = amounts(shown, "unpriced")
    assert len(found) == 2 * len(MONEY)
    assert {name: how for name, how in found.items() if how != ("no price configured", GREY)} == {}


@pytest.mark.parametrize("scene", ["awake", "chat"])
def test_money_of_a_fleet_with_a_price_is_a_number(shown, scene):
    found = amounts(shown, scene)
    assert len(found) == 2 * len(MONEY)
    assert {name: how for name, how in found.items() if not re.fullmatch(r"[\d.]+( [KM])?", how[0])} == {}


def test_table_shows_rows_with_the_described_columns(shown):
    """In some scene each table has rows, and then its columns are in their order, without Grafana's own names."""
    tables = {
        (uid, panel["title"]): [o["matcher"]["options"] for o in panel["fieldConfig"]["overrides"]]
        for uid, board in BOARDS.items()
        for panel in panels_of(board)
        if panel["type"] == "table"
    }
    filled = set()
    for scene in SCENES:
        for uid, board in shown[scene].items():
            for panel in board:
                if (uid, panel["title"]) in tables and panel["cells"]:
                    filled.add((uid, panel["title"]))
                    columns = list(dict.fromkeys(cell["at"] for cell in panel["cells"]))
                    assert {"Time", "Value"} & set(columns) == set(), panel["title"]
    assert set(tables) - filled == set()
