"""Command line of the exporter: numa-node-exporter report | run."""

import difflib
import logging
import os
import socket
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import click
import orjson

from node_exporter import service
from node_exporter.agent import Cadence, next_sequence
from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.nri_policy import config_from_api, config_from_file
from node_exporter.podresources import kubelet_at
from node_exporter.sinks import DrySink, Sink
from node_exporter.sinks.http import HttpSink
from node_exporter.sinks.nrt import MAX_ANSWER_BYTES, NrtSink
from node_exporter.visible import VisibleGroup, set_up_logging

LOG = logging.getLogger(__name__)
Decorator = Callable[[Callable[..., None]], Callable[..., None]]
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILE = click.Path(path_type=Path)
HELP = tomllib.loads(files("node_exporter").joinpath("options.toml").read_text())
"""What each option means, as `--help` shows it."""


def _rules(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, bool]:
    """The switches of `--rule`, each NAME=true or NAME=false."""
    rules: dict[str, bool] = {}
    for text in texts:
        name, _, setting = text.partition("=")
        if not name.isidentifier() or setting not in ("true", "false"):
            raise click.BadParameter(f"{text!r} is neither NAME=true nor NAME=false")
        rules[name] = setting == "true"
    return rules


def _listening(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """Click treats an empty variable as unset. Here it means: do not listen."""
    is_default = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.DEFAULT
    return "" if is_default and os.environ.get("NUMA_LISTEN") == "" else text


def unknown_variables(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Environment variables that look like options of this program but are not, with the most similar option.

    The option is None if none is similar. NUMA_EXTENDER_… belongs to the extender and to the links of its Service.
    """
    known = [str(parameter.envvar) for parameter in run.params if parameter.envvar]
    for name in sorted(names):
        if name.startswith("NUMA_") and name not in known and not name.startswith("NUMA_EXTENDER_"):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            yield name, near[0] if near else None


def _option(flag: str, variable: str | None = None, *, name: str | None = None, **how: Any) -> Decorator:
    """The option `--FLAG`, which the environment variable sets as well. Its default is shown."""
    names = (f"--{flag}", name) if name else (f"--{flag}",)
    return click.option(*names, envvar=variable, help=HELP[flag], **({"show_default": "default" in how} | how))


def _node_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that both commands have. The command gets `NodeSettings` in place of them."""

    @wraps(command)
    def with_node(*, nri_config: Path | None, **options: Any) -> None:
        named = {each.name: options.pop(each.name) for each in fields(NodeSettings) if each.name in options}
        read = config_from_file(nri_config) if nri_config else None
        command(node=NodeSettings(nri_config=read, **named), **options)

    existing = click.Path(path_type=Path, exists=True, file_okay=False)
    options = (
        _option("root", "NUMA_ROOT", type=existing, default=Path("/")),
        _option("node-name", "NODE_NAME", default=socket.gethostname, show_default=False),
        _option("kubelet-dir", "KUBELET_DIR"),
        _option("kubelet-version", "KUBELET_VERSION"),
        _option("rule", "NUMA_RULES", name="rules", multiple=True, callback=_rules, metavar="NAME=true|false"),
        _option("nri-config", "NUMA_NRI_CONFIG", type=FILE),
        _option("nri-release", "NUMA_NRI_RELEASE", default="", show_default=False),
    )
    wrapped: Callable[..., None] = with_node
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


@click.group(cls=VisibleGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="numa-extender")
def main() -> None:
    """Publish the topology of this node and what the kubelet's resource managers have allocated."""


@main.command()
@_node_options
def report(*, node: NodeSettings) -> None:
    """Print the NodeReport of the machine whose files are under --root, as one line of JSON."""
    content = NodeReader(node).look(is_tick=True)
    click.echo(orjson.dumps(replace(content, sequence=next_sequence(0), observed_at=time.time())))


@main.command()
@_node_options
@_option("push", "NUMA_PUSH_URL")
@_option("nrt", "NUMA_NRT", is_flag=True)
@_option("api-url", "NUMA_API_URL")
@_option("api-token-file", "NUMA_API_TOKEN_FILE", type=FILE, default=SERVICE_ACCOUNT / "token")
@_option("api-ca-file", "NUMA_API_CA_FILE", type=FILE, default=SERVICE_ACCOUNT / "ca.crt")
@_option("nrt-refresh", "NUMA_NRT_REFRESH", type=click.FloatRange(min=1), default=600.0)
@_option("interval", "NUMA_INTERVAL", type=click.FloatRange(min=0.1), default=30.0)
@_option("nri-namespace", "NUMA_NRI_NAMESPACE")
@_option("once", is_flag=True)
@_option("dry-run", is_flag=True)
@_option("listen", "NUMA_LISTEN", default="127.0.0.1:9473", callback=_listening)
@_option("timeout", "NUMA_TIMEOUT", type=click.FloatRange(min=0.1), default=5.0)
@_option("token-file", "NUMA_TOKEN_FILE", type=FILE)
@_option("ca-file", "NUMA_CA_FILE", type=FILE)
@_option("cert-file", "NUMA_CERT_FILE", type=FILE)
@_option("key-file", "NUMA_KEY_FILE", type=FILE)
@_option("kubelet-url", "KUBELET_URL")
@_option("kubelet-token-file", "KUBELET_TOKEN_FILE", type=FILE, default=SERVICE_ACCOUNT / "token")
@_option("kubelet-ca-file", "KUBELET_CA_FILE", type=FILE)
@_option("kubelet-pin-file", "KUBELET_PIN_FILE", type=FILE)
@_option("log-level", "NUMA_LOG_LEVEL", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@_option("log-format", "NUMA_LOG_FORMAT", type=click.Choice(["text", "json"]), default="text")
def run(
    *,
    node: NodeSettings, nri_namespace: str | None, push: str | None,
    nrt: bool, api_url: str | None, api_token_file: Path, api_ca_file: Path, nrt_refresh: float,
    interval: float, once: bool, dry_run: bool, listen: str, timeout: float,
    token_file: Path | None, ca_file: Path | None, cert_file: Path | None, key_file: Path | None,
    kubelet_url: str | None, kubelet_token_file: Path, kubelet_ca_file: Path | None, kubelet_pin_file: Path | None,
    log_level: str, log_format: Literal["text", "json"],
) -> None:  # fmt: skip
    """Report to an extender, or to the API server, at an interval and on change, until SIGTERM.

    Token and certificates are read again when they change. An empty environment variable counts as unset (except
    NUMA_LISTEN). A variable that is not an option is logged as a warning.
    """
    if not dry_run and bool(push) == nrt:
        raise click.UsageError("Name the receiver: either --push URL or --nrt; or use --dry-run.")
    set_up_logging(log_level, log_format)
    for name, near in unknown_variables(os.environ):
        LOG.warning("unknown option: %s has no effect%s", name, f"; did you mean {near}?" if near else "")
    api = None
    if (nrt and not dry_run) or (nri_namespace and not node.nri_config):
        api = _api_server(api_url, CredentialFiles(token_file=api_token_file, ca_file=api_ca_file), timeout)
    if kubelet_url:
        trust = CredentialFiles(token_file=kubelet_token_file, ca_file=kubelet_ca_file, pin_file=kubelet_pin_file)
        node = replace(node, kubelet_api=_kubelet(kubelet_url, trust))
    certificates = {"kubelet": kubelet_pin_file, "kubelet_ca": kubelet_ca_file} if kubelet_url else {}
    sink: Sink
    if dry_run:
        sink, mode, receiver = DrySink(sys.stdout.buffer), "dry-run", "-"
    elif api and nrt:
        sink, mode, receiver = NrtSink(api, node.node_name, refresh_seconds=nrt_refresh), "nrt", api.url
    else:
        credentials = CredentialFiles(token_file=token_file, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
        mode, receiver = "push", push or ""
        sink = HttpSink(receiver, node.node_name, timeout_seconds=timeout, credentials=credentials)
        certificates |= {"client": cert_file, "extender_ca": ca_file}
    if api and nri_namespace and not node.nri_config:
        node = replace(node, nri_config=config_from_api(api, node.node_name, nri_namespace))
    settings = service.ServiceSettings(
        node=node,
        sink=sink,
        mode=mode,
        receiver=receiver,
        certificates=certificates,
        cadence=Cadence(interval=interval),
        listen=_address(listen),
    )
    if once:
        sys.exit(0 if service.run_once(settings) else 1)
    service.run_until_signal(settings)


def _kubelet(url: str, credentials: CredentialFiles) -> Connection:
    try:
        return kubelet_at(url, credentials)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _api_server(url: str | None, credentials: CredentialFiles, timeout_seconds: float) -> Connection:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not url and not host:
        raise click.UsageError("Not in a pod: name the API server with --api-url.")
    in_url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        url or in_url, timeout_seconds=timeout_seconds, credentials=credentials, max_answer_bytes=MAX_ANSWER_BYTES
    )


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    main()
