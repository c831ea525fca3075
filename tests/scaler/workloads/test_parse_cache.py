"""Tests that a registry with cached parse results equals one that parses everything."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import RESOURCES
from scaler.config import parse
from scaler.workloads import ParsedObjects, take
from tests.fakes import objects as api

BY_KIND = {resource.kind: resource for resource in RESOURCES}
CONFIG = parse(
    """\
kubernetes: {}
workloads: [{namespace: ai, name: configured, engine: vllm, pods: {target: Deployment/d0}}]
""",
    "config.yaml",
)[0]

NAMES = st.sampled_from(["d0", "d1", "d2"])
METADATA = st.sampled_from(
    [
        {"engine": "vllm"},
        {"engine": "vllm", "group": "g", "role": "decode"},
        {"engine": "sglang", "keep_warm": "7m"},
        {"engine": "vlm"},
        {"workload": "configured"},
        {"workload": "missing"},
        {},
    ]
)
TRIGGERS = METADATA.map(lambda metadata: api.trigger(**metadata))
DOCUMENTS = (
    st.builds(
        lambda name, target, maximum, triggers: api.scaled_object(
            name, target=target, minimum=0, maximum=maximum, triggers=triggers
        ),
        st.sampled_from(["d0", "d1", "configured"]),
        NAMES,
        st.integers(1, 2),
        st.lists(TRIGGERS, min_size=1, max_size=2),
    )
    | st.builds(
        lambda name, metadata: api.deployment(
            name, annotations={f"tidegate.dev/{key}": value for key, value in metadata.items()}, replicas=1
        ),
        NAMES,
        METADATA,
    )
    | st.builds(
        lambda name, target, maximum: api.hpa(name, target=target, minimum=1, maximum=maximum),
        NAMES,
        NAMES,
        st.integers(1, 2),
    )
)


@given(st.lists(st.tuples(st.booleans(), DOCUMENTS), max_size=15))
def test_registry_is_the_same_with_and_without_cached_parse_results(happenings):
    cluster, parsed = Cluster(blind_s=60.0), ParsedObjects()
    for deleted, document in happenings:
        cluster.apply(BY_KIND[document["kind"]], "DELETED" if deleted else "MODIFIED", document, 1000.0)
        objects = cluster.scaled_objects(), cluster.scalables(), cluster.hpas()
        assert take(CONFIG, *objects, parsed) == take(CONFIG, *objects)
