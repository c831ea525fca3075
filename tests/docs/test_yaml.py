"""Every YAML block of every page is valid for its consumer, without warnings.

Manifests and configurations are checked as by `tidegate check`; only rules of severity info may match. A comment right
before a block marks a partial file with `<!-- a part: of a ScaledObject -->`, and intended warnings with `<!-- warned
of: TG004 -->`. Servers for replays and values of the chart are marked as well.
"""

import pytest
import yaml

from scaler.config import parse
from scaler.config.agent import is_export
from scaler.config.trigger import TRIGGER_KEYS
from scaler.lint.run import check_files
from scaler.lint.triggers import is_manifest
from scaler.policy.overrides import moment
from scaler.replay.servers import parse_profile
from tests.docs.pages import ROOT, every_block
from tests.docs.values import unknown_in

NOW = moment("2026-11-22T12:00Z")
# Pages of rules show mistakes; the linter's own tests check them.
BLOCKS = [block for block in every_block("yaml") if not block.page.startswith("docs/reference/rules/")]
PART, WARNED = "a part: ", "warned of: "
METADATA = f"{PART}of the metadata of a trigger"
SERVER = "a server of `tidegate replay`"
SERVERS = [block for block in BLOCKS if block.note == SERVER]
VALUES = "values of the chart"
WHOLE = [block for block in BLOCKS if not block.note.startswith(PART) and block.note not in {SERVER, VALUES}]


def met(block):
    """The configuration on the same page that shares a manifest's gateway: they are checked together."""
    named = {
        trigger["metadata"].get("gateway")
        for each in yaml.safe_load_all(block.text)
        for trigger in each.get("spec", {}).get("triggers", [])
    }
    for other in WHOLE:
        if other.page == block.page and not is_manifest(other.text) and not is_export(other.text):
            config, _ = parse(other.text, str(other), NOW)
            if named & {each.name for each in config.gateways}:
                yield other


@pytest.mark.parametrize("block", WHOLE, ids=str)
def test_complete_file_is_accepted_without_a_warning(block, tmp_path):
    file = tmp_path / "shown.yaml"
    file.write_text(block.text, encoding="utf-8")
    files = [str(file)]
    for config in met(block) if is_manifest(block.text) else ():
        (tmp_path / "config.yaml").write_text(config.text, encoding="utf-8")
        files.append(str(tmp_path / "config.yaml"))
    expected = block.note.removeprefix(WARNED).split(", ") if block.note.startswith(WARNED) else []
    problems = [each for each in check_files(files, NOW).problems if each.file == str(file) and each.severity != "info"]

    assert [str(problem) for problem in problems if problem.severity == "error" and problem.rule not in expected] == []
    assert [problem.rule or problem.key for problem in problems] == expected


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.note == VALUES], ids=str)
def test_values_exist_in_the_chart(block):
    assert list(unknown_in(yaml.safe_load(block.text))) == []


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_yaml_block_is_valid_yaml(block):
    assert list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", SERVERS, ids=str)
def test_server_can_be_replayed(block):
    profile, _ = parse_profile(block.text, str(block))

    assert profile.name


def test_partial_file_is_marked_with_its_whole():
    parts = [block for block in BLOCKS if block.note.startswith(PART)]

    assert [str(block) for block in parts if len(block.note.removeprefix(PART).split()) < 2] == []
    assert [str(block) for block in parts if is_manifest(block.text)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.note == METADATA], ids=str)
def test_keys_of_trigger_metadata_exist_and_values_are_text(block):
    metadata = yaml.safe_load(block.text)

    assert sorted(set(metadata) - set(TRIGGER_KEYS)) == []
    assert [value for value in metadata.values() if not isinstance(value, str)] == []


def test_every_engine_and_every_gateway_that_wakes_has_a_recipe():
    pages = {block.page for block in WHOLE if block.page.startswith("docs/how-to/engines/")}

    assert {f"docs/how-to/engines/{path.name}" for path in (ROOT / "docs/how-to/engines").glob("*.md")} - pages == {
        "docs/how-to/engines/README.md"
    }


def test_recipe_that_may_sleep_has_a_wake_source():
    scaled = [
        each
        for block in WHOLE
        if block.page.startswith("docs/how-to/engines/") and is_manifest(block.text)
        for each in yaml.safe_load_all(block.text)
        if each["spec"].get("minReplicaCount") == 0
    ]

    assert scaled
    assert [
        each["metadata"]["name"] for each in scaled if "gateway" not in each["spec"]["triggers"][0]["metadata"]
    ] == []
