"""`python -m extender`, `numa-extender`."""

import importlib
from typing import Final

import click

from node_exporter.visible import VisibleGroup

COMMANDS: Final = {
    "audit": "listing",
    "capacity": "pods",
    "decisions": "listing",
    "defragment": "advice",
    "demo": "demo",
    "doctor": "doctor",
    "groups": "listing",
    "lint": "lint",
    "machines": "listing",
    "make-room": "advice",
    "map": "listing",
    "nodes": "listing",
    "plan": "pods",
    "replay": "replay",
    "resize-check": "advice",
    "restart-check": "advice",
    "rightsize": "advice",
    "serve": "serve",
    "tune": "advice",
    "what-if": "pods",
    "why": "pods",
}
"""The module of `extender.cli` that has the click command of this name. It is imported when it is used."""
FORMER_NAMES: Final = {"explain": "why"}
"""Names that commands had before. Each works for one more release."""


class _Commands(VisibleGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if (name := FORMER_NAMES.get(name, name)) not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"extender.cli.{COMMANDS[name]}")
        except ModuleNotFoundError as error:
            return _not_installed(name, str(error.name))
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
