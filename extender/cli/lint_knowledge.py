"""Facts about our own programs for the linter, read from the programs: routes, settings, command lines."""

from collections.abc import Mapping, Sequence
from typing import Final

import click
import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from extender.config.settings import Settings
from extender.lint.context import Context, Fault
from extender.lint.kubelet import NUMA_NODE_BYTES
from extender.lint.workloads import PREFIX
from node_exporter.__main__ import main as exporter_program
from node_exporter.kubelet_config import effective_config

VERBS: Final = frozenset(f"/scheduler/{verb}" for verb in ("filter", "prioritize", "preempt", "bind"))
"""The routes that kube-scheduler calls. Listed here, because importing them takes seconds; a test compares them."""
PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""The paths of probes of both programs."""


def make_context(extender_program: click.Group, *, kube_minor: int, kubelet_version: str) -> Context:
    """The linter's context for these versions of Kubernetes and this version of our programs."""
    programs = {"numa-extender": extender_program, "numa-node-exporter": exporter_program}
    return Context(
        kube_minor=kube_minor,
        kubelet_version=kubelet_version,
        routes=VERBS,
        probes=dict.fromkeys(programs, PROBES),
        defaults={f"{PREFIX}{name.upper()}": field.default for name, field in Settings.model_fields.items()},
        check_settings=check_settings,
        check_arguments=lambda program, arguments: check_arguments(programs[program], program, arguments),
        effective_kubelet=effective_kubelet,
    )


def check_settings(values: Mapping[str, str]) -> Sequence[Fault]:
    """The errors of the service for these environment variables together, each with the variable to correct."""
    source = EnvSettingsSource(Settings)
    source.env_vars = {variable.lower(): value for variable, value in values.items()}
    fields = {variable.removeprefix(PREFIX).lower(): variable for variable in values}
    try:
        Settings(**source())
    except SettingsError as error:
        named = [variable for field, variable in fields.items() if f'"{field}"' in str(error)]
        return [(named[0], "not JSON")] if named else []
    except ValidationError as error:
        return [(_variable_of(fault, fields), str(fault["msg"])) for fault in error.errors() if fields]
    return []


def _variable_of(fault: ErrorDetails, fields: Mapping[str, str]) -> str:
    """The variable to correct: the field's own. For a contradiction between fields the first one in the message."""
    if fault["loc"]:
        return fields.get(str(fault["loc"][0]), next(iter(fields.values())))
    named = [variable for field, variable in fields.items() if field in fault["msg"]]
    return named[0] if named else next(iter(fields.values()))


def check_arguments(group: click.Group, program: str, arguments: Sequence[str]) -> str | None:
    """The error of a program for these arguments, None if they are valid. It is not checked whether paths exist."""
    context = click.Context(group, info_name=program)
    name = arguments[0] if arguments else ""
    command = group.get_command(context, name)
    if command is None:
        return f"no command {name!r}; one of {', '.join(group.list_commands(context))}"
    inner = click.Context(command, info_name=name, parent=context)
    try:
        values, _, _ = command.make_parser(inner).parse_args(list(arguments[1:]))
        for parameter in command.params:
            value = values.get(parameter.name or "")
            if isinstance(value, str) and not isinstance(parameter.type, click.Path):
                parameter.type.convert(value, parameter, inner)
    except click.UsageError as error:
        return error.format_message()
    return None


def effective_kubelet(document: Mapping[str, object]) -> tuple[Mapping[str, object], Sequence[Fault]]:
    """A KubeletConfiguration as the exporter reads it, on a machine with enough memory."""
    config, problems = effective_config(document, memory_capacity=2 * NUMA_NODE_BYTES, is_running_config=False)
    return orjson.loads(orjson.dumps(config)), tuple((problem.path, problem.reason) for problem in problems)
