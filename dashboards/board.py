"""Builds a board from variables, sections of panels, and links to the other boards, on Grafana's grid of 24 columns.

Worked example: `Section("Now", [a, b])` with panels of 12 columns is a row with a title, and both panels side by side
below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from .panels import SOURCE, Panel

TAG, MAINTAINERS_TAG = "tidegate", "tidegate-maintainers"
OVERVIEW, WORKLOAD, GPU, ITSELF = (f"{TAG}-{name}" for name in ("overview", "workload", "gpu", "self"))
COLUMNS = 24
# The documentation that descriptions and alerts link to, unless a build or the chart names another copy.
DOCS = "https://github.com/tidegate/tidegate/blob/main/docs"
KEPT = "var-datasource=${datasource}&${__url_time_range}"
TO_WORKLOAD = (
    f"/d/{WORKLOAD}?var-namespace=${{__data.fields.namespace}}&var-workload=${{__data.fields.workload}}&{KEPT}"
)
TO_GPU = f"/d/{GPU}?var-node=${{__data.fields.node}}&{KEPT}"
TO_ITSELF = f"/d/{ITSELF}?{KEPT}"


class Section(NamedTuple):
    """A row of the board. panels: their widths fill whole lines. collapsed: shown, and their queries run, when it is
    opened.
    """

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


@dataclass(frozen=True)
class _Built(Builder[model.Panel]):
    """A panel with a position, for functions that take a builder."""

    panel: model.Panel

    def build(self) -> model.Panel:
        return self.panel


def datasource() -> boards.DatasourceVariable:
    return boards.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def variable(name: str, label: str, query: str, *, several: bool, description: str) -> boards.QueryVariable:
    """query: such as `label_values(METRIC, LABEL)`. several: allows more than one value, and All."""
    built = (
        boards.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(SOURCE)
        .query(query)
        .definition(query)
    )
    built = built.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.NATURAL_ASC)
    if not several:
        return built
    everything = model.VariableOption(text="All", value="$__all", selected=True)
    return built.multi(True).include_all(True).all_value(".*").current(everything)


def reasons_as_annotations(expr: str, colour: str) -> boards.AnnotationQuery:
    """A mark at each begin of a reason. expr: above 0 for a minute from then on."""
    built = boards.AnnotationQuery().name("Changes of reason").datasource(SOURCE).enable(True).icon_color(colour)
    return (
        built.expr(expr)
        .step("1m")
        .title_format("{{reason}}")
        .text_format("{{namespace}}/{{workload}}")
        .tag_keys("reason")
    )


def board(
    uid: str, title: str, description: str,
    variables: Sequence[Builder[model.VariableModel]], sections: Sequence[Section],
    annotations: Sequence[boards.AnnotationQuery] = (), *, since: str = "now-6h", tag: str = TAG,
) -> model.Dashboard:  # fmt: skip
    """Panels are numbered in their order, so that links to them stay valid. tag: boards with TAG are in its menu."""
    built = (
        boards.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([tag])
        .editable()
        .time(since, "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            boards.DashboardLink("Tidegate")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
        )
    )
    for each in variables:
        built = built.with_variable(each)
    for marks in annotations:
        built = built.annotation(marks)
    number, y = 1, 0
    for section in sections:
        row = boards.Row(section.title).id(number).grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=y))
        placed, end = _placed(section, number + 1, y + 1)
        if section.collapsed:
            for panel in placed:
                row = row.with_panel(_Built(panel))
            built = built.with_row(row.collapsed(True))
        else:
            built = built.with_row(row)
            for panel in placed:
                built = built.with_panel(_Built(panel))
        number, y = number + 1 + len(placed), y + 1 if section.collapsed else end
    return built.build()


def with_links(description: str) -> str:
    """The description in Markdown, which Grafana shows as such: pages of the documentation and runbooks are links."""
    pages = re.sub(r"docs/([\w/-]+\.md)", rf"[docs/\1]({DOCS}/\1)", description)
    runbooks = f"{DOCS}/how-to/runbooks.md"
    return re.sub(r"\b(Tidegate[A-Z]\w+)", lambda alert: f"[{alert[1]}]({runbooks}#{alert[1].lower()})", pages)


def _placed(section: Section, number: int, y: int) -> tuple[list[model.Panel], int]:
    """The panels of a section in lines from `y` on, numbered from `number`, and the first line after them. Raises
    ValueError if they do not fill their lines.
    """
    placed: list[model.Panel] = []
    x = tallest = 0
    for panel in (each.build() for each in section.panels):
        position = panel.grid_pos
        if position is None or x + position.w > COLUMNS:
            raise ValueError(f"{section.title}: {panel.title}: does not fit into the line of panels")
        position.x, position.y, panel.id_val = x, y, number + len(placed)
        panel.description = with_links(panel.description or "")
        placed.append(panel)
        x, tallest = x + position.w, max(tallest, position.h)
        if x == COLUMNS:
            x, y, tallest = 0, y + tallest, 0
    if x:
        raise ValueError(f"{section.title}: the last line of panels is {x} columns wide, not {COLUMNS}")
    return placed, y
