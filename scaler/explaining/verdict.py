"""A saved decision, made again by this Tidegate. Importing it compiles the policy's kernel.

Worked example: of a document that the same version wrote, `verdict(document).same` is True. After somebody has edited
the file from 40 to 60 requests, `differences` has the replicas and the demand of then and of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.model import WorkloadKey

from ..explain.again import again, differences, told
from ..explain.inputs import BadInputsError, read_inputs
from .command import BadWish, Document


class Verdict(NamedTuple):
    """What this Tidegate answers to the inputs of a document.

    then, now:   the verdicts by name. differences: what of them is not the same.
    """

    same: bool
    then: Document
    now: Document
    differences: list[Document]


def verdict(said: Mapping[str, Any]) -> Verdict:
    """The decision of a document, made again by this Tidegate. Raises BadWish."""
    if said["inputs"] is None:
        raise BadWish("inputs: nothing had been decided yet: there is nothing to decide again")
    names = said["workload"]
    key = WorkloadKey(str(names.get("namespace")), str(names.get("name")), str(names.get("trigger") or ""))
    try:
        entry = read_inputs(said["inputs"], key)
    except BadInputsError as error:
        raise BadWish(str(error)) from None
    found = differences(entry)
    then, now = told(entry.given.verdicts), told(again(entry)[0])
    return Verdict(not found, then, now, [difference._asdict() for difference in found])
