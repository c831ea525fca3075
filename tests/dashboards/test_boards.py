"""The boards as generated now: unknown values are gaps, each panel has instructions, and links lead somewhere."""

import re
import subprocess
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from scaler.explain.outcome_inputs import OutcomeCode
from scaler.model import Reason
from tests.dashboards.built import BOARDS, GRAFANA, ROOT, panels_of, queries_of

ALERTS = yaml.safe_load((ROOT / "dashboards/alerts.yaml").read_text(encoding="utf-8"))
UIDS = {"tidegate-overview", "tidegate-workload", "tidegate-gpu", "tidegate-self"}
PANELS = [(f"{uid}-{panel['title']}", panel) for uid, board in BOARDS.items() for panel in panels_of(board)]
TITLES = {
    f"{board['title'].split(' / ')[1]}: {panel['title']}" for board in BOARDS.values() for panel in panels_of(board)
}
# Grafana's variables for the values of a link.
BUILT_IN = {"__url_time_range"}


def test_committed_boards_are_the_generated_ones(grafana_build):
    stale = [
        str(path.relative_to(ROOT)) for path, text in grafana_build.files().items() if path.read_text("utf-8") != text
    ]
    assert stale == [], "run python -m dashboards.build"


def test_no_other_file_is_among_the_boards(grafana_build):
    generated = {path for path in grafana_build.files() if path.suffix == ".json"}
    assert {path for folder in {each.parent for each in generated} for path in folder.iterdir()} == generated


def test_boards_are_the_four_that_links_name():
    assert {board["uid"] for board in BOARDS.values()} == set(BOARDS) == UIDS


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_panels_do_not_overlap(uid):
    board = BOARDS[uid]["panels"]
    # An opened section moves the rest of the board down.
    for together in (board, *(row["panels"] for row in board if row.get("collapsed"))):
        occupied = {}
        for panel in together:
            position = panel["gridPos"]
            assert position["x"] + position["w"] <= 24
            for x in range(position["x"], position["x"] + position["w"]):
                for y in range(position["y"], position["y"] + position["h"]):
                    assert (x, y) not in occupied, f"{panel['title']} overlaps {occupied[x, y]}"
                    occupied[x, y] = panel["title"]


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_panels_have_unique_names_and_numbers(uid):
    everything = [each for panel in BOARDS[uid]["panels"] for each in (panel, *panel.get("panels", ()))]
    titles = [panel["title"] for panel in everything if panel["type"] != "row"]
    sections = [panel["title"] for panel in everything if panel["type"] == "row"]
    assert sorted(set(titles)) == sorted(titles)
    assert sorted(set(sections)) == sorted(sections)
    assert [panel["id"] for panel in everything] == list(range(1, len(everything) + 1))


def test_every_panel_has_a_unit_and_a_description_with_instructions():
    for title, panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"], title
        description = panel["description"]
        assert description.endswith("."), title
        assert len(re.findall(r"[.:] |\.$", description)) > 1, f"{title}: a description and an instruction"


def test_unknown_value_is_a_gap_and_never_a_zero():
    for title, panel in PANELS:
        defaults = panel["fieldConfig"]["defaults"]
        custom = defaults.get("custom", {})
        assert custom.get("spanNulls", False) is False, title
        assert "nullValueMode" not in str(panel), title
        # In a table, Grafana shows noValue in each empty cell.
        assert defaults.get("noValue") == ("unknown" if panel["type"] == "stat" else None), title
        if panel["type"] == "stat":
            # Over a range Grafana would show the last value that is not null as the present one.
            assert [target["instant"] for target in panel["targets"]] == [True], title
        if panel["type"] == "timeseries":
            assert [target["range"] for target in panel["targets"]] == [True] * len(panel["targets"]), title


def test_no_query_invents_a_zero():
    for name, expr in queries_of(BOARDS):
        assert "vector(" not in expr, name
        assert "absent" not in expr, name
        # "None of those that exist": the value is known only if others are.
        assert re.sub(r"or 0 \* count\(", "", expr).count("or 0") == 0, name


