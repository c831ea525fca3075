"""Grafana's boards as ConfigMaps: the chart and the kustomize component contain the committed files."""

import json
import os

import pytest
import yaml

from tests.dashboards.built import BOARDS
from tests.deploy.shared import DEPLOY

MINE = {"title": "Mine"}
MIB = 1 << 20


@pytest.fixture
def boards(render):
    """`boards(values)`: {file: JSON}, and the ConfigMaps of the chart that have boards."""

    def render_boards(docs="", grafana=None, **values):
        maps = [
            each
            for each in render(
                {
                    "dashboards": {"enabled": True, **values},
                    "links": {"docs": docs},
                    "config": {"links": {"grafana": grafana}},
                }
            )
            if each["kind"] == "ConfigMap" and any(name.endswith(".json") for name in each["data"])
        ]
        return {file: json.loads(text) for each in maps for file, text in each["data"].items()}, maps

    return render_boards


def test_boards_are_off_by_default(render):
    assert [each for each in render() if each["kind"] == "ConfigMap" and "tidegate-overview.json" in each["data"]] == []


def test_chart_has_the_committed_boards_and_the_users_own(boards):
    found, _ = boards(json={"mine": json.dumps(MINE)})
    assert found == {**{f"{uid}.json": board for uid, board in BOARDS.items()}, "mine.json": MINE}


def test_boards_link_to_the_given_grafana_and_docs(boards):
    found, _ = boards(docs="https://git.example.com/docs", grafana="https://grafana.example.com/")
    text = json.dumps(found)
    assert '"url": "/d/' not in text
    assert "https://grafana.example.com/d/tidegate-workload?" in text
    assert "](https://git.example.com/docs/how-to/runbooks.md#tidegatecapped)" in text
    assert "github.com" not in text


def test_grafanas_sidecar_finds_each_board_by_its_label_and_folder(boards):
    _, maps = boards(labels={"grafana_dashboard": "1", "team": "ai"}, annotations={"a": "b"}, folder="GPUs")
    assert len({each["metadata"]["name"] for each in maps}) == len(maps) == len(BOARDS)
    for each in maps:
        labels = each["metadata"]["labels"]
        assert (labels["grafana_dashboard"], labels["team"]) == ("1", "ai")
        assert each["metadata"]["annotations"] == {"a": "b", "grafana_folder": "GPUs"}


def test_maintainers_board_has_a_folder_or_is_left_out(boards):
    found, maps = boards(folder="GPUs", maintainers={"folder": "Operators"})
    folders = {name: each["metadata"]["annotations"]["grafana_folder"] for each in maps for name in each["data"]}
    assert folders == {name: "Operators" if name == "tidegate-self.json" else "GPUs" for name in found}
    assert set(found) - set(boards(maintainers={"enabled": False})[0]) == {"tidegate-self.json"}


def test_boards_without_a_folder_have_no_annotations(boards):
    _, maps = boards()
    assert [each for each in maps if "annotations" in each["metadata"]] == []
    assert {each["metadata"]["namespace"] for each in maps} == {"tidegate"}


def test_boards_may_be_in_another_namespace(boards):
    _, maps = boards(namespace="monitoring")
    assert {each["metadata"]["namespace"] for each in maps} == {"monitoring"}


def test_kubernetes_accepts_the_config_maps(boards, problems_of):
    _, maps = boards(folder="GPUs")
    assert [problem for each in maps for problem in problems_of(each)] == []
    assert [each["metadata"]["name"] for each in maps if len(json.dumps(each)) > MIB] == []


def test_component_names_and_labels_every_board():
    """Also without kubectl."""
    folder = DEPLOY / "kustomize/components/monitoring"
    component = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    found = {}
    for each in component["configMapGenerator"]:
        (file,) = each["files"]
        found[(folder / file).stem] = json.loads((folder / file).read_text(encoding="utf-8"))
        assert each["options"] == {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}}
    assert found == BOARDS


@pytest.mark.parametrize("overlay", ["plain", "hpa"])
def test_config_maps_of_the_component_have_the_boards(kustomized, tmp_path, overlay):
    folder = os.path.relpath(DEPLOY / "kustomize", tmp_path.resolve())
    text = {"resources": [f"{folder}/overlays/{overlay}"], "components": [f"{folder}/components/monitoring"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    maps = [each for each in kustomized(tmp_path) if each["metadata"].get("labels", {}).get("grafana_dashboard")]
    assert {file: json.loads(text) for each in maps for file, text in each["data"].items()} == {
        f"{uid}.json": board for uid, board in BOARDS.items()
    }
    assert {each["metadata"]["namespace"] for each in maps} == {"tidegate"}
