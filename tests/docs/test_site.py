"""The site: every page is in its navigation, every linked file is on it, and no resource comes from another host.

`make site` builds it with MkDocs; these tests read its hooks without MkDocs.
"""

import importlib.util
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

SPEC = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site/hooks.py")
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


def leaves(nav):
    for entry in nav:
        for inner in entry.values() if isinstance(entry, dict) else ():
            yield from leaves(inner)
        if isinstance(entry, str):
            yield entry


def test_every_page_of_the_documentation_is_in_the_navigation_once():
    named = [name for name in leaves(hooks.navigation()) if not name.startswith(hooks.COPIES)]

    assert sorted(named) == sorted(str(page.relative_to("docs")) for page in PAGES if page.is_relative_to("docs"))


def test_the_sections_of_the_navigation_are_the_four_kinds():
    sections = [next(iter(entry)) for entry in hooks.navigation() if isinstance(entry, dict)]

    assert sections == ["Tutorial", "How-to", "Reference", "Explanation"]


def test_linked_files_outside_of_the_documentation_are_copied_with_their_own_links():
    copied = {path.relative_to(ROOT).as_posix() for path in hooks.outside()}

    assert {"deploy/chart/README.md", "deploy/quickstart/jobs.yaml", "dashboards/grafana/tidegate-gpu.json"} <= copied
    assert "Dockerfile" in copied  # from the chart's README.md
    assert [path for path in copied if path.startswith(("docs/", "."))] == []


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("../../deploy/quickstart/values.yaml", "../repository/deploy/quickstart/values.yaml"),
        ("../../deploy/chart/README.md#values", "../repository/deploy/chart/about.md#values"),
        ("../../dashboards/grafana", "../repository/dashboards/grafana/about.md"),
        ("engines/README.md", "engines/README.md"),
        ("#size", "#size"),
        ("https://keda.sh", "https://keda.sh"),
    ],
)
def test_link_leads_to_its_file_on_the_site(link, led):
    page = type("Page", (), {"file": type("File", (), {"src_uri": "how-to/install.md"})})

    assert hooks.on_page_markdown(f"see [it]({link})", page) == f"see [it]({led})"


def test_blocks_in_lists_are_indented_by_four_and_lists_are_apart_from_paragraphs():
    github = "text:\n- one\n  more\n\n  | a |\n  |---|\n- two\n\n  ```yaml\n  a:\n    b: 1\n  ```\n"
    adapted = "text:\n\n- one\n    more\n\n    | a |\n    |---|\n\n- two\n\n    ```yaml\n    a:\n      b: 1\n    ```\n"

    assert hooks.for_mkdocs(github) == adapted


def test_resources_of_another_host_are_found():
    html = """<link rel="stylesheet" href="https://fonts.example/css"><link rel="canonical" href="https://me.example/">
    <script src="//cdn.example/x.js"></script><img src="images/a.svg"><a href="https://keda.sh">KEDA</a>"""

    assert hooks.fetches(html) == ["https://fonts.example/css", "//cdn.example/x.js"]


def test_the_site_is_built_in_continuous_integration():
    assert "\nmake site >" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert Path(hooks.__file__).relative_to(ROOT).as_posix() in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