def test_every_query_counts_each_workload_once_for_any_number_of_replicas():
    """Only the leader exposes accounting metrics: each has one series, and a sum of them is correct."""
    pattern = r"(\w+)(?: by \(([^)]*)\))? \((?:(?:rate|increase|changes)\()?(tidegate_\w+)\{namespace"
    for name, expr in queries_of(BOARDS):
        for over, by, metric in re.findall(pattern, expr):
            if metric == "tidegate_workload_gpus" or metric.endswith("_total"):
                assert over in {"sum", "max"}, name
            else:
                assert over in {"max", "min", "group"}, name
                assert "workload" in by or "name" in by, name


def test_prometheus_parses_every_query(debian_tool, tmp_path):
    filled = [re.sub(r"\$\w+", "x", re.sub(r"\$__\w+", "5m", expr)) for _, expr in queries_of(BOARDS)]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(filled)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    done = subprocess.run(
        [debian_tool("promtool", "prometheus"), "check", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_every_variable_of_a_query_or_a_link_exists_on_the_board(uid):
    board = BOARDS[uid]
    having = {each["name"] for each in board["templating"]["list"]}
    used = {name for panel in panels_of(board) for name in re.findall(r"\$\{?(\w+)\}?", str(panel["targets"]))}
    assert {name for name in used if not name.startswith("__")} - having == set()
    assert having - used == set()


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_every_query_uses_the_selected_data_source(uid):
    board, chosen = BOARDS[uid], {"type": "prometheus", "uid": "${datasource}"}
    sources = [panel["datasource"] for panel in panels_of(board)]
    sources += [target["datasource"] for panel in panels_of(board) for target in panel["targets"]]
    sources += [each["datasource"] for each in board["annotations"].get("list", ())]
    sources += [each["datasource"] for each in board["templating"]["list"] if each["type"] == "query"]
    assert [each for each in sources if each != chosen] == []
    assert [each["query"] for each in board["templating"]["list"] if each["type"] == "datasource"] == ["prometheus"]


def links():
    """(board, panel, url, columns) of each data link."""
    return [
        pytest.param(uid, panel, link["url"], id=f"{uid}-{panel['title']}-{override['matcher']['options']}")
        for uid, board in BOARDS.items()
        for panel in panels_of(board)
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "links"
        for link in each["value"]
    ]


@pytest.mark.parametrize(("uid", "panel", "url"), links())
def test_link_leads_to_a_board_with_existing_variables(uid, panel, url):
    parts = urlsplit(url)
    board = BOARDS[parts.path.removeprefix("/d/")]
    having = {each["name"] for each in board["templating"]["list"]}
    assert {key.removeprefix("var-") for key in parse_qs(parts.query)} <= having
    variables = set(re.findall(r"\$\{(\w+(?:\.\w+)*)\}", url))
    labels = {
        label
        for target in panel["targets"]
        for by in re.findall(r"by \(([^)]*)\)", target["expr"])
        for label in by.split(", ")
    }
    for word in variables - BUILT_IN:
        field = word.removeprefix("__data.fields.")
        assert field in labels if field != word else word in {v["name"] for v in BOARDS[uid]["templating"]["list"]}


def test_boards_link_to_each_other_with_time_and_variables():
    for board in BOARDS.values():
        (link,) = board["links"]
        assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
            "dashboards",
            ["tidegate"],
            True,
            True,
        )
        assert board["tags"] == ["tidegate-maintainers" if board["uid"] == "tidegate-self" else "tidegate"]


def test_row_that_not_everybody_needs_is_collapsed():
    rows = [panel for board in BOARDS.values() for panel in board["panels"] if panel["type"] == "row"]
    assert {row["title"] for row in rows if row["collapsed"]} >= {
        "MIG", "Shared GPUs", "Power and heat", "Observed workloads", "Observed: what acting would change"
    }  # fmt: skip


@pytest.mark.parametrize("panel", [panel for _, panel in PANELS if panel["type"] == "table"], ids=lambda p: p["title"])
def test_described_column_exists(panel):
    titles = {target["legendFormat"] for target in panel["targets"]}
    labels = {
        label
        for target in panel["targets"]
        for by in re.findall(r"by \(([^)]*)\)", target["expr"])
        for label in by.split(", ")
    }
    described = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    assert described - titles - labels == set()
    for each in panel["options"].get("sortBy", ()):
        assert each["displayName"] in titles


def test_colour_belongs_to_a_series_of_the_panel():
    """A renamed legend would lose its colour silently."""
    values = {str(word) for variables in (Reason, OutcomeCode) for word in variables} | {
        "serving", "idle_warm", "loading", "pending", "asleep", "unknown", "exclusive", "mig", "process", "device",
        "no pod", "none", "engine", "utilisation", "mixed", "prompt", "generation", "more", "fewer", "0.5", "0.9",
        "pods", "gateway", "gpus", "error", "warning",
    }  # fmt: skip
    for board in BOARDS.values():
        for panel in panels_of(board):
            if panel["type"] != "timeseries":
                continue
            legends = {target["legendFormat"] for target in panel["targets"]}
            named = {
                o["matcher"]["options"] for o in panel["fieldConfig"]["overrides"] if o["matcher"]["id"] == "byName"
            }
            assert named - legends - values == set(), panel["title"]


def test_timeline_has_a_name_and_a_colour_for_every_reason_and_no_other():
    (timeline,) = [
        panel
        for panel in panels_of(BOARDS["tidegate-workload"])
        if panel["type"] == "state-timeline" and panel["title"] == "Reason over time"
    ]
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    (target,) = timeline["targets"]
    coded = {code or "1": reason for reason, code in re.findall(r'reason="(\w+)"\}\)(?: \* (\d+))?', target["expr"])}
    assert {code: each["text"] for code, each in mapping["options"].items()} == coded
    assert set(coded.values()) == {str(reason) for reason in Reason}
    colours = [each["color"] for each in mapping["options"].values()]
    assert len(set(colours)) == len(colours)


def test_every_controller_outcome_is_on_the_timeline():
    (timeline,) = [
        each for each in panels_of(BOARDS["tidegate-workload"]) if "controller_outcome" in str(each["targets"])
    ]
    placed = [code for t in timeline["targets"] for code in re.search(r'code=~"([^"]+)"', t["expr"])[1].split("|")]
    assert sorted(placed) == sorted(map(str, OutcomeCode))
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    assert set(mapping["options"]) == {re.match(r"\d+", target["expr"])[0] for target in timeline["targets"]}


def test_every_alert_is_named_by_a_panel_with_its_metrics():
    named = {
        name
        for board in BOARDS.values()
        for panel in panels_of(board)
        for name in re.findall(r"Tidegate[A-Z]\w+", panel["description"])
    }
    assert named == {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}


def test_every_runbook_names_a_board():
    text = (ROOT / "docs/how-to/runbooks.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"\*\*See:\*\* ((?:\[[^\]]+\]\(dashboards\.md#[\w-]+\)(?:,\s)?)+)", section)
        assert len(found) == 1, section.splitlines()[0]
        assert set(re.findall(r"\[([^\]]+)\]", found[0])) <= TITLES


def test_every_question_in_the_docs_leads_to_a_panel():
    text = (ROOT / "docs/how-to/dashboards.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\| [^|]+\? \| ([^|]+) \|$", text, re.MULTILINE)
    assert len(asked) > 10
    assert set(asked) - TITLES == set()


def test_board_is_small_enough_for_a_config_map():
    """1 MiB is Kubernetes' limit; `kubectl apply` stores the applied object in an annotation of 256 KiB."""
    assert {file.name for file in GRAFANA.iterdir() if file.stat().st_size > 200_000} == set()
