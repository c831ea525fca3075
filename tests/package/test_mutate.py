"""`make mutate` changes one operator, constant or result at a time, and reports what the tests do not notice."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("mutate", ROOT / "tools/mutate.py")
mutate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate)

HALF = '''\
"""Halves."""

def half(value: float = 1.0) -> float:
    """Half of it."""
    if value < 0.0:
        raise ValueError("must be positive, got -1")
    return value / 2.0
'''


def changed(source):
    """The changed lines of each mutant."""
    usual = ast.unparse(ast.parse(source)).splitlines()
    return [
        [line.strip() for line in ast.unparse(each.tree).splitlines() if line not in usual]
        for each in mutate.mutants(source)
    ]


def test_each_mutant_changes_one_line_of_code_and_no_annotation_docstring_or_message():
    assert sorted(changed(HALF)) == [
        ["def half(value: float=2.0) -> float:"], ["if value < 1.0:"], ["if value <= 0.0:"], ["if value >= 0.0:"],
        ["return None"], ["return value * 2.0"], ["return value / 3.0"],
    ]  # fmt: skip


def test_operators_of_logic_and_choices_are_changed():
    assert changed("a = b and not c") == [["a = b or not c"], ["a = b and c"]]
    assert changed("a = b if c is None else -d") == [
        ["a = -d if c is None else b"], ["a = b if c is not None else -d"], ["a = b if c is None else d"],
    ]  # fmt: skip
    assert changed("a = (True, 'b', b & 1)") == [
        ["a = (False, 'b', b & 1)"], ["a = (True, 'bXX', b & 1)"], ["a = (True, 'b', b | 1)"],
        ["a = (True, 'b', b & 2)"],
    ]  # fmt: skip


def test_tests_of_a_file_are_its_own_and_then_those_beside_them():
    first, *others = mutate.tests_of(Path("scaler/policy/demand.py"))
    assert first == "tests/scaler/policy/test_demand.py"
    assert {"tests/scaler/policy/test_waking.py", "tests/scaler/policy/test_steps.py"} < set(others)
    assert mutate.tests_of(Path("scaler/policy/sizing.py"))[0] == "tests/scaler/policy/sizing"
    assert "tests/scaler/policy/sizing" not in others
    assert mutate.tests_of(Path("scaler/signals/activity.py")) == ["tests/scaler/signals"]


def test_change_that_no_test_notices_is_reported_and_any_other_is_not(tmp_path):
    for folder in ("halves", "tests/halves"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "halves/half.py").write_text(HALF)
    (tmp_path / "tests/halves/test_half.py").write_text(
        "from halves.half import half\n\ndef test_half():\n    assert half(4.0) == 2.0\n    assert half() == 0.5\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tools import mutate; from pathlib import Path; "
        f"mutate.ROOT, mutate.LIBRARIES = Path({str(tmp_path)!r}), (); "
        "sys.exit(mutate.main(['halves/half.py', '--sample', '2', '--seed', '4']))"
    )
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=False, timeout=120)
    assert done.stderr == ""
    _, survivor, total, _ = done.stdout.splitlines()
    assert survivor == "halves/half.py:5: survived: value < 0.0  ->  value <= 0.0"
    assert total == "halves/half.py: 2 of 7 mutants, 1 survived"
    assert done.returncode == 1
