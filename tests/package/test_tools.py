"""A missing system tool is never a silent gap: the run reports it, or fails if tools are required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDS_IT = "tests/scaler/api/http/test_metrics.py::test_promtool_accepts_the_page"


@pytest.fixture
def without_tools(tmp_path):
    """Run the test that needs promtool with an empty PATH."""

    def run(*more, **environment):
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, NEEDS_IT], cwd=ROOT, text=True,
            capture_output=True, check=False, env={**os.environ, "PATH": str(tmp_path), **environment},
        )  # fmt: skip

    return run


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["one process", "several"])
def test_missing_tool_skips_its_tests_and_is_reported_at_the_end(without_tools, processes):
    done = without_tools(*processes, TIDEGATE_REQUIRE_TOOLS="0")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "promtool is not installed (Debian: apt install prometheus): 1 test(s) did not run" in done.stdout
    assert NEEDS_IT in done.stdout


def test_missing_tool_fails_if_tools_are_required(without_tools):
    done = without_tools(TIDEGATE_REQUIRE_TOOLS="1")
    assert done.returncode == 1
    assert "promtool is not installed" in done.stdout
