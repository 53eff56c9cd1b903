"""`numa-extender lint`: finds pitfalls in configurations of schedulers, kubelets and our own components."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError
from rich.text import Text

from extender.cli.output import console_for
from extender.config.settings import Settings
from extender.kubelet.errors import UnknownVersionError
from extender.kubelet.rules import NEWEST_MINOR, parse_minor
from extender.lint import RULES, Finding, Severity
from extender.lint import lint as lint_documents
from extender.lint.catalogue import found
from extender.lint.context import Context, Fault
from extender.lint.documents import MAX_BYTES, Located, read_documents, read_environment
from extender.lint.kubelet import NUMA_NODE_BYTES
from extender.lint.workloads import PREFIX
from extender.questions.words import plural
from extender.wire.errors import WireError
from node_exporter.__main__ import main as exporter_program
from node_exporter.kubelet_config import effective_config

SUFFIXES: Final = (".yaml", ".yml", ".json")
_COLOURS: Final[Mapping[Severity, str]] = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def version(text: str) -> str:
    """A Kubernetes version whose rules are known."""
    try:
        parse_minor(text)
    except UnknownVersionError as error:
        raise click.BadParameter(str(error).replace("kubelet", "Kubernetes")) from None
    return text


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE|DIRECTORY|-]...")
@click.option(
    "--kube-version", type=version, default=f"v1.{NEWEST_MINOR}.0", show_default=True, help="Version of kube-scheduler."
)
@click.option("--kubelet-version", type=version, help="Version of the kubelets.  [default: as --kube-version]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--rules", is_flag=True, help="List the rules and read no file.")
def lint(*, files: tuple[str, ...], kube_version: str, kubelet_version: str | None, output: str, rules: bool) -> None:
    """Find pitfalls, each with file, line, consequence and fix.

    Reads KubeSchedulerConfigurations, KubeletConfigurations, manifests of numa-extender and numa-node-exporter, also
    inside ConfigMaps, and files of NUMA_EXTENDER_ variables (*.env), all together. No FILE or - is standard input.
    The exit code is 1 if there is an error.
    """
    if rules:
        click.echo("\n".join(f"{rule.severity:8}{name}: {rule.problem}" for name, rule in RULES.items()))
        return
    program = click.get_current_context().find_root().command
    assert isinstance(program, click.Group)
    context = make_context(
        program, kube_minor=parse_minor(kube_version), kubelet_version=kubelet_version or kube_version
    )
    documents: list[Located] = []
    findings: list[Finding] = []
    for name, is_named in _expand(files or ("-",)):
        try:
            documents += [document for document in _read(name) if is_named or document.text("kind")]
        except WireError as error:
            findings.append(_unreadable(error))
    findings += lint_documents(documents, context)
    (_print_json if output == "json" else _print_text)(findings)
    sys.exit(1 if any(finding.severity is Severity.ERROR for finding in findings) else 0)


def _expand(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The files, and the YAML and JSON files of each directory, by name. True: the user named the file itself."""
    for name in names:
        if name != "-" and Path(name).is_dir():
            files = (path for path in sorted(Path(name).rglob("*")) if path.suffix in SUFFIXES and path.is_file())
            yield from ((str(path), False) for path in files)
        else:
            yield name, True


def _read(name: str) -> tuple[Located, ...]:
    try:
        if name == "-":
            return read_documents(sys.stdin.buffer.read(MAX_BYTES + 1), "-")
        with Path(name).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise WireError(f"{name}:0", error.strerror or str(error)) from None
    return read_environment(content, name) if name.endswith(".env") else read_documents(content, name)


def _unreadable(error: WireError) -> Finding:
    file, _, line = error.field.rpartition(":")
    return found("unreadable", Located(None, file, int(line)), reason=error.reason)


def _print_text(findings: Sequence[Finding]) -> None:
    console = console_for()
    for finding in findings:
        severity = finding.severity.value, f"bold {_COLOURS[finding.severity]}"
        what = f" [{finding.rule}] {finding.path or 'document'}: {finding.why}\n    fix: {finding.fix}"
        console.print(Text.assemble(f"{finding.file}:{finding.line}: ", severity, what), soft_wrap=True)
    count = Counter(finding.severity for finding in findings)
    total = ", ".join(plural(count[severity], severity.value) for severity in Severity)
    click.echo(total.replace("infos", "info"), err=True)


def _print_json(findings: Sequence[Finding]) -> None:
    count = Counter(finding.severity for finding in findings)
    report = {
        "findings": [asdict(finding) for finding in findings],
        "count": {severity.value: count[severity] for severity in Severity},
    }
    click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))


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
    """The variable to correct: the field's, or the first one in the message if two fields contradict each other."""
    if fault["loc"]:
        return fields.get(str(fault["loc"][0]), next(iter(fields.values())))
    named = [variable for field, variable in fields.items() if field in fault["msg"]]
    return named[0] if named else next(iter(fields.values()))


def check_arguments(group: click.Group, program: str, arguments: Sequence[str]) -> str | None:
    """The error of a program for these arguments, None if they are valid. It is not checked whether paths exist."""
    context = click.Context(group, info_name=program, **group.context_settings)
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
