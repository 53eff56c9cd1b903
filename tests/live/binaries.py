"""The Kubernetes programs, found by the convention of envtest."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("etcd", "kube-apiserver", "kube-scheduler")


class MissingError(Exception):
    """A program is not on this machine; the message says which, and where it was looked for."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the programs. `kubelets`: nodes have them in turn; empty: not wanted.

    `cluster_autoscaler` and `karpenter`: with the provider kwok; `kueue`: Kueue's manager; `…_crds`: folders with CRDs.
    None: it is not here.
    """

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kubelets: tuple[Path, ...] = ()
    cluster_autoscaler: Path | None = None
    kueue: Path | None = None
    kueue_crds: Path | None = None
    karpenter: Path | None = None
    karpenter_crds: Path | None = None


def find(environ: Mapping[str, str] = os.environ, *, kubelet: bool = False, kubelets: Sequence[Path] = ()) -> Binaries:
    """Each program in the directory `KUBEBUILDER_ASSETS`, or, where it is not there, on `PATH`.

    *kubelet*: it is wanted as well. *kubelets*: these instead.

    Raises:
        MissingError: one or several are in neither.
    """
    assets, path = environ.get("KUBEBUILDER_ASSETS", ""), environ.get("PATH", "")
    searched = f"{assets}{os.pathsep}{path}" if assets else path
    optional = {name: shutil.which(name, path=searched) for name in ("cluster-autoscaler", "kueue", "karpenter")}
    autoscaler, kueue, karpenter = (None if path is None else Path(path) for path in optional.values())
    kueue_crds, karpenter_crds = (Path(assets or ".") / f"{name}-crds" for name in ("kueue", "karpenter"))
    names = (*NAMES, "kubelet") if kubelet and not kubelets else NAMES
    found = {name: shutil.which(name, path=searched) for name in names}
    missing = [name for name, where in found.items() if where is None]
    if missing:
        where = f"in KUBEBUILDER_ASSETS={assets} or on PATH" if assets else "on PATH, and KUBEBUILDER_ASSETS is not set"
        raise MissingError(f"{', '.join(missing)} not found {where}")
    etcd, apiserver, scheduler, *others = (Path(found[name] or "") for name in names)
    return Binaries(
        etcd,
        apiserver,
        scheduler,
        tuple(kubelets) or tuple(others),
        cluster_autoscaler=autoscaler,
        kueue=kueue,
        kueue_crds=kueue_crds if kueue_crds.is_dir() else None,
        karpenter=karpenter,
        karpenter_crds=karpenter_crds if karpenter_crds.is_dir() else None,
    )
