"""Builds the few kinds of panels that all boards use, with grafana-foundation-sdk.

Common to all: an unknown value is a gap (nulls are neither joined nor filled in) or an empty cell, a stat without a
value is grey and shows "unknown" and not 0, a colour belongs to a name and not to a position in the legend, and every
panel has a unit and a description with what it shows and what to do.

Worked example: `graph("Requests", "Waiting requests. Rising: …", "short", [Query("sum(tidegate_requests_waiting)",
"waiting")])` is a panel of 12 columns and 8 rows with one query and the legend "waiting".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, statushistory, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as prometheus_model

Panel: TypeAlias = Builder[model.Panel]

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
UNKNOWN, GREY = "unknown", "#8E8E8E"
ROW_HEIGHT = 8
STAT_HEIGHT = 4
NARROWEST_PX = 75  # Grafana's own 150 pushes the last of twelve columns out of the panel


class Query(NamedTuple):
    """expr: PromQL. legend: of its series, with Grafana's `{{label}}`; in a table, the title of its column."""

    expr: str
    legend: str = ""


class Step(NamedTuple):
    """The colour from this value on."""

    value: float
    colour: str


class Absence(NamedTuple):
    """Why a stat may have no value. text: shown while `while_` has a series with the labels of its query."""

    text: str
    while_: str


class Column(NamedTuple):
    """A column of a table. name: of the label, or the legend of its query. colours: by text."""

    name: str
    unit: str | None = None
    link: tuple[str, str] | None = None  # title, url
    steps: Sequence[Step] = ()
    decimals: int | None = None
    colours: Mapping[str, str] | None = None


def steps(*above: Step, below: str = "green") -> boards.ThresholdsConfig:
    """Colours by value. below: colour of values less than the first step."""
    found = [model.Threshold(value=None, color=below), *(model.Threshold(each.value, each.colour) for each in above)]
    return boards.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def _targets(queries: Sequence[Query], *, instant: bool) -> list[prometheus.Dataquery]:
    found = []
    for number, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(_letter(number)).datasource(SOURCE)
        target = target.legend_format(query.legend or "__auto").editor_mode(prometheus_model.QueryEditorMode.CODE)
        found.append(target.instant() if instant else target.range())
    return found


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _legend(*, shown: bool = True) -> common_builders.VizLegendOptions:
    legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    return legend.placement(common.LegendPlacement.BOTTOM).show_legend(shown)


def _tooltip() -> common_builders.VizTooltipOptions:
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return tooltip.sort(common.SortOrder.DESCENDING)


