"""Runs the exporter once for each sample node, each time as a separate process."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from extender.samples.nodes import SampleNode

PARALLEL = 4
TIMEOUT_SECONDS = 60


class PublishError(Exception):
    """The report of an exporter was not accepted."""


def publish(nodes: Sequence[SampleNode], root: Path, url: str) -> Iterator[str]:
    """Report every node to the extender at *url*. Yields each name when its report is accepted.

    The files of a node are in *root*/NAME.

    Raises:
        PublishError: a report was not accepted. The message is the exporter's.
    """
    with ThreadPoolExecutor(PARALLEL) as pool:
        running = [pool.submit(_publish_one, node, root / node.name, url) for node in nodes]
        for done in as_completed(running):
            yield done.result()


def _publish_one(node: SampleNode, root: Path, url: str) -> str:
    command = [
        *(sys.executable, "-m", "node_exporter", "run", "--once"),
        *("--root", str(root)),
        *("--node-name", node.name),
        *("--kubelet-version", node.description.kubelet_version),
        *("--push", url),
        *("--listen", ""),
    ]
    done = subprocess.run(  # noqa: S603 - our own exporter, with our own arguments
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        raise PublishError(f"{node.name}: {done.stderr.strip()[-500:]}")
    return node.name
