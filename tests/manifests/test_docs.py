"""The pages for operators name files, objects and alerts that exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from extender.__main__ import main
from extender.cli.lint_knowledge import check_arguments, check_settings
from extender.settings import Settings
from tests.manifests.rendering import COMPONENTS, MANIFESTS, containers, documents, named, rendered

ROOT: Final = MANIFESTS.parent
INSTALL: Final = (ROOT / "docs/install.md").read_text()
RUNBOOKS: Final = (ROOT / "docs/runbooks.md").read_text()
LINT: Final = (ROOT / "docs/lint.md").read_text()
COMMENTS: Final = [line for path in MANIFESTS.rglob("*") if path.is_file() for line in path.read_text().splitlines()]


def _commands(page: str) -> list[list[str]]:
    """Every line of every shell block."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = (line.strip() for block in blocks for line in block.splitlines())
    return [shlex.split(line) for line in lines if line]


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", ["install.md", "runbooks.md", "lint.md"])
def test_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    named_files = set(re.findall(r"(?<!/kubernetes/)\bmanifests/[\w./-]*[\w-]", text))
    named_files |= {f"manifests/{path}" for path in re.findall(r"(?<!/)\bcomponents/[\w-]+", text)}
    assert all((ROOT / name).exists() for name in named_files), named_files


@pytest.mark.parametrize("page", ["install.md", "runbooks.md", "lint.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for file, anchor in re.findall(r"\]\(([\w.]*)(?:#([\w-]+))?\)", text):
        target = (ROOT / "docs" / file) if file else ROOT / "docs" / page
        assert target.exists()
        if anchor:
            assert anchor in {_anchor(h) for h in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)}


def test_files_that_comments_name_exist() -> None:
    for line in COMMENTS:
        if line.strip().startswith("#"):
            for name in re.findall(r"\b(?:components|overlays|base|docs)/[\w./-]*[\w-]", line):
                assert (MANIFESTS / name).exists() or (ROOT / name).exists(), line


def test_objects_that_commands_name_exist() -> None:
    objects = rendered("overlays/second-scheduler")
    containers = {"exporter"}
    for words in _commands(INSTALL):
        text = " ".join(words)
        namespace = re.search(r"-n (\S+)", text)
        for kind, name in re.findall(r"\b(daemonset|deployment)/([\w-]+)", text):
            assert namespace
            named(objects, {"daemonset": "DaemonSet", "deployment": "Deployment"}[kind], name, namespace[1])
        for name, _image in re.findall(r"([\w-]+)=(numa-[\w-]+:)", text):
            assert name in containers
        assert "apply -f" not in text


@pytest.mark.parametrize("page", [INSTALL, LINT])
def test_our_own_commands_are_taken(page: str) -> None:
    found = [
        words[words.index("numa-extender") + 1 :]
        for words in _commands(page)
        if "numa-extender lint" in " ".join(words)
    ]
    assert found
    for words in found:
        assert check_arguments(main, "numa-extender", words) is None


def test_every_recipe_can_be_installed_and_removed() -> None:
    commands = [" ".join(words) for words in _commands(INSTALL)]
    for overlay in sorted(path.name for path in (MANIFESTS / "overlays").iterdir()):
        assert f"kubectl apply -k manifests/overlays/{overlay}" in commands
        assert f"kubectl delete -k manifests/overlays/{overlay}" in commands


def test_the_overlay_of_ones_own_builds(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "numa").mkdir()
    (text,) = [b for b in re.findall(r"```yaml\n(.*?)```", INSTALL, re.DOTALL) if "Kustomization" in b]
    own = yaml.safe_load(text)
    (tmp_path / "numa/kustomization.yaml").write_text(text)
    objects = rendered(str(tmp_path / "numa"))
    pod = named(objects, "Deployment", "numa-extender")["spec"]["template"]["spec"]
    assert all(container["image"].startswith("images.example.org/") for container in containers(pod))
    audiences = next(e["value"] for e in pod["initContainers"][0]["env"] if e["name"].endswith("READ_AUDIENCES"))
    assert not check_settings({"NUMA_EXTENDER_READ_AUDIENCES": audiences})
    assert own["images"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_certificate_made_by_hand_is_good(tmp_path: Path) -> None:
    for words in _commands(INSTALL):
        if words[0] == "openssl":
            subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    verify = (
        "openssl verify -x509_strict -purpose sslserver -CAfile ca.crt -verify_hostname numa-extender.numa-extender.svc"
    )
    subprocess.run([*verify.split(), "tls.crt"], cwd=tmp_path, check=True, capture_output=True)


def test_secrets_and_config_maps_that_pods_want_are_made() -> None:
    made = {
        (words[words.index("-n") + 1], words[words.index("create") + 1 :][0].lower(), name)
        for words in _commands(INSTALL)
        if "create" in words and "-n" in words
        for name in words
        if name.startswith("numa-extender-")
    }
    for overlay in sorted(path.name for path in (MANIFESTS / "overlays").iterdir()):
        objects = rendered(f"overlays/{overlay}")
        generated = {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"}
        for o in objects:
            if o["kind"] in ("Deployment", "DaemonSet"):
                for volume in o["spec"]["template"]["spec"]["volumes"]:
                    namespace = o["metadata"]["namespace"]
                    if "secret" in volume:
                        assert (namespace, "secret", volume["secret"]["secretName"]) in made
                    elif "configMap" in volume and volume["configMap"]["name"] not in generated:
                        assert (namespace, "configmap", volume["configMap"]["name"]) in made


def test_every_component_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `components/([\w-]+)` \|", INSTALL, re.MULTILINE)) == set(COMPONENTS)


def test_settings_that_are_named_exist() -> None:
    text = INSTALL + RUNBOOKS + "\n".join(COMMENTS)
    for name in re.findall(r"\bNUMA_EXTENDER_([A-Z_]+)\b", text):
        assert name.lower() in Settings.model_fields


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    (rules,) = documents(MANIFESTS / "components/prometheus/alerts.yaml")
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    sections = re.findall(r"^## (.*)$", RUNBOOKS, re.MULTILINE)
    assert [alert["alert"] for alert in alerts] == sections
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{_anchor(alert['alert'])}"
    for section in RUNBOOKS.split("\n## ")[1:]:
        assert all(f"**{part}:**" in section for part in ("Means", "Look", "Do"))


def test_alerts_that_are_named_exist() -> None:
    text = INSTALL + RUNBOOKS + "\n".join(COMMENTS)
    sections = set(re.findall(r"^## (.*)$", RUNBOOKS, re.MULTILINE))
    assert set(re.findall(r"\bNuma(?:Extender|Exporter)[A-Z]\w+", text)) <= sections
