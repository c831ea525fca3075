"""Prints what `tidegate read` finds on a metrics page: tables, and a verdict in one line.

Takes the document of `exporter.agent.view.describe`. Unknown values are shown as "–", never as 0. Names on a page are
untrusted: they are neither interpreted as markup nor printed with control characters. On a terminal, cells are folded
to its width; in a pipe every row is one line, for grep.

Worked example: the document of `vllm:num_requests_waiting{model_name="m"} 3` is shown as

    vllm  page.prom

      queue   waiting   running   KV cache   finished
      m             3         –          –          –

    One queue: 3 requests waiting; running requests unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.explain import terminal
from scaler.explain.terminal import DIM, GOOD, HEAD, UNKNOWN, WARN, bare_table, plain

Row: TypeAlias = Mapping[str, Any]

MOST_DROPPED = 20  # the first lines explain a page that is not one; JSON has the first thousand
SHORTEST_ID = 12  # "GPU-" and eight digits


def read_tables(document: Row, source: str, console: Console | None = None) -> None:
    """source: URL or path of the page."""
    out = terminal.console(console)
    queues, gpus, dropped = document["queues"], document["gpus"], document["dropped"]
    empty = not queues and not gpus
    kind = "no kind found" if empty and document["kind"] == "auto" else document["kind"]
    _print(
        out, Text.assemble((plain(kind), HEAD), ("  " + (plain(source) if source != "-" else "standard input"), DIM))
    )
    for table in (_queues(queues), _gpus(gpus), _dropped(dropped)):
        if table.row_count:
            out.print()
            out.print(table)
    out.print()
    for style, line in verdict(document):
        _print(out, Text(line, style))


def verdict(document: Row) -> list[tuple[str, str]]:
    """(style, sentence): first the content of the page, then hints at what to change."""
    queues, gpus = document["queues"], document["gpus"]
    if not queues and not gpus:
        return _nothing(document)
    summary = [part for part in (_queues_sentence(queues), _gpus_sentence(gpus)) if part]
    advice = [*_advice_on_queues(queues), *_advice_on_gpus(document["kind"], gpus)]
    return [(WARN if advice else GOOD, " ".join(summary)), *((DIM, line) for line in advice)]


def _nothing(document: Row) -> list[tuple[str, str]]:
    if document["dropped"] and document["kind"] == "auto":
        return [
            (WARN, "No line of this page is a sample."),
            (DIM, "Is this the address of a /metrics page? It may be a login page or an HTML error page."),
        ]
    if document["kind"] == "auto":
        return [
            (WARN, "The page is empty."),
            (DIM, "Exporters that reload and engines before their first request do this: try again."),
        ]
    return [
        (WARN, "This page has neither a queue nor a GPU."),
        (DIM, "Engines that have just started do this. If it persists, check --kind."),
    ]


def _queues_sentence(queues: Sequence[Row]) -> str:
    if not queues:
        return ""
    waiting, running = _sum(queues, "waiting"), _sum(queues, "running")
    head = "One queue:" if len(queues) == 1 else f"{len(queues)} queues:"
    if waiting is None and running is None:
        return f"{head} waiting and running requests unknown."
    if waiting is None:
        return f"{head} {_requests(running)} running; waiting requests unknown."
    if running is None:
        return f"{head} {_requests(waiting)} waiting; running requests unknown."
    return f"{head} {_requests(waiting)} waiting, {_count(running)} running."


def _gpus_sentence(gpus: Sequence[Row]) -> str:
    if not gpus:
        return ""
    named = sum(1 for gpu in gpus if gpu["pods"])
    if len(gpus) == 1:
        return f"One GPU, {'with' if named else 'without'} a pod's name."
    return f"{len(gpus)} GPUs, {named or 'none'} with a pod's name."


def _advice_on_queues(queues: Sequence[Row]) -> list[str]:
    silent = [queue["name"] for queue in queues if queue["waiting"] is None and queue["running"] is None]
    return [f"{plain(', '.join(silent))} cannot size a workload: unknown is not an empty queue."] if silent else []


def _advice_on_gpus(kind: str, gpus: Sequence[Row]) -> list[str]:
    advice = []
    if kind == "dcgm" and not any(gpu["pods"] for gpu in gpus):
        advice.append("No GPU has a pod's name: dcgm-exporter needs DCGM_EXPORTER_KUBERNETES=true.")
    if gpus and all(gpu["engine_active"] is None and gpu["utilization"] is None for gpu in gpus):
        advice.append("Neither engine activity nor utilization: their idleness is unknown.")
    elif kind == "dcgm" and all(gpu["engine_active"] is None for gpu in gpus):
        advice.append("No DCGM_FI_PROF_GR_ENGINE_ACTIVE: utilization proves idleness but sizes no workload.")
    if any(gpu["attribution"] == "device" for gpu in gpus):
        advice.append("device: shared, shares unknown. It neither sizes a workload nor keeps it awake.")
    return advice


def _queues(queues: Sequence[Row]) -> Table:
    table = bare_table()
    table.add_column("queue", overflow="fold")
    for name in ("waiting", "running", "KV cache", "finished"):
        table.add_column(name, justify="right", no_wrap=True)
    for queue in queues:
        table.add_row(
            Text(plain(queue["name"])),
            _count(queue["waiting"]),
            _count(queue["running"]),
            _ratio(queue["kv_cache_used"]),
            _count(queue["finished_total"]),
        )
    return table


def _gpus(gpus: Sequence[Row]) -> Table:
    """A model that all GPUs share is in the title, once."""
    models = {gpu["model"] for gpu in gpus}
    common = models.pop() if len(models) == 1 else None
    table = bare_table()
    table.add_column(Text(_model(common)) if common else "GPU", no_wrap=True)
    if models:
        table.add_column("model", overflow="fold")
    for name in ("GiB used", "of", "engine", "util", "watts"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("pods", overflow="fold")
    digits = _digits({gpu["uuid"] for gpu in gpus})
    for gpu in gpus:
        table.add_row(
            _identity(gpu, digits),
            *([Text(_model(gpu["model"]))] if models else []),
            _gib(gpu["memory_used_bytes"]),
            _gib(gpu["memory_total_bytes"]),
            _ratio(gpu["engine_active"]),
            _ratio(gpu["utilization"]),
            _number(gpu["power_watts"], ",.0f"),
            _pods(gpu),
        )
    return table


def _dropped(dropped: Sequence[Row]) -> Table:
    table = bare_table()
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("dropped because", overflow="fold")
    for entry in dropped[:MOST_DROPPED]:
        table.add_row(str(entry["line"]), Text(plain(entry["reason"])))
    more = len(dropped) - MOST_DROPPED
    if more > 0:
        table.add_row("…", Text(f"and at least {more:,} more: -o json lists them", DIM))
    return table


def _identity(gpu: Row, digits: int) -> Text:
    text = Text(plain(gpu["uuid"])[:digits])
    if gpu["instance"] is not None:
        profile = f" {gpu['profile']}" if gpu["profile"] else ""
        text.append(f" #{plain(gpu['instance'])}{plain(profile)}", DIM)
    return text


def _digits(uuids: set[str]) -> int:
    """Length of the shortest prefix that distinguishes these GPUs."""
    longest = max((len(uuid) for uuid in uuids), default=0)
    return next(
        (digits for digits in range(SHORTEST_ID, longest) if len({uuid[:digits] for uuid in uuids}) == len(uuids)),
        max(longest, SHORTEST_ID),
    )


def _pods(gpu: Row) -> Text:
    if not gpu["pods"]:
        return Text("none", DIM)
    text = Text(gpu["attribution"], WARN if gpu["attribution"] == "device" else GOOD)
    for pod in gpu["pods"]:
        text.append(f" {plain(pod['namespace'])}/{plain(pod['pod'])}", "default")
    return text


def _model(name: str | None) -> str:
    return UNKNOWN if name is None else plain(name).removeprefix("NVIDIA ")


def _ratio(value: float | None) -> str:
    # Little activity is not none: a polling process takes 0.006 % of an A100.
    return "<1 %" if value is not None and 0.0 < value < 0.01 else _number(value, ".0%").replace("%", " %")  # noqa: PLR2004


def _gib(value: float | None) -> str:
    text = _number(None if value is None else value / 2**30, ",.1f")
    return "<0.1" if value and text == "0.0" else text


def _count(value: float | None) -> str:
    """Requests; an average times its pods may be a fraction."""
    return _number(value, ",.1f" if value is not None and value % 1 else ",.0f")


def _requests(value: float | None) -> str:
    return f"{_count(value)} request{'' if value == 1 else 's'}"


def _number(value: float | None, spec: str) -> str:
    return UNKNOWN if value is None else format(value, spec)


def _sum(rows: Sequence[Row], name: str) -> float | None:
    """None if a part is unknown."""
    values: list[float | None] = [row[name] for row in rows]
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)
