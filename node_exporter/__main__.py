"""Command line of the exporter: numa-node-exporter report | run."""

import socket
import time
from pathlib import Path

import click
import orjson

from node_exporter.build import build_report
from node_exporter.observe import RunningConfig, observe, read_fixed
from node_exporter.sequence import next_sequence

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("/"),
    envvar="NUMA_ROOT",
    show_default=True,
    help="Directory under which the node's /sys, /proc, /var/lib/kubelet and /var/log/pods lie.",
)
name_option = click.option(
    "--node-name", envvar="NODE_NAME", default=socket.gethostname, help="Name of the Node object. [default: host name]"
)
version_option = click.option(
    "--kubelet-version", envvar="KUBELET_VERSION", help='Such as "v1.36.2"; wins over what the kubelet says of itself.'
)
directory_option = click.option(
    "--kubelet-dir",
    envvar="KUBELET_DIR",
    help="The kubelet's --root-dir. [default: its command line, /var/lib/kubelet]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="numa-extender")
def main() -> None:
    """Publish what the kubelet's resource managers see of this node."""


@main.command()
@root_option
@name_option
@version_option
@directory_option
def report(root: Path, node_name: str, kubelet_version: str | None, kubelet_dir: str | None) -> None:
    """Print the NodeReport of the machine whose files lie under --root."""
    fixed = read_fixed(root, running=RunningConfig(), kubelet_dir=kubelet_dir, kubelet_version=kubelet_version)
    observation = observe(root, fixed, lambda: (None, ()), time.sleep)
    node_report = build_report(observation, node_name=node_name, sequence=next_sequence(0), observed_at=time.time())
    click.echo(orjson.dumps(node_report, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
