"""What the documents show is what the code does."""

import re
from pathlib import Path

import pytest
import yaml

from exporter.cluster.resources import RESOURCES
from scaler.config import parse

ROOT = Path(__file__).parents[2]
BLOCKS = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [yaml.safe_load("\n".join(line[len(indent):] for line in body.splitlines()))
            for indent, body in BLOCKS.findall(text)]  # fmt: skip


def test_the_role_in_the_docs_allows_what_is_watched_and_nothing_else():
    (role,) = [each for each in blocks("docs/kubernetes.md") if each.get("kind") == "ClusterRole"]
    allowed = {(group, name): set(rule["verbs"]) for rule in role["rules"]
               for group in rule["apiGroups"] for name in rule["resources"]}  # fmt: skip
    # "/apis/apps/v1" is of the group "apps", "/api/v1" of the core's, which is "".
    groups = {each: each.path.split("/")[2] if each.path.startswith("/apis/") else "" for each in RESOURCES}
    asked = {(groups[each], each.name): {"list", "watch"} for each in RESOURCES}
    assert allowed == asked


def configurations():
    return [(name, place) for name in ("README.md", "docs/kubernetes.md")
            for place, each in enumerate(blocks(name)) if "apiVersion" not in each]  # fmt: skip


@pytest.mark.parametrize(("name", "place"), configurations())
def test_a_configuration_that_is_shown_is_right(name, place):
    text = yaml.safe_dump(blocks(name)[place])
    _, warnings = parse(text, name)
    assert [str(warning) for warning in warnings if "no_waker" not in str(warning)] == []
