"""docs/reference/sources.md agrees with the catalog."""

import re
from pathlib import Path

from exporter.catalog import GPU_KINDS, KINDS, families
from exporter.catalog.export import EXPORT
from exporter.model import Quantity

Q = Quantity

PAGE = Path(__file__).parents[3] / "docs/reference/sources.md"
ROW = re.compile(r"^\| `(\w+)` \| (\d+) `([^`]+)` \| (\w+) \| (.*?) \| ?(.*?) ?\|$", re.MULTILINE)
ROWS = {
    name: (int(port), path, at_zero, described)
    for name, port, path, at_zero, described, _ in ROW.findall(PAGE.read_text())
}


def test_every_kind_has_exactly_one_row():
    assert set(KINDS) - {EXPORT.name} == set(ROWS)


def test_documented_ports_paths_and_signals_at_zero_match_the_catalog():
    documented = {name: row[:3] for name, row in ROWS.items()}
    assert {name: (KINDS[name].port, KINDS[name].path, KINDS[name].at_zero) for name in ROWS} == documented


def test_documented_quantities_match_the_table():
    """Compares by terms: a kind documents a quantity exactly if its table has a row for it."""
    terms = {
        "waiting": Q.REQUESTS_WAITING,
        "running": Q.REQUESTS_RUNNING,
        "held": Q.REQUESTS_HELD,
        "finished": Q.REQUESTS_FINISHED,
        "KV cache": Q.KV_CACHE_USED,
        "utilization": Q.GPU_UTILIZATION,
    }
    for name, (_, _, _, described) in ROWS.items():
        if name in ("dcgm", "epp"):  # no table; sums computed from averages
            continue
        columns = {row.column for row in KINDS[name].rows}
        bare = re.sub(r"\([^)]*\)", "", described)
        assert {term for term, quantity in terms.items() if quantity in columns} == {
            term for term in terms if re.search(rf"\b{term}\b", bare)
        }, name


def test_only_kinds_that_exist_at_zero_show_requests_there():
    assert {name for name in KINDS if KINDS[name].at_zero == "refused"} == {"envoy", "litellm", "dynamo", "smg"}
    assert {name for name in KINDS if KINDS[name].at_zero == "counted"} == {"production_stack"}
    assert not {name for name in GPU_KINDS if KINDS[name].at_zero != "nothing"}
    assert all(families(name) for name in KINDS)
