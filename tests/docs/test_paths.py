"""Every HTTP path of the daemon in the documentation is in the daemon's own index."""

import re

import pytest

from scaler.api.http.server import INDEX
from tests.docs.pages import PAGES, every_block, in_backticks

# The paths of the index; parameters are in capitals or braces.
INDEXED = set(re.findall(r"(?<![\w.])/[a-z0-9/]*(?:[a-z0-9]|(?= ))", INDEX))
DAEMON_PATH = re.compile(r"^(?:https?://localhost:8080)?(/(?:api/v1/[a-z]+|metrics|livez|readyz)[^\s?#,]*)")


def named():
    for block in every_block("console"):
        for path in re.findall(r"localhost:8080(/\S*)", block.text):
            yield str(block), path
    for page in PAGES:
        for text in in_backticks(page):
            # Engines and exporters have /metrics too, and Kubernetes has paths below /apis.
            if found := DAEMON_PATH.match(text):
                yield str(page), found[1]


@pytest.mark.parametrize(("page", "path"), sorted(set(named())), ids=str)
def test_named_path_is_in_the_index(page, path):
    bare = re.split(r"[?'\"]", path)[0].rstrip("/") or "/"
    above = [bare.rsplit("/", cut)[0] for cut in range(3)]

    assert INDEXED & {bare, *above}


def test_the_index_names_its_paths():
    assert {"/", "/metrics", "/api/v1/board", "/livez", "/readyz"} <= INDEXED
