"""The committed boards and their panels."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "dashboards/grafana"
BOARDS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(GRAFANA.glob("*.json"))}


def panels_of(board):
    """Every panel of a board, without the section titles."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", ())


def queries_of(boards):
    """(name, expression) of every query, annotations among them."""
    for uid, board in boards.items():
        for panel in panels_of(board):
            for target in panel["targets"]:
                yield f"{uid}-{panel['title']}-{target['refId']}", target["expr"]
        for each in board["annotations"].get("list", ()):
            yield f"{uid}-annotation-{each['name']}", each["expr"]
