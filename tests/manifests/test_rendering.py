"""Our renderer makes of the manifests what kustomize makes of them."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import COMPONENTS, INCLUDED, MANIFESTS, STATIC_PODS, TARGETS, rendered

KUSTOMIZE = next(
    (words for words in (("kustomize", "build"), ("kubectl", "kustomize")) if shutil.which(words[0])), None
)
needs_kustomize = pytest.mark.skipif(KUSTOMIZE is None, reason="neither kustomize nor kubectl is installed")


def _kustomized(directory: Path) -> list[dict[str, Any]]:
    assert KUSTOMIZE
    output = subprocess.run([*KUSTOMIZE, str(directory)], check=True, capture_output=True).stdout
    return _sorted(yaml.load_all(output, yaml.CSafeLoader))


def _sorted(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(objects, key=lambda o: (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace", "")))


@needs_kustomize
@pytest.mark.parametrize("target", [*TARGETS, *STATIC_PODS])
def test_targets(target: str) -> None:
    assert _kustomized(MANIFESTS / target) == _sorted(rendered(target))


@needs_kustomize
@pytest.mark.parametrize("component", [c for c in COMPONENTS if c not in INCLUDED])
def test_components_on_top(component: str, tmp_path: Path) -> None:
    """As docs/install.md tells to use them: from a kustomization of one's own."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    own = tmp_path / "own"
    own.mkdir()
    text = {"resources": ["../manifests/overlays/standalone"], "components": [f"../manifests/components/{component}"]}
    (own / "kustomization.yaml").write_text(yaml.safe_dump(text))
    assert _kustomized(own) == _sorted(rendered("overlays/standalone", component))
