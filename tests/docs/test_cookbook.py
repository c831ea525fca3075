"""The recipes name the catalog's ports, paths and defaults."""

import re

import pytest
import yaml

from exporter.catalog import GPU_KINDS, KINDS
from tests.docs.pages import ROOT, blocks, prose, text_of

PAGES = sorted(
    path.relative_to(ROOT) for path in (ROOT / "docs/how-to/engines").glob("*.md") if path.name != "README.md"
)
ROW = re.compile(r"\| \[[\w-]+\.md\]\(([\w-]+\.md)\):[^|]*\|(.*)\|$", re.MULTILINE)
ROWS = dict(ROW.findall(text_of("docs/how-to/engines/README.md")))
READ_FROM = re.compile(r"`:(\d+)(/[\w/.-]*)`")
KEY = re.compile(r"`engine: (\w+)`")


def engines(page):
    """The engines of a page's recipes and sentences, except those with another port or path in the recipe."""
    yield from (name for name in KEY.findall(prose(page)) if name in KINDS)
    for block in blocks(page):
        for each in yaml.safe_load_all(block.text) if block.language == "yaml" else ():
            for trigger in each.get("spec", {}).get("triggers", []) if isinstance(each, dict) else ():
                metadata = trigger["metadata"]
                if "engine" in metadata and not {"port", "path"} & set(metadata):
                    yield metadata["engine"]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_table_has_the_page_and_the_default_of_its_engines(page):
    numbers = set(re.findall(r"\d+", ROWS[page.name]))
    kinds = [KINDS[name] for name in engines(page)]
    sized_by_work = [kind for kind in kinds if not (kind.sized_by_slo or kind.times_requests)]
    defaults = {f"{kind.work:g}" for kind in sized_by_work if kind.work is not None}

    assert not numbers or defaults <= numbers


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_described_path_and_port_are_the_catalogs(page):
    usual = {(str(KINDS[name].port), KINDS[name].path) for name in engines(page)}

    assert set(READ_FROM.findall(prose(page))) <= usual


def test_every_engine_of_the_catalog_has_a_recipe():
    named = {name for page in PAGES for name in engines(page)}
    spoken = {name for name in KINDS if any(f"engine: {name}" in text_of(page) for page in PAGES)}
    exceptions = {"tidegate"}  # the metrics of an export work with any engine
    engine = {
        name
        for name, kind in KINDS.items()
        if kind.at_zero == "nothing" and not kind.repeats_engines and name not in exceptions | GPU_KINDS
    }

    assert sorted(engine - named - spoken) == []
