"""The query selects the families of a kind with the configured selector."""

import re

import pytest

from exporter.catalog import AUTO, KINDS, families
from exporter.model import Credentials, PodKey, Role, Target
from exporter.sources.promql.client import promql, target_of
from exporter.sources.promql.pages import SeriesOrigin


def test_query_has_the_families_of_the_kind_the_selector_and_up(query):
    expression = promql(query("http://p", kind="llamacpp", selector='namespace="ai"'), 45.0)
    assert expression == (
        '{__name__=~"llamacpp:kv_cache_usage_ratio|llamacpp:prompt_tokens_total|llamacpp:requests_deferred|'
        'llamacpp:requests_processing|llamacpp:tokens_predicted_total|up",namespace="ai"}[45000ms]'
    )


def test_selector_may_be_empty_or_end_in_a_comma(query):
    assert promql(query("http://p", selector=""), 1.0).endswith('|vllm:time_to_first_token_seconds_count"}[1000ms]')
    assert promql(query("http://p", selector=' a="b", '), 0.5).endswith('",a="b"}[500ms]')


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_families_and_each_is_a_plain_name(kind):
    assert families(kind)
    assert all(re.fullmatch("[a-zA-Z0-9_:]+", name) for name in families(kind))
    # These detect the kind if it is `auto`.
    assert any(name.startswith(tuple(KINDS[kind].signs)) for name in families(kind))
    assert families(kind) <= families(AUTO)


def test_query_for_triton_has_the_families_of_its_backends():
    assert "vllm:generation_tokens_total" in families("triton")


def test_origin_is_one_target_per_query(query, chat):
    access = Credentials(bearer_file="/token")
    mimir = query("https://mimir/prometheus/", selector='pod=~"a.*"', access=access)
    target = target_of(mimir, SeriesOrigin(PodKey("ai", "chat-0"), ""))
    url = "promql+https://mimir/prometheus?kind=vllm&selector=pod%3D~%22a.%2A%22&namespace=ai&pod=chat-0"
    assert target == Target(url, "vllm", Role.PODS, chat, access, PodKey("ai", "chat-0"), max_age_s=60.0)
    other_targets = [
        target_of(query("https://mimir/prometheus", selector='pod=~"b.*"'), SeriesOrigin(PodKey("ai", "chat-0"), "")),
        target_of(mimir, SeriesOrigin(PodKey("ai", "chat-1"), "")),
        target_of(mimir, SeriesOrigin(PodKey("other", "chat-0"), "")),
        target_of(mimir, SeriesOrigin(None, "chat-0")),
    ]
    assert len({target.url, *(other.url for other in other_targets)}) == 5
