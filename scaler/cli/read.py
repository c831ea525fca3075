"""What `tidegate read` shows to people: one page's description as tables, and a verdict in one line.

Knows: the document of `exporter.agent.view.describe` and how wide a terminal is. Refuses to know pages, kinds and
sources:
what the document does not say is shown as "–", never as 0. Names come from other people's pages, so nothing of them is
taken as markup or reaches the terminal as a control character. On a terminal cells are folded to its width; in a pipe
every row is one line, for grep.

Worked example: the document of `vllm:num_requests_waiting{model_name="m"} 3` is shown as

    vllm  page.prom

      queue   waiting   running   KV cache   finished
      m             3         –          –          –

    One queue: 3 requests waiting; what runs is not said.
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

MOST_DROPPED = 20  # a page that is no page at all is explained by its first lines; JSON has the first thousand
SHORTEST_ID = 12  # "GPU-" and the eight digits people quote


def read_tables(document: Row, source: str, console: Console | None = None) -> None:
    """Print the document of one page; `source` is where it came from."""
    out = terminal.console(console)
    queues, gpus, dropped = document["queues"], document["gpus"], document["dropped"]
    empty = not queues and not gpus
    kind = "no kind found" if empty and document["kind"] == "auto" else document["kind"]
    _say(
        out,
        Text.assemble((plain(kind), HEAD), ("  " + (plain(source) if source != "-" else "standard input"), DIM)),
    )
    for table in (_queues(queues), _gpus(gpus), _dropped(dropped)):
        if table.row_count:
            out.print()
            out.print(table)
    out.print()
    for style, line in verdict(document):
        _say(out, Text(line, style))


def verdict(document: Row) -> list[tuple[str, str]]:
    """(style, sentence): first what the page says as a whole, then what a person may want to change."""
    queues, gpus = document["queues"], document["gpus"]
    if not queues and not gpus:
        return _nothing(document)
    said = [part for part in (_of_queues(queues), _of_gpus(gpus)) if part]
    advice = [*_advice_on_queues(queues), *_advice_on_gpus(document["kind"], gpus)]
    return [(WARN if advice else GOOD, " ".join(said)), *((DIM, line) for line in advice)]


def _nothing(document: Row) -> list[tuple[str, str]]:
    if document["dropped"] and document["kind"] == "auto":
        return [
            (WARN, "No line of this page is a sample."),
            (DIM, "Is this the address of a /metrics page? A login page or an error in HTML looks like this."),
        ]
    if document["kind"] == "auto":
        return [
            (WARN, "The page is empty."),
            (DIM, "An exporter that reloads answers so, and an engine before its first request: ask again."),
        ]
    return [
        (WARN, "Nothing on this page is a queue or a GPU."),
        (DIM, "An engine that has just started answers so; if it stays, look at --kind."),
    ]


def _of_queues(queues: Sequence[Row]) -> str:
    if not queues:
        return ""
    waiting, running = _sum(queues, "waiting"), _sum(queues, "running")
    head = "One queue:" if len(queues) == 1 else f"{len(queues)} queues:"
    if waiting is None and running is None:
        return f"{head} neither what waits nor what runs is said."
    if waiting is None:
        return f"{head} {_requests(running)} running; what waits is not said."
    if running is None:
        return f"{head} {_requests(waiting)} waiting; what runs is not said."
    return f"{head} {_requests(waiting)} waiting, {_count(running)} running."


def _of_gpus(gpus: Sequence[Row]) -> str:
    if not gpus:
        return ""
    named = sum(1 for gpu in gpus if gpu["pods"])
    if len(gpus) == 1:
        return f"One GPU, {'with' if named else 'without'} a pod's name."
    return f"{len(gpus)} GPUs, {named or 'none'} with a pod's name."


def _advice_on_queues(queues: Sequence[Row]) -> list[str]:
    silent = [queue["name"] for queue in queues if queue["waiting"] is None and queue["running"] is None]
    return [f"Nothing can be sized by {plain(', '.join(silent))}: unknown is not an empty queue."] if silent else []


def _advice_on_gpus(kind: str, gpus: Sequence[Row]) -> list[str]:
    advice = []
    if kind == "dcgm" and not any(gpu["pods"] for gpu in gpus):
        advice.append("Whose they are is not said: dcgm-exporter needs DCGM_EXPORTER_KUBERNETES=true.")
    if gpus and all(gpu["engine_active"] is None and gpu["utilization"] is None for gpu in gpus):
        advice.append("Neither engine activity nor utilization: whether they are idle cannot be known.")
    elif kind == "dcgm" and all(gpu["engine_active"] is None for gpu in gpus):
        advice.append("No DCGM_FI_PROF_GR_ENGINE_ACTIVE: utilization proves idleness and sizes nobody.")
    if any(gpu["attribution"] == "device" for gpu in gpus):
        advice.append("device: shared, and nobody's share is known. It neither sizes a workload nor keeps it awake.")
    return advice


def _queues(queues: Sequence[Row]) -> Table:
    table = _table()
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
    """A model's name that all share stands in the head, once."""
    models = {gpu["model"] for gpu in gpus}
    lone = models.pop() if len(models) == 1 else None
    table = _table()
    table.add_column(Text(_model(lone)) if lone else "GPU", no_wrap=True)
    if models:
        table.add_column("model", overflow="fold")
    for name in ("GiB used", "of", "engine", "util", "watts"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("whose", overflow="fold")
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
            _whose(gpu),
        )
    return table


