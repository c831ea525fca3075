"""`tidegate doctor` reads the version of KEDA from the operator's Deployment."""

import pytest

from scaler.cli.doctor.kubernetes import check_keda, keda_version
from tests.fakes import objects


def operator(image, name="keda-operator", **labels):
    container = {"name": "keda-operator", "image": image}
    return objects.deployment(name, "keda", labels=labels, spec={"template": {"spec": {"containers": [container]}}})


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ghcr.io/kedacore/keda:2.19.0", "2.19.0"),
        ("ghcr.io/kedacore/keda:2.20.2@sha256:00ff", "2.20.2"),
        ("registry:5000/mirror/keda:v2.18.1", "v2.18.1"),
        ("registry:5000/mirror/keda", "2.17.0"),  # no tag: the label counts
        ("ghcr.io/kedacore/keda@sha256:00ff", "2.17.0"),
    ],
)
def test_version_is_the_tag_of_the_image_else_the_label(image, version):
    labels = {"app.kubernetes.io/version": "2.17.0"}
    assert keda_version([objects.deployment("chat"), operator(image, **labels)]) == version


def test_operator_with_another_name_is_found_by_its_label():
    deployment = operator("keda:2.19.0", name="our-keda", **{"app.kubernetes.io/name": "keda-operator"})
    assert keda_version([deployment]) == "2.19.0"
    assert keda_version([objects.deployment("chat")]) is None
    assert keda_version([]) is None


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.19.0", "ok"), ("v2.20.2", "ok"), ("2.21.0-rc1", "ok"), ("3.0.0", "ok"), ("2.18.1", "warn"),
     ("1.5.0", "warn"), ("", "ok"), ("main", "ok"), (None, "ok")],
)  # fmt: skip
def test_untested_old_version_is_a_warning(version, status):
    assert check_keda(version, served=True).status == status


def test_cluster_without_keda_passes():
    assert "not installed" in check_keda(None, served=False).result
