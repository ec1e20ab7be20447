"""What is deployed is read as YAML, and says the same as the image and the locustfiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = sorted((ROOT / "deploy").glob("*.yaml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def pods(path):
    """(name of the owner, spec of its pods) of every Job and Deployment."""
    return [
        (document["metadata"]["name"], document["spec"]["template"]["spec"])
        for document in documents(path)
        if document["kind"] in {"Job", "Deployment"}
    ]


def test_there_is_a_manifest_for_a_run_for_the_web_ui_and_for_the_operator():
    assert [path.name for path in MANIFESTS] == ["headless.yaml", "operator.yaml", "web.yaml"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_every_document_has_what_kubernetes_asks_of_it(path):
    for document in documents(path):
        assert {"apiVersion", "kind", "metadata"} <= set(document)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
    names = [(document["kind"], document["metadata"]["name"]) for document in documents(path)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_locustfiles_that_are_named_are_in_the_image(path):
    named = re.findall(r"locustfiles/\w+\.py", path.read_text(encoding="utf-8"))

    assert named
    assert all((ROOT / name).is_file() for name in named)


@pytest.mark.parametrize("name", ["headless.yaml", "web.yaml"])
def test_pods_are_no_root_and_run_the_image_as_its_user(name):
    user = int(re.search(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)[1])

    for _, spec in pods(ROOT / "deploy" / name):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == user
        (container,) = spec["containers"]
        assert container["image"] == "pd-locust:latest"
        assert "command" not in container


@pytest.mark.parametrize("name", ["headless.yaml", "web.yaml"])
def test_workers_find_their_master_by_a_service_that_selects_it(name):
    services = {
        document["metadata"]["name"]: document["spec"]
        for document in documents(ROOT / "deploy" / name)
        if document["kind"] == "Service"
    }
    (worker,) = [spec for owner, spec in pods(ROOT / "deploy" / name) if "worker" in owner]
    (host,) = [
        arg.split("=")[1] for arg in worker["containers"][0]["args"] if arg.startswith("--master-host")
    ]

    assert services[host]["selector"]["role"] == "master"
    assert 5557 in [port["port"] for port in services[host]["ports"]]


@pytest.mark.parametrize("name", ["headless.yaml", "web.yaml"])
def test_selectors_meet_the_labels_of_the_pods(name):
    for document in documents(ROOT / "deploy" / name):
        if document["kind"] == "Deployment":
            selected = document["spec"]["selector"]["matchLabels"]
            assert selected == document["spec"]["template"]["metadata"]["labels"]


def test_the_master_waits_for_as_many_workers_as_are_started():
    jobs = {
        document["metadata"]["name"]: document["spec"]
        for document in documents(ROOT / "deploy" / "headless.yaml")
        if document["kind"] == "Job"
    }
    workers, master = jobs["pd-locust-worker"], jobs["pd-locust-master"]

    assert workers["parallelism"] == workers["completions"]
    args = master["template"]["spec"]["containers"][0]["args"]
    assert f"--expect-workers={workers['parallelism']}" in args


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_no_pod_is_throttled(path):
    limits = re.findall(r"limits:.*?(?=\n\s*(?:requests|volumeMounts)|\Z|\n---)", path.read_text(), re.DOTALL)

    assert limits
    assert not any("cpu" in limit for limit in limits)


def test_the_image_is_slim_and_starts_locust():
    assert DOCKERFILE.count("\nFROM ") == 1
    assert "\nFROM python:3.11-slim\n" in DOCKERFILE
    assert '\nENTRYPOINT ["locust"]\n' in DOCKERFILE
    assert re.search(r"^CMD .*locustfiles/pd_stream.py", DOCKERFILE, re.MULTILINE)


def test_the_image_is_built_from_what_the_package_needs_and_nothing_else():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert kept == {"LICENSE", "README.md", "locustfiles", "pd_locust", "pyproject.toml"}
    assert all((ROOT / name).exists() for name in kept)
