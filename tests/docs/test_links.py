"""Every link between pages has a target, and every page is reachable."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.docs.pages import PAGES, ROOT, anchors, links, prose, text_of

# Wrapped at 120: a word longer than that is allowed, half a sentence is not.
LARGEST = 130
# Generated from docstrings, one line each.
GENERATED = {Path(f"docs/reference/{name}.md") for name in ("configuration", "metrics", "rules/README")}


@cache
def anchors_of(target):
    return anchors(target.read_text(encoding="utf-8"))


def dead(page):
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = ROOT / page if not parts.path else (ROOT / page).parent / unquote(parts.path)
        leads = target.exists() and (
            not parts.fragment or target.suffix != ".md" or parts.fragment in anchors_of(target)
        )
        if not leads:
            yield link


def test_every_link_leads_to_a_file_and_to_a_heading_in_it():
    assert {page: links for page in PAGES if (links := list(dead(page)))} == {}


def test_heading_has_githubs_anchor():
    text = '# A `word`, twice\n## GPU 100 %, but not\n## Twice\n## Twice\n<a id="own"></a>\n```\n# no heading\n```\n'

    assert anchors(text) == {"a-word-twice", "gpu-100--but-not", "twice", "twice-1", "own"}


def test_every_page_is_reachable_from_the_readme():
    reached, new = set(), {Path("README.md")}
    while new:
        reached |= new
        found = {
            ((ROOT / page).parent / urlsplit(link).path).resolve().relative_to(ROOT)
            for page in new
            for link in links(page)
            if not urlsplit(link).scheme and urlsplit(link).path
        }
        new = {page for page in found if page in PAGES} - reached

    assert sorted(map(str, set(PAGES) - reached)) == []


def test_map_of_the_documents_names_every_page():
    named = {urlsplit(link).path for link in links("docs/README.md")}
    folders = ("tutorials", "how-to", "reference", "explanation")
    pages_of_folders = {f"{folder}/{page.name}" for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")}

    assert sorted(pages_of_folders - named) == []


def test_prose_is_wrapped():
    """A table row is one line of any length; text that cannot be broken may have a long line."""
    assert {page: lines for page in sorted({*PAGES} - GENERATED) if (lines := long_lines(page))} == {}


def long_lines(page):
    text = re.sub(r"<!--.*?-->", "", prose(page), flags=re.DOTALL)
    lines = re.sub(r"\]\([^)]*\)|<http[^>]*>", "", text).splitlines()  # link targets may be long
    return [line for line in lines if len(line) > LARGEST and line[0] not in "|!"]


def test_pages_are_found():
    assert {"README.md", "docs/README.md", "deploy/chart/README.md", "docs/how-to/engines/vllm.md"} <= set(
        map(str, PAGES)
    )
    assert all(text_of(page).startswith("# ") for page in PAGES)
