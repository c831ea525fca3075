"""docs/reference/sources.md says of every kind what the catalog does."""

import re
from pathlib import Path

from exporter.catalog import GPU_KINDS, KINDS, families
from exporter.catalog.own import EXPORT
from exporter.model import Quantity

Q = Quantity

PAGE = Path(__file__).parents[3] / "docs/reference/sources.md"
ROW = re.compile(r"^\| `(\w+)` \| (\d+) `([^`]+)` \| (\w+) \| (.*?) \| ?(.*?) ?\|$", re.MULTILINE)
ROWS = {name: (int(port), path, at_zero, says) for name, port, path, at_zero, says, _ in ROW.findall(PAGE.read_text())}


def test_every_kind_has_its_row_and_no_row_is_of_no_kind():
    assert set(KINDS) - {EXPORT.name} == set(ROWS)


def test_ports_paths_and_what_is_seen_at_zero_are_the_catalogs():
    said = {name: row[:3] for name, row in ROWS.items()}
    assert {name: (KINDS[name].port, KINDS[name].path, KINDS[name].at_zero) for name in ROWS} == said


def test_what_a_kind_says_is_what_its_table_reads():
    """By words: a kind whose table has no such row must not promise it, and the other way round."""
    words = {
        "waiting": Q.REQUESTS_WAITING,
        "running": Q.REQUESTS_RUNNING,
        "held": Q.REQUESTS_HELD,
        "finished": Q.REQUESTS_FINISHED,
        "KV cache": Q.KV_CACHE_USED,
        "utilization": Q.GPU_UTILIZATION,
    }
    for name, (_, _, _, says) in ROWS.items():
        if name in ("dcgm", "epp"):  # no table; sums made of averages
            continue
        columns = {row.column for row in KINDS[name].rows}
        bare = re.sub(r"\([^)]*\)", "", says)
        assert {word for word, quantity in words.items() if quantity in columns} == {
            word for word in words if re.search(rf"\b{word}\b", bare)
        }, name


def test_only_what_lives_at_zero_is_said_to_see_there():
    assert {name for name in KINDS if KINDS[name].at_zero == "refused"} == {"envoy", "litellm", "dynamo", "smg"}
    assert {name for name in KINDS if KINDS[name].at_zero == "counted"} == {"production_stack"}
    assert not {name for name in GPU_KINDS if KINDS[name].at_zero != "nothing"}
    assert all(families(name) for name in KINDS)
