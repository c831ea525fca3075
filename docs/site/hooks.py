"""Hooks of MkDocs: the navigation, and the files outside docs/ that pages link to.

`navigation()` orders the pages by the links of docs/README.md. A link that leaves docs/, such as
`../../deploy/quickstart/values.yaml`, leads to a copy below `repository/` of the site. Linked Markdown becomes a page
there, and a folder without README.md a list of its files. Pages are written for GitHub; `for_mkdocs` adapts lists.
`on_post_build` fails if a page fetches anything from another host.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COPIES = "repository"  # folder of the site

_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_FENCE = re.compile(r" *```")
_ITEM = re.compile(r" {0,3}(?:[-*+]|1\.) ")
_INDENT = 4  # of a block that belongs to a list item, in Python-Markdown
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>[^<]*</code>")


def navigation() -> list[Any]:
    """Every page of docs/ once, as MkDocs' `nav`: a section for each heading of docs/README.md, in its order.

    A linked README.md of a folder, such as reference/rules/README.md, brings the other pages of its folder.
    """
    nav: list[Any] = ["README.md"]
    for section in (DOCS / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        targets = dict.fromkeys(target for target, _ in _links(text, DOCS) if target.suffix == ".md")
        nav.append({title: [_entry(target) for target in targets]})
    return nav


def _entry(page: Path) -> Any:
    if page.name != "README.md" or not page.is_relative_to(DOCS):
        return _on_site(page)
    return {_title(page): [_on_site(page), *_siblings(page)]}


def _siblings(readme: Path) -> list[str]:
    return sorted(_on_site(page) for page in readme.parent.glob("*.md") if page != readme)


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")


def _links(text: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """The relative links of a text outside of code blocks: the file that each leads to, and the path as written."""
    for line, is_code in _lines(text):
        for link in () if is_code else _LINK.findall(line):
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc and parts.path:
                yield (folder / parts.path).resolve(), parts.path


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a fenced block."""
    inside = False
    for line in text.split("\n"):
        is_fence = _FENCE.match(line) is not None
        yield line, inside or is_fence
        inside ^= is_fence


def outside() -> set[Path]:
    """Files and folders of the repository to which pages lead from docs/."""
    found: set[Path] = set()
    pending = sorted(DOCS.rglob("*.md"))
    while pending:
        page = pending.pop()
        for target, _ in _links(page.read_text(encoding="utf-8"), page.parent):
            if target.is_relative_to(DOCS) or target in found or not target.is_relative_to(ROOT) or not target.exists():
                continue
            new = [target, *_files(target)] if target.is_dir() else [target]
            pending += [path for path in new if path.suffix == ".md" and path not in found]
            found.update(new)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _listing(folder: Path) -> str:
    rows = [f"- [{path.name}]({path.name})" for path in _files(folder)]
    return "\n".join([f"# {folder.relative_to(ROOT).as_posix()}", "", *rows, ""])


def _on_site(target: Path) -> str:
    """Where a file of the repository is among the site's sources.

    A copied README.md is called about.md: the theme would take it for the front page of the section that lists it.
    """
    if target.is_dir():
        target /= "README.md"
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    name = "about.md" if target.name == "README.md" else target.name
    return f"{COPIES}/{target.relative_to(ROOT).with_name(name).as_posix()}"


def for_mkdocs(text: str) -> str:
    """Adapts lists from GitHub's Markdown to Python-Markdown's.

    Blocks that belong to an item are indented by two or three spaces there, by four here. A list that follows a
    paragraph without a blank line gets the blank line.
    """
    shift, in_list, lines = 0, False, [""]
    for line, is_code in _lines(text):
        indent = len(line) - len(line.lstrip(" "))
        is_item = _ITEM.match(line) is not None and not is_code
        if not lines[-1].strip():
            in_list = is_item
        elif is_item and not in_list:
            lines.append("")
            in_list = True
        if not is_code or (_FENCE.match(line) and shift == 0):
            shift = _INDENT - indent if 1 < indent < _INDENT else 0
        lines.append(" " * shift + line if line.strip() else line)
        if not is_code:
            shift = 0
    return "\n".join(lines[1:])


def on_config(config: Any) -> None:
    """Sets the navigation."""
    config.nav = navigation()


def on_files(files: Any, config: Any) -> None:
    """Adds the copies of linked files outside docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the tests import this file without MkDocs

    for path in outside():
        if path.is_file():
            files.append(File.generated(config, _on_site(path), abs_src_path=str(path)))
        elif not (path / "README.md").exists():
            files.append(File.generated(config, _on_site(path), content=_listing(path)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads relative links to where their files are on the site."""
    uri = page.file.src_uri
    here = ROOT / uri.removeprefix(f"{COPIES}/") if uri.startswith(f"{COPIES}/") else DOCS / uri

    def led(found: re.Match[str]) -> str:
        parts = urlsplit(found[1])
        if parts.scheme or parts.netloc or not parts.path:
            return found[0]
        target = _on_site((here.parent / parts.path).resolve())
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        return f"]({posixpath.relpath(target, posixpath.dirname(uri))}{anchor})"

    lines = (line if is_code else _LINK.sub(led, line) for line, is_code in _lines(markdown))
    return for_mkdocs("\n".join(lines))


def on_page_content(html: str, **_: Any) -> str:
    """Lets names in tables break after `_`, `.` and `/`, where a column is narrow."""

    def broken(cell: re.Match[str]) -> str:
        return _CODE.sub(lambda code: re.sub(r"(?<=[a-z])([_./])(?=\w)", r"\1<wbr>", code[0]), cell[0])

    return _CELL.sub(broken, html)


def on_post_build(config: Any) -> None:
    """Raises ValueError if a page fetches a script, style, font, image or frame from another host."""
    pages = sorted(Path(config.site_dir).rglob("*.html"))
    fetched = [f"{page}: {url}" for page in pages for url in fetches(page.read_text(encoding="utf-8"))]
    styles = [
        f"{style}: {url}"
        for style in sorted(Path(config.site_dir).rglob("*.css"))
        for url in re.findall(r"(?:url\(|@import)\s*[\"']?(https?://[^\"')\s]+)", style.read_text(encoding="utf-8"))
    ]
    if fetched or styles:
        raise ValueError("fetched from another host: " + ", ".join([*fetched, *styles]))


def fetches(html: str) -> list[str]:
    """Addresses on other hosts that a browser fetches to show the page."""
    parser = _Fetches()
    parser.feed(html)
    return parser.found


class _Fetches(HTMLParser):
    """Collects `src` of any element, and `href` of `link` but for those that only name a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        names = ["src", "srcset", "data", "poster"]
        if tag == "link" and not {"canonical", "next", "prev", "alternate"} & set((values.get("rel") or "").split()):
            names.append("href")
        urls = [values.get(name) or "" for name in names]
        self.found += [url for url in urls if url.startswith(("http://", "https://", "//"))]
