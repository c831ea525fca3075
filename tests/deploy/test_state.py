"""What is remembered lies in a volume, and the configuration says so."""

import pytest

from scaler.config import parse
from tests.deploy.shared import the

CLAIM = {"state": {"volume": "persistentVolumeClaim"}}


def state_of(things):
    """What the configuration keeps and where; and the volume that is mounted there, if there is one."""
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    pod = the(things, "Deployment")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    if config.state is None:
        assert "state" not in mounts | volumes
        return None
    assert mounts["state"] == {"name": "state", "mountPath": config.state.directory}
    return config.state.interval, {key: value for key, value in volumes["state"].items() if key != "name"}


def test_by_itself_it_outlives_the_container(render):
    assert state_of(render()) == (10.0, {"emptyDir": {"sizeLimit": "256Mi"}})


def test_it_can_be_left_out(render):
    assert state_of(render({"state": {"volume": "none"}})) is None


def test_a_claim_is_made_and_the_old_pod_ends_before_the_new_one_begins(render):
    things = render({"state": {**CLAIM["state"], "interval": "30s", "size": "1Gi", "storageClassName": "fast"}})
    claim = the(things, "PersistentVolumeClaim")
    assert state_of(things) == (30.0, {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}})
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    assert the(things, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_without_a_class_the_clusters_own_is_taken(render):
    assert "storageClassName" not in the(render(CLAIM), "PersistentVolumeClaim")["spec"]


def test_a_claim_that_is_there_is_taken_and_none_is_made(render):
    things = render({"state": {**CLAIM["state"], "existingClaim": "mine"}})
    assert state_of(things) == (10.0, {"persistentVolumeClaim": {"claimName": "mine"}})
    assert not [each for each in things if each["kind"] == "PersistentVolumeClaim"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({**CLAIM, "replicas": 2}, "state.volume: must be emptyDir or none with 2 replicas"),
        ({"state": {"existingClaim": "mine"}}, "state.existingClaim: needs state.volume persistentVolumeClaim"),
        ({"state": {"volume": "hostPath"}}, "volume"),
        ({"config": {"state": {"directory": "/tmp"}}}, "state"),
    ],
)
def test_what_cannot_be_is_refused_by_name(render, refused, values, says):
    with pytest.raises(refused, match=says):
        render(values)