def _dropped(dropped: Sequence[Row]) -> Table:
    table = _table()
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("not believed, because", overflow="fold")
    for entry in dropped[:MOST_DROPPED]:
        table.add_row(str(entry["line"]), Text(plain(entry["reason"])))
    more = len(dropped) - MOST_DROPPED
    if more > 0:
        table.add_row("…", Text(f"and at least {more:,} more: -o json lists them", DIM))
    return table


def _table() -> Table:
    return bare_table()


def _identity(gpu: Row, digits: int) -> Text:
    text = Text(plain(gpu["uuid"])[:digits])
    if gpu["instance"] is not None:
        profile = f" {gpu['profile']}" if gpu["profile"] else ""
        text.append(f" #{plain(gpu['instance'])}{plain(profile)}", DIM)
    return text


def _digits(uuids: set[str]) -> int:
    """How much of a UUID it takes to tell these GPUs apart."""
    longest = max((len(uuid) for uuid in uuids), default=0)
    return next(
        (digits for digits in range(SHORTEST_ID, longest) if len({uuid[:digits] for uuid in uuids}) == len(uuids)),
        max(longest, SHORTEST_ID),
    )


def _whose(gpu: Row) -> Text:
    if not gpu["pods"]:
        return Text("nobody", DIM)
    text = Text(gpu["attribution"], WARN if gpu["attribution"] == "device" else GOOD)
    for pod in gpu["pods"]:
        text.append(f" {plain(pod['namespace'])}/{plain(pod['pod'])}", "default")
    return text


def _model(name: str | None) -> str:
    return UNKNOWN if name is None else plain(name).removeprefix("NVIDIA ")


def _ratio(value: float | None) -> str:
    # Some activity is not none: 0.006 % of an A100 is a process that polls.
    return "<1 %" if value is not None and 0.0 < value < 0.01 else _number(value, ".0%").replace("%", " %")  # noqa: PLR2004


def _gib(value: float | None) -> str:
    text = _number(None if value is None else value / 2**30, ",.1f")
    return "<0.1" if value and text == "0.0" else text


def _count(value: float | None) -> str:
    """Requests; an average times its pods need not be whole."""
    return _number(value, ",.1f" if value is not None and value % 1 else ",.0f")


def _requests(value: float | None) -> str:
    return f"{_count(value)} request{'' if value == 1 else 's'}"


def _number(value: float | None, spec: str) -> str:
    return UNKNOWN if value is None else format(value, spec)


def _sum(rows: Sequence[Row], name: str) -> float | None:
    """Unknown if any part is."""
    values: list[float | None] = [row[name] for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _say(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)
