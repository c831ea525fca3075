"""Writes texts to files and lints them: `lint("...", "...")` checks all texts of a call together."""

import pytest
import yaml

from scaler.lint.objects import objects_in, value_of
from scaler.lint.run import check_files, lint_objects

NOW = 1795420800.0  # 2026-11-23T08:00Z


@pytest.fixture
def lint(tmp_path):
    """The problems of these texts, each in its own file `0.yaml`, `1.yaml`, …, without the folder's name."""

    def run(*texts, ignored=frozenset()):
        files = []
        for index, text in enumerate(texts):
            file = tmp_path / f"{index}.yaml"
            file.write_text(text)
            files.append(str(file))
        problems = check_files(files, NOW, frozenset(ignored)).problems
        return [str(problem).replace(f"{tmp_path}/", "") for problem in problems]

    return run


@pytest.fixture
def rules_of(tmp_path):
    """The ids of the rules that report a text, in order; None for a problem without a rule."""

    def run(text):
        file = tmp_path / "text.yaml"
        file.write_text(text)
        return [problem.rule for problem in check_files([str(file)], NOW).problems]

    return run


@pytest.fixture
def live_rules_of():
    """Like `rules_of`, for the objects of a live cluster."""

    def run(text):
        found = [one for each in yaml.safe_load_all(text) for one in objects_in(value_of(each), "live")]
        return [problem.rule for problem in lint_objects(found, None, NOW, frozenset(), live=True).problems]

    return run
