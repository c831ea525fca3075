"""Every address of the daemon that a page names is one that it answers, by its own index."""

import re

import pytest

from scaler.api.http.server import INDEX
from tests.docs.pages import PAGES, every_block, in_backticks

# The paths of the index, with what may stand below them in capitals or braces.
KNOWN = set(re.findall(r"(?<![\w.])/[a-z0-9/]*(?:[a-z0-9]|(?= ))", INDEX))
OURS = re.compile(r"^(?:https?://localhost:8080)?(/(?:api/v1/[a-z]+|metrics|livez|readyz)[^\s?#,]*)")


def named():
    for block in every_block("console"):
        for path in re.findall(r"localhost:8080(/\S*)", block.text):
            yield str(block), path
    for page in PAGES:
        for words in in_backticks(page):
            # Engines and exporters have pages called /metrics too, and Kubernetes has its own below /apis.
            if found := OURS.match(words):
                yield str(page), found[1]


@pytest.mark.parametrize(("page", "path"), sorted(set(named())), ids=str)
def test_an_address_that_is_named_is_answered(page, path):
    bare = re.split(r"[?'\"]", path)[0].rstrip("/") or "/"
    above = [bare.rsplit("/", cut)[0] for cut in range(3)]

    assert KNOWN & {bare, *above}


def test_the_index_names_its_paths():
    assert {"/", "/metrics", "/api/v1/board", "/livez", "/readyz"} <= KNOWN
