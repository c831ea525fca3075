"""Checks triggers and annotations of manifests, without the rules that compare objects of a run."""

from typing import NamedTuple

from scaler.config.errors import Problem, dotted
from scaler.config.yaml import documents
from scaler.lint.findings import locate
from scaler.lint.objects import objects_in
from scaler.lint.queues import QueueReader, shared_queues
from scaler.lint.triggers import check_triggers


class Checked(NamedTuple):
    """problems: in the order of the text. skipped: objects without keys for Tidegate."""

    problems: list[Problem]
    skipped: int


def check_manifests(text, file, config, now=None):
    """config: of the daemon; None assumes the defaults. now: POSIX seconds; None skips expired brakes."""
    found, errors = documents(text)
    problems = [Problem(file, *error.mark, dotted(error.loc), error.message) for error in errors]
    objects = [obj for document in found for obj in objects_in(document, file)]
    reports = [(obj, report) for obj in objects if (report := check_triggers(obj.value, config, now)) is not None]
    shared = shared_queues(config, [QueueReader(obj, *each) for obj, report in reports for each in report.workloads])
    for obj, report in reports:
        problems += [locate(obj.value, file, finding) for finding in (*report.findings, *shared.get(obj, ()))]
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    return Checked(problems, len(objects) - len(reports))
