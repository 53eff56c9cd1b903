"""`python -m extender`, `numa-extender`."""

import gc
import importlib
from typing import Final

import click

from node_exporter.visible import VisibleGroup

COMMANDS: Final = {
    "audit": ("listing", "Compare predictions with what the kubelets did."),
    "capacity": ("pods", "Show how many copies of a pod fit on each node."),
    "decisions": ("listing", "List the last scheduling calls."),
    "defragment": ("advice", "Show what moving pods would gain in the whole cluster."),
    "demo": ("demo", "Show on a sample cluster what the extender does."),
    "doctor": ("doctor", "Say whether a cluster or a node has the problem."),
    "groups": ("listing", "List groups of pods that are placed together."),
    "lint": ("lint", "Find pitfalls in scheduler and kubelet configurations."),
    "machines": ("listing", "List the machines of the catalogue."),
    "make-room": ("advice", "Show which pods to evict so that a pod is aligned."),
    "map": ("listing", "Show the NUMA map of a node."),
    "nodes": ("listing", "List nodes with what is free on each NUMA node."),
    "plan": ("pods", "Show where each pod of a list would go."),
    "replay": ("replay", "Replay scenarios from files."),
    "resize-check": ("advice", "Show whether a kubelet would accept an in-place resize."),
    "restart-check": ("advice", "Show what a restart of kubelets would do to their pods."),
    "rightsize": ("advice", "Show which requests just miss a boundary."),
    "serve": ("serve", "Serve kube-scheduler, exporters and people over HTTP."),
    "tune": ("advice", "Compare kubelet configurations for the cluster's pods."),
    "what-if": ("pods", "Show what each node's kubelet would do with a pod."),
    "why": ("pods", "Show why a pod is pending, or why its kubelet refused it."),
}
"""The module of `extender.cli` that has the click command, imported when it is used, and what the command does."""
FORMER_NAMES: Final = {"explain": "why"}
"""Names that commands had before. Each works for one more release."""


class _Commands(VisibleGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if (name := FORMER_NAMES.get(name, name)) not in COMMANDS:
            return None
        gc.disable()  # what is imported stays: to look for garbage in it takes a fifth of a command's start
        try:
            module = importlib.import_module(f"extender.cli.{COMMANDS[name][0]}")
        except ModuleNotFoundError as error:
            return _not_installed(name, str(error.name))
        finally:
            gc.freeze()
            gc.enable()
        name = name.replace("-", "_")
        command = getattr(module, f"{name}_", None) or getattr(module, name)
        assert isinstance(command, click.Command)
        return command


def _not_installed(command: str, package: str) -> click.Command:
    """Stands for a command whose packages only an extra brings: it is listed, and says so when it is called."""
    text = f"{package} is not installed: pip install 'numa-extender[exporter,server]'"

    def refuse() -> None:
        raise click.ClickException(text)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(command, callback=refuse, help=text, context_settings=anything)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="numa-extender")
def main() -> None:
    """Replay the kubelet's Topology Manager before a pod is bound."""


if __name__ == "__main__":
    main()
