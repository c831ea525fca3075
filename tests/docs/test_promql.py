"""Every query that is shown is one that Prometheus reads, over metrics that there are."""

import re
import subprocess

import pytest
import yaml

from tests.docs.pages import every_block

BLOCKS = every_block("promql")


def queries(block):
    """A paragraph each, without its comments."""
    text = re.sub(r"^#.*\n", "", block.text, flags=re.MULTILINE)
    return [query.strip() for query in text.split("\n\n") if query.strip()]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_query_that_is_shown_can_be_asked(block, debian_tool, tmp_path):
    promtool = debian_tool("promtool", "prometheus")
    rules = [{"record": f"query:{place}", "expr": query} for place, query in enumerate(queries(block))]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)

    assert rules
    assert done.returncode == 0, done.stdout + done.stderr
