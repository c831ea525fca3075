"""The pages of the documentation and their parts: links, headings, blocks, text in backticks.

It parses Markdown as GitHub renders it, independent of Tidegate. Worked example: `anchors("## The keys\n")` is
`{"the-keys"}`, the target of `[…](triggers.md#the-keys)`.
"""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# All documents for people; samples in fixtures are not among them.
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "deploy/**/*.md",
        "benchmarks/*.md",
        "dashboards/**/*.md",
        "tests/e2e/*.md",
    )
    for path in ROOT.glob(pattern)
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<words>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- ((?:(?!-->).)*) -->\s*\Z", re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)#* *$", re.MULTILINE)
_NAMED = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_TICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Block(NamedTuple):
    """A fenced block. note: the text of an HTML comment right before it; empty if there is none."""

    page: str
    line: int
    language: str
    text: str
    note: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page):
    text = text_of(page)
    for found in _FENCE.finditer(text):
        indent = len(found["indent"])
        body = "".join(line[min(indent, len(line) - 1) :] for line in found["body"].splitlines(keepends=True))
        note = _NOTE.search(text, 0, found.start())
        line = text.count("\n", 0, found.start()) + 1
        yield Block(str(page), line, found["words"].strip(), body, " ".join(note[1].split()) if note else "")


def every_block(language):
    return [block for page in PAGES for block in blocks(page) if block.language == language]


def prose(page):
    """The page without its blocks; lines keep their numbers."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text_of(page))


def links(page):
    return _LINK.findall(re.sub(_TICKS, "", prose(page)))


def in_backticks(page):
    return _TICKS.findall(prose(page))


def anchors(text):
    """The valid targets of a `#...`: GitHub's names of the headings, and explicit names."""
    found, counts = set(_NAMED.findall(text)), Counter()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", bare.lower()).strip().replace(" ", "-")
        found.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
        counts[slug] += 1
    return found