def _fixed(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def stat_of(
    title: str, description: str, unit: str, query: Query, above: Sequence[Step] = (), *, below: str = "text",
    width: int = 4,
    names: Mapping[float, tuple[str, str]] | None = None, decimals: int | None = None, height: int = STAT_HEIGHT,
    absence: Absence | None = None,
) -> Panel:  # fmt: skip
    """One present number. names: texts and colours of values. absence: without one, no value is unknown.

    An absence is NaN, because a number would be a value, and two absences need two values.
    """
    special = {model.SpecialValueMatch.NULL: UNKNOWN}
    if absence is not None:
        query = query._replace(expr=f"{query.expr}\nor NaN * ({absence.while_})")
        special[model.SpecialValueMatch.NA_N] = absence.text
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(UNKNOWN)
        .height(height)
        .span(width)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["last"]).values(False))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE)
        .color_scheme(boards.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(steps(*above, below=below))
        .mappings([*_mappings(names or {}), *_grey(special)])
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    # Instant: over a range Grafana would show the last value long after it became unknown.
    for target in _targets([query], instant=True):
        panel = panel.with_target(target)
    return panel


def graph(
    title: str, description: str, unit: str, queries: Sequence[Query], *, width: int = 12, stacked: bool = False,
    colours: Mapping[str, str] | None = None, above: Sequence[Step] = (),
    top: float | None = None, bottom: float | None = 0.0, dashed: Sequence[str] = (), bold: Sequence[str] = (),
    decimals: int | None = None, height: int = ROW_HEIGHT, legend: bool = True,
) -> Panel:  # fmt: skip
    """Values over time. colours, dashed, bold: by legend. above: thresholds, drawn as lines. legend: False with too
    many series to read it; the tooltip has their names.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .height(height)
        .span(width)
        .line_width(1)
        .fill_opacity(60 if stacked else 0)
        .draw_style(common.GraphDrawStyle.LINE)
        .line_interpolation(common.LineInterpolation.STEP_AFTER if stacked else common.LineInterpolation.LINEAR)
        .show_points(common.VisibilityMode.AUTO)  # a value between two gaps has no line
        .span_nulls(False)
        .insert_nulls(False)
        .legend(_legend(shown=legend))
        .tooltip(_tooltip())
        .color_scheme(boards.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if above:
        panel = panel.thresholds(steps(*above, below="transparent")).thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if bottom is not None:
        panel = panel.min(bottom)
    if top is not None:
        panel = panel.max(top)
    if decimals is not None:
        panel = panel.decimals(decimals)
    for name, colour in (colours or {}).items():
        panel = panel.override_by_name(name, [_fixed(colour)])
    for name in dashed:
        style = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})
        panel = panel.override_by_regexp(name, [style])
    for name in bold:
        panel = panel.override_by_name(name, [model.DynamicConfigValue("custom.lineWidth", 3)])
    for target in _targets(queries, instant=False):
        panel = panel.with_target(target)
    return panel


def timeline(
    title: str, description: str, queries: Sequence[Query], names: Mapping[float, tuple[str, str]], *, width: int = 24,
    height: int = 5,
) -> Panel:  # fmt: skip
    """States over time: a bar for each series. names: text and colour of each value."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit("none")
        .height(height)
        .span(width)
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .span_nulls(False)
        .insert_nulls(False)
        .fill_opacity(80)
        .line_width(0)
        .row_height(0.9)
        .color_scheme(boards.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(steps(below="text"))  # no colour without a name
        .legend(_legend())
        .mappings(_mappings(names))
    )
    for target in _targets(queries, instant=False):
        panel = panel.with_target(target)
    return panel


def heatmap(
    title: str, description: str, unit: str, query: Query, colours: Sequence[Step], *, below: str, height: int = 10
) -> Panel:  # fmt: skip
    """A row for each series and a cell for each time, in the colour of its value; no value is no cell."""
    panel = (
        statushistory.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .height(height)
        .span(24)
        .per_page(25)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.9)
        .fill_opacity(80)
        .line_width(0)
        .color_scheme(boards.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(steps(*colours, below=below))
        .legend(_legend())
        .tooltip(_tooltip())
    )
    for target in _targets([query], instant=False):
        panel = panel.with_target(target)
    return panel


def rows(
    title: str, description: str, queries: Sequence[Query], columns: Sequence[Column], *, width: int = 12,
    height: int = ROW_HEIGHT, sort: str | None = None,
) -> Panel:  # fmt: skip
    """A table of present values: a row for each set of labels that the queries share, and `columns` in their order;
    other labels are hidden.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit("none")
        .height(height)
        .span(width)
        .filterable(False)
        .min_width(NARROWEST_PX)
    )
    if sort is not None:
        panel = panel.sort_by([common_builders.TableSortByFieldState().display_name(sort).desc(True)])
    for target in _targets(queries, instant=True):
        panel = panel.with_target(target.format(prometheus_model.PromQueryFormat.TABLE))
    several = len(queries) > 1
    values = {f"Value #{_letter(n)}" if several else "Value": query.legend for n, query in enumerate(queries)}
    order = {column.name: index for index, column in enumerate(columns)}
    titles = {key: name for key, name in values.items() if name}
    position = {name: index for index, name in enumerate(order)}
    if several:
        panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    organised = {
        # A query that only selects rows, or adds a label, has no legend and no column.
        "excludeByName": {"Time": True} | {key: True for key, name in values.items() if not name},
        "indexByName": {
            key: position[titles.get(key, key)] for key in (*titles, *position) if titles.get(key, key) in position
        },
        "renameByName": titles,
    }
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organised))
    for column in columns:
        properties = _column(column)
        if properties:
            panel = panel.override_by_name(column.name, properties)
    return panel


def _column(column: Column) -> list[model.DynamicConfigValue]:
    found: list[tuple[str, object]] = []
    if column.unit is not None:
        found.append(("unit", column.unit))
    if column.decimals is not None:
        found.append(("decimals", column.decimals))
    if column.link is not None:
        title, url = column.link
        found.append(("links", [{"title": title, "url": url}]))
    if column.steps:
        found.append(("thresholds", steps(*column.steps, below="transparent").build()))
        found.append(("custom.cellOptions", {"type": "color-text"}))
        found.append(("color", {"mode": "thresholds"}))
    if column.colours is not None:
        options = {text: {"text": text, "color": colour} for text, colour in column.colours.items()}
        found.append(("mappings", [{"type": "value", "options": options}]))
        found.append(("custom.cellOptions", {"type": "color-text"}))
    return [model.DynamicConfigValue(key, value) for key, value in found]


def _grey(special: Mapping[model.SpecialValueMatch, str]) -> list[model.SpecialValueMap]:
    """Without these, Grafana colours a missing value like the lowest one, which may be green."""
    return [
        model.SpecialValueMap(
            model.DashboardSpecialValueMapOptions(match, model.ValueMappingResult(text=text, color=GREY, index=index))
        )
        for index, (match, text) in enumerate(special.items(), start=100)
    ]


def _mappings(
    names: Mapping[float, tuple[str, str]],
) -> list[model.ValueMap | model.RangeMap | model.RegexMap | model.SpecialValueMap]:
    options = {
        f"{value:g}": model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(names.items())
    }
    return [model.ValueMap(options=options)] if options else []
