"""Build hook: make the Python messages of gRPC services from our .proto files.

Runs for wheels and for editable installs; `python hatch_build.py` does the same by hand.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = (
    "node_exporter/_podresources/podresources.proto",
    "extender/features/autoscaling/_expander/expander.proto",
)


class MessagesHook(BuildHookInterface):
    """Generates before anything is collected; the files are named as artifacts in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Called by hatchling at the start of a build."""
        generate(Path(self.root))


def generate(root: Path) -> None:
    """Write NAME_pb2.py and its type stub next to each .proto file. Raises RuntimeError if protoc refuses one."""
    from grpc_tools import protoc  # noqa: PLC0415 - a requirement of the build only

    # The exporter's image is built without the extender.
    files = [str(root / proto) for proto in PROTOS if (root / proto).exists()]
    status = protoc.main(["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", *files])
    if status:
        raise RuntimeError(f"protoc failed on {', '.join(PROTOS)} with status {status}")


if __name__ == "__main__":
    generate(Path(__file__).parent)
