"""Every PromQL query in the documentation is valid and uses existing metrics."""

import re
import subprocess

import pytest
import yaml

from tests.docs.pages import every_block

BLOCKS = every_block("promql")


def queries(block):
    """One query per paragraph, without comments."""
    text = re.sub(r"^#.*\n", "", block.text, flags=re.MULTILINE)
    return [query.strip() for query in text.split("\n\n") if query.strip()]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_query_in_the_documentation_is_valid(block, debian_tool, tmp_path):
    promtool = debian_tool("promtool", "prometheus")
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries(block))]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)

    assert rules
    assert done.returncode == 0, done.stdout + done.stderr
