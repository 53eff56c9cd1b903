"""`python -m extender`, `numa-extender`."""

import importlib
from typing import Final

import click

from node_exporter.visible import VisibleGroup

COMMANDS: Final = (
    "capacity",
    "defragment",
    "demo",
    "explain",
    "lint",
    "machines",
    "make-room",
    "map",
    "nodes",
    "plan",
    "replay",
    "resize-check",
    "restart-check",
    "rightsize",
    "serve",
    "tune",
    "what-if",
)
"""Each is a module of `extender.cli` with a click command of the same name, imported when it is used."""


class _Commands(VisibleGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        name = name.replace("-", "_")
        try:
            module = importlib.import_module(f"extender.cli.{name}")
        except ModuleNotFoundError as error:
            return _not_installed(name, str(error.name))
        command = getattr(module, name, None) or getattr(module, f"{name}_")
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
