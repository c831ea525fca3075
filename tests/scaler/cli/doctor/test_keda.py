"""Which KEDA there is, by its operator's Deployment."""

import pytest

from scaler.cli.doctor.keda import check, version
from tests.fakes import objects


def operator(image, name="keda-operator", **labels):
    container = {"name": "keda-operator", "image": image}
    return objects.deployment(name, "keda", labels=labels, spec={"template": {"spec": {"containers": [container]}}})


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("ghcr.io/kedacore/keda:2.19.0", "2.19.0"),
        ("ghcr.io/kedacore/keda:2.20.2@sha256:00ff", "2.20.2"),
        ("registry:5000/mirror/keda:v2.18.1", "v2.18.1"),
        ("registry:5000/mirror/keda", "2.17.0"),  # no tag: its label
        ("ghcr.io/kedacore/keda@sha256:00ff", "2.17.0"),
    ],
)
def test_the_image_says_which_else_the_label(image, found):
    labels = {"app.kubernetes.io/version": "2.17.0"}
    assert version([objects.deployment("chat"), operator(image, **labels)]) == found


def test_an_operator_of_another_name_is_known_by_its_label():
    made = operator("keda:2.19.0", name="our-keda", **{"app.kubernetes.io/name": "keda-operator"})
    assert version([made]) == "2.19.0"
    assert version([objects.deployment("chat")]) is None
    assert version([]) is None


@pytest.mark.parametrize(
    ("found", "status"),
    [("2.19.0", "ok"), ("v2.20.2", "ok"), ("2.21.0-rc1", "ok"), ("3.0.0", "ok"), ("2.18.1", "warn"),
     ("1.5.0", "warn"), ("", "ok"), ("main", "ok"), (None, "ok")],
)  # fmt: skip
def test_one_that_is_older_than_what_is_tested_is_warned_of(found, status):
    assert check(found, served=True).status == status


def test_without_keda_that_is_said():
    assert "the cluster has none" in check(None, served=False).said
