"""The state is stored in a volume, as configured."""

import pytest

from scaler.config import parse
from tests.deploy.shared import the

CLAIM = {"state": {"volume": "persistentVolumeClaim"}}


def state_of(things):
    """The directory of the state in the configuration, and the volume that is mounted there, if any."""
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    pod = the(things, "Deployment")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    if config.state is None:
        assert "state" not in mounts | volumes
        return None
    assert mounts["state"] == {"name": "state", "mountPath": config.state.directory}
    return config.state.interval, {key: value for key, value in volumes["state"].items() if key != "name"}


def test_state_outlives_the_container_by_default(render):
    assert state_of(render()) == (10.0, {"emptyDir": {"sizeLimit": "256Mi"}})


def test_state_can_be_disabled(render):
    assert state_of(render({"state": {"volume": "none"}})) is None


def test_claim_is_created_and_the_old_pod_ends_before_the_new_one_starts(render):
    things = render({"state": {**CLAIM["state"], "interval": "30s", "size": "1Gi", "storageClassName": "fast"}})
    claim = the(things, "PersistentVolumeClaim")
    assert state_of(things) == (30.0, {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}})
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    assert the(things, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_claim_without_a_class_uses_the_clusters_default(render):
    assert "storageClassName" not in the(render(CLAIM), "PersistentVolumeClaim")["spec"]


def test_existing_claim_is_used_and_none_is_created(render):
    things = render({"state": {**CLAIM["state"], "existingClaim": "mine"}})
    assert state_of(things) == (10.0, {"persistentVolumeClaim": {"claimName": "mine"}})
    assert not [each for each in things if each["kind"] == "PersistentVolumeClaim"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**CLAIM, "replicas": 2}, "state.volume: must be emptyDir or none with 2 replicas"),
        ({"state": {"existingClaim": "mine"}}, "state.existingClaim: needs state.volume persistentVolumeClaim"),
        ({"state": {"volume": "hostPath"}}, "volume"),
        ({"config": {"state": {"directory": "/tmp"}}}, "state"),
    ],
)
def test_invalid_values_are_refused_by_name(render, refused, values, message):
    with pytest.raises(refused, match=message):
        render(values)
