"""The pages for operators name files, objects and alerts that exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from extender.__main__ import main
from extender.cli.lint import check_arguments, check_settings
from extender.config.settings import Settings
from tests.manifests.linting import lint_objects
from tests.manifests.rendering import COMPONENTS, MANIFESTS, Json, containers, documents, named, pods_of, rendered

ROOT: Final = MANIFESTS.parent
INSTALL: Final = (ROOT / "docs/install.md").read_text()
RUNBOOKS: Final = (ROOT / "docs/runbooks.md").read_text()
LINT: Final = (ROOT / "docs/lint.md").read_text()
RECIPES: Final = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
COMMENTS: Final = [line for path in MANIFESTS.rglob("*") if path.is_file() for line in path.read_text().splitlines()]


def _commands(page: str) -> list[list[str]]:
    """Every command of every shell block; a backslash at the end of a line continues it."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = (line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines())
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


def test_every_command_after_the_overlay_uses_it() -> None:
    """An overlay of ours, applied as it is, has images that no registry holds."""
    for words in _commands(INSTALL):
        if words[0] == "kubectl" and "-k" in words:
            assert words[words.index("-k") + 1] in ("numa", "manifests/crd")
    for overlay in RECIPES:
        assert f"`manifests/overlays/{overlay}`" in INSTALL
    commands = [" ".join(words) for words in _commands(INSTALL)]
    assert "kubectl apply -k numa" in commands
    assert "kubectl delete -k numa" in commands


def test_no_command_of_a_first_install_fails_because_nothing_is_there_yet() -> None:
    first = INSTALL[: INSTALL.index("## Upgrade")]
    assert "kubectl diff" not in first
    for section in re.split(r"^### ", first[first.index("## Install") :], flags=re.MULTILINE):
        commands = [" ".join(words) for words in _commands(section)]
        makes = [i for i, text in enumerate(commands) if "apply -k numa" in text]
        needs = [i for i, text in enumerate(commands) if text.startswith("kubectl -n")]
        assert not makes or not needs or makes[0] < needs[0], "the namespaces come with the overlay"


def _overlay_blocks() -> list[Json]:
    blocks = [yaml.safe_load(b) for b in re.findall(r"```yaml\n(.*?)```", INSTALL, re.DOTALL)]
    return [b for b in blocks if any(isinstance(b.get(key), list) for key in ("resources", "components"))]


def _own(tmp_path: Path, recipe: str) -> Path:
    """The directory above `numa`, as the page says to make it for a recipe."""
    main, static, _ = _overlay_blocks()
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "numa/static-pod").mkdir(parents=True)
    main["resources"] = [f"../manifests/overlays/{recipe}"]
    if recipe != "second-scheduler":
        main["images"] = [image for image in main["images"] if image["name"] != "registry.k8s.io/kube-scheduler"]
    (tmp_path / "numa/kustomization.yaml").write_text(yaml.safe_dump(main))
    static["resources"] = [name.replace("control-plane/", f"{recipe}/") for name in static["resources"]]
    (tmp_path / "numa/static-pod/kustomization.yaml").write_text(yaml.safe_dump(static))
    return tmp_path


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_overlay_of_ones_own_builds_for_every_recipe_without_a_finding(recipe: str, tmp_path: Path) -> None:
    own = _own(tmp_path, recipe)
    objects = rendered(str(own / "numa"))
    if recipe.startswith("control-plane"):
        objects += rendered(str(own / "numa/static-pod"))
    for _, pod in pods_of(objects):
        for container in containers(pod):
            assert container["image"].startswith(("registry.example.org/team/numa-", "registry.k8s.io/kube-scheduler:"))
            names = {e["name"] for e in container["env"]} if "env" in container else set()
            assert "KUBELET_CA_FILE" not in names, "components/kubelet-pin replaces components/kubelet-ca"
    assert "KUBELET_PIN_FILE" in str(objects)
    assert lint_objects(objects) == []


def test_both_proofs_of_the_kubelet_together_are_named_plainly() -> None:
    (finding,) = lint_objects(rendered("overlays/standalone", "kubelet-pin", "kubelet-ca"))
    assert finding.rule == "kubelet-unproven"
    assert "components/kubelet-ca" in finding.why
    assert "components/kubelet-pin" in finding.why


def test_the_audience_for_prometheus_is_a_setting() -> None:
    _, _, prometheus = _overlay_blocks()
    (patch,) = prometheus["patches"]
    value = yaml.safe_load(patch["patch"])[0]["value"]
    assert not check_settings({value["name"]: value["value"]})


def test_the_token_for_people_is_made_for_an_account_that_exists_and_for_our_audience() -> None:
    objects = rendered("overlays/standalone", "people")
    (words,) = [words for words in _commands(INSTALL) if words[:5:4] == ["kubectl", "token"]]
    named(objects, "ServiceAccount", words[5], words[2])
    assert f"--audience={Settings.model_fields['token_audience'].default}" in words
    binding = named(objects, "ClusterRoleBinding", "numa-readers")
    assert binding["subjects"][0]["name"] == words[5]


def test_the_gateway_leads_to_the_service_and_its_certificate() -> None:
    route, policy, network = documents(ROOT / "docs/examples/gateway.yaml")
    service = named(rendered("overlays/standalone"), "Service", "numa-extender")
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert (backend["name"], backend["port"]) == ("numa-extender", service["spec"]["ports"][0]["port"])
    assert policy["spec"]["targetRefs"][0]["name"] == service["metadata"]["name"]
    assert policy["spec"]["validation"]["hostname"] == "numa-extender.numa-extender.svc"
    kubernetes_validate.validate(network, "1.36", strict=True)
    assert network["spec"]["podSelector"]["matchLabels"].items() <= service["spec"]["selector"].items()


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
    for overlay in RECIPES:
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


def test_every_component_is_in_the_list() -> None:
    assert set(re.findall(r"^- `components/([\w-]+)` ", INSTALL, re.MULTILINE)) == set(COMPONENTS)


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
        base, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert re.fullmatch(r"https://[a-z.]+/[a-z-]+", base), "a URL: pagers make a link of it"
        assert anchor == _anchor(alert["alert"])
    for section in RUNBOOKS.split("\n## ")[1:]:
        assert all(f"**{part}:**" in section for part in ("Means", "Check", "Do"))


def test_alerts_that_are_named_exist() -> None:
    text = INSTALL + RUNBOOKS + "\n".join(COMMENTS)
    sections = set(re.findall(r"^## (.*)$", RUNBOOKS, re.MULTILINE))
    assert set(re.findall(r"\bNuma(?:Extender|Exporter)[A-Z]\w+", text)) <= sections
