"""docs/how-to/groups.md and docs/how-to/health-checks.md agree with the code."""

import re
from pathlib import Path

import pytest

from exporter.catalog.kind import PATH_LABELS, is_probe
from scaler.config import Workload
from scaler.config.loader import parse
from scaler.policy.variants import BAND, SETTLE_S
from scaler.signals.activity import MANY_RISES, RISES
from scaler.workloads.targets import Plans

_DOCS = Path(__file__).parents[4] / "docs"
GROUPS, PROBES = ((_DOCS / name).read_text() for name in ("how-to/groups.md", "how-to/health-checks.md"))
BLOCKS = re.findall(r"```yaml\n(.*?)```", GROUPS, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_its_examples_have_no_problem_and_are_groups(text):
    config, problems = parse(text, "docs/how-to/groups.md")
    assert problems == []
    assert len({(plan.member.namespace, plan.member.name) for plan in Plans(config).take(config.workloads)}) == 1


def test_without_a_group_the_first_example_is_warned_that_it_counts_twice():
    _, problems = parse(re.sub(r" group: chat, weight: \d,", "", BLOCKS[0]), "docs/how-to/groups.md")
    assert ["without a common group" in str(problem) for problem in problems] == [True]


def test_difference_that_changes_an_order_is_that_of_the_code():
    assert SETTLE_S == 3600.0
    assert f"A new order needs a difference of {100.0 * BAND:g} % for an hour." in " ".join(GROUPS.split())


def test_numbers_of_probes_are_those_of_the_code():
    assert f"for {RISES} rises ({MANY_RISES} for three probers at once)" in " ".join(PROBES.split())
    assert Workload(namespace="ai", name="chat").probe_period == 60.0
    assert [label for label in PATH_LABELS if f"`{label}`" not in PROBES] == []
    paths = re.search(r"whose path ends in (.*?) or the like", PROBES, re.DOTALL).group(1)
    assert all(is_probe({"path": f"/{word}"}) for word in re.findall(r"`(\w+)`", paths))
