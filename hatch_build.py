"""Build hook: make the Python messages of the kubelet's podresources service from our .proto file.

Runs for wheels and for editable installs; `python hatch_build.py` does the same by hand.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO = "node_exporter/_podresources/podresources.proto"


class PodResourcesHook(BuildHookInterface):
    """Generates before anything is collected; the files are named as artifacts in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Called by hatchling at the start of a build."""
        generate(Path(self.root))


def generate(root: Path) -> None:
    """Write podresources_pb2.py and its type stub next to the .proto file. Raises RuntimeError if protoc refuses it."""
    from grpc_tools import protoc  # noqa: PLC0415 - a requirement of the build only

    status = protoc.main(["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", str(root / PROTO)])
    if status:
        raise RuntimeError(f"protoc failed on {PROTO} with status {status}")


if __name__ == "__main__":
    generate(Path(__file__).parent)
