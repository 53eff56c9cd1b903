"""The manifest with which krew installs `kubectl numa`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from release.archives import sha256
from release.version import ReleaseVersion

PLUGIN: Final = "numa"


def manifest(version: ReleaseVersion, source: str, archives: Mapping[str, Path]) -> dict[str, Any]:
    """*source*: URL of the repository. *archives*: platform, such as linux-amd64 -> archive with `kubectl-numa`."""
    platforms = []
    for platform, path in archives.items():
        system, _, architecture = platform.partition("-")
        platforms.append({
            "selector": {"matchLabels": {"os": system, "arch": architecture}},
            "uri": f"{source}/releases/download/v{version.semantic}/{path.name}",
            "sha256": sha256(path),
            "bin": "kubectl-numa",
        })  # fmt: skip
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version.semantic}",
            "homepage": source,
            "shortDescription": "Ask where pods fit on NUMA nodes",
            "description": "Asks numa-extender, or files of node reports, where the Topology Manager of kubelets\n"
            "accepts a pod, what is free on each NUMA node, and what would make room.\n",
            "caveats": "Requires Python 3.11 or newer as python3. The first start unpacks the file into ~/.shiv.\n",
            "platforms": platforms,
        },
    }


def write(document: Mapping[str, Any], target: Path) -> None:
    """Write it as YAML."""
    target.write_text(yaml.safe_dump(document, sort_keys=False))
