"""Common parts of commands about pods: manifests, nodes, hypothetical nodes, and errors that name the option."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from msgspec.inspect import BoolType, IntType, StructType, UnionType, type_info
from msgspec.inspect import Field as StructField
from msgspec.inspect import Metadata as Described

from extender.cli.client import ExtenderFault, complete_machine, complete_node, content, options
from extender.kubelet.rules import NEWEST_MINOR, OLDEST_MINOR
from extender.wire.documents import read_documents
from extender.wire.errors import WireError
from extender.wire.questions import CapacityRequest, Question
from extender.wire.workloads import bundle_of

F = TypeVar("F", bound=Callable[..., Any])
MAX_FILE_BYTES: Final = 16 << 20
MANIFEST: Final = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
Json = dict[str, Any]


manifest_option: Final = click.option(
    "-f",
    "--file",
    "files",
    required=True,
    multiple=True,
    type=MANIFEST,
    help="Manifests of pods or of objects with a pod template; YAML or JSON, several documents or a list; - is "
    "standard input.",
)
"""Adds `-f FILE`, which may be repeated, as argument `files`."""


def kubelet_options(applies_to: str) -> Callable[[F], F]:
    """Adds the options for other kubelet settings. The help of each begins with *applies_to*."""
    return options(
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="FIELD=VALUE",
            help=f"{applies_to}: a field of KubeletConfiguration, such as topologyManagerPolicy=restricted.",
        ),
        click.option(
            "--feature-gate",
            "gates",
            multiple=True,
            metavar="NAME=true|false",
            help=f"{applies_to}: a feature gate of the kubelet.",
        ),
        click.option(
            "--kubelet-version",
            help=f"{applies_to}: another kubelet, v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}; a newer one is replayed as "
            f"v1.{NEWEST_MINOR}.",
        ),
        click.option(
            "--rule",
            "rules",
            multiple=True,
            metavar="NAME=true|false",
            help=f"{applies_to}: a behaviour that the kubelet's vendor or patch release changed, such as "
            "distribute_inside_hint=true; may be given several times.",
        ),
    )


def field_options(question: type[Question], *names: str) -> Callable[[F], F]:
    """Adds an option for each of these fields of a question, with its type, limits, default and description."""
    declared = type_info(question)
    assert isinstance(declared, StructType)
    fields = {field.name: field for field in declared.fields}
    return options(*(_option_of(fields[name]) for name in names))


def _option_of(field: StructField) -> Callable[[F], F]:
    declared = field.type
    assert isinstance(declared, Described)
    kind = next(iter(declared.type.types)) if isinstance(declared.type, UnionType) else declared.type
    text = (declared.extra_json_schema or {})["description"]
    text = text.replace("Null:", "Not given:").replace("null:", "not given:")
    flag = f"--{field.name.replace('_', '-')}"
    if isinstance(kind, BoolType):
        return click.option(flag, is_flag=True, help=text)
    allowed: Any = str
    if isinstance(kind, IntType):
        most = kind.lt - 1 if kind.lt is not None else kind.le
        allowed = int if kind.ge is None else click.IntRange(kind.ge, most)
    return click.option(
        flag, type=allowed, default=field.default, show_default=field.default not in (None, ""), help=text
    )


def row_options(command: F) -> F:
    """Adds `--limit` and `--all`, as argument `rows`: how many rows a table may have before equal ones are grouped."""
    return options(
        click.option(
            "--limit",
            "rows",
            type=click.IntRange(min=1),
            default=20,
            show_default=True,
            help="Tables with more rows show groups of equal answers, each with three names and its first answer.",
        ),
        click.option("--all", "rows", flag_value=sys.maxsize, type=int, help="A row for each, however many there are."),
    )(command)


only_nodes: Final = click.option(
    "--node", "nodes", multiple=True, shell_complete=complete_node, help="Only these nodes; repeatable."
)
"""Adds `--node`, as argument `nodes`."""
node_options: Final[Callable[[F], F]] = options(
    click.option("--node", "nodes", multiple=True, shell_complete=complete_node, help="Only this live node."),
    click.option("--copy", "copies", multiple=True, shell_complete=complete_node, help="A copy of this node."),
    click.option(
        "--machine",
        "machines",
        multiple=True,
        shell_complete=complete_machine,
        help="An empty machine of the catalogue.",
    ),
    click.option("--empty", is_flag=True, help="For copies: remove all pods."),
    click.option("--remove-pod", "removed", multiple=True, help="For copies: remove this pod (NAMESPACE/NAME or UID)."),
    click.option("--add-pod", "added", multiple=True, type=MANIFEST, help="For copies and machines: add this pod."),
    kubelet_options("Copies, machines"),
)
"""Adds the options for the nodes of a question."""


@dataclass(frozen=True, slots=True)
class TypedManifest:
    """One workload. `typed`: its name in errors: option, file, and place in a file with several workloads."""

    document: Json
    typed: str


def read_manifests(files: Iterable[Path]) -> list[TypedManifest]:
    """Every workload of the files, including lists and objects with several templates. Raises ClickException."""
    return [part for file in files for part in _parts(file, "-f")]


def read_manifest(file: Path, option: str) -> Json:
    """The only workload of the file of an option. Raises ClickException."""
    parts = _parts(file, option)
    if len(parts) != 1:
        raise click.ClickException(f"{option} {file}: one workload is expected, not {len(parts)}")
    return parts[0].document


def _parts(file: Path, option: str) -> list[TypedManifest]:
    body = content(file, option)
    if len(body) > MAX_FILE_BYTES:
        raise click.ClickException(f"{option} {file}: larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        bundle = bundle_of(read_documents(body, ""))
    except WireError as error:
        raise click.ClickException(f"{option} {file}: {error}") from None
    if bundle.passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(bundle.passed_over.items()))
        click.echo(f"{file}: skipped, because they have no pod template: {kinds}", err=True)
    return [
        TypedManifest(part.document, " ".join(filter(None, (option, str(file), part.path)))) for part in bundle.parts
    ]


def body_of(question: type[Question], pods: Sequence[TypedManifest], given: Json) -> Json:
    """A question from *given* options: its fields by name, and those that pods, nodes and options of kubelets make."""
    fields = question.__struct_fields__
    body = {name: given[name] for name in fields if name in given}
    if "pod" in fields and "pod" not in given:
        if len(pods) != 1:
            raise click.UsageError(f"one workload is expected, not {len(pods)}")
        body["pod"] = pods[0].document
    elif "pods" in fields:
        is_mix = question is CapacityRequest
        body["pods"] = [pod.document if is_mix else {"pod": pod.document} for pod in pods]
    if "copies" in given:
        return body | _nodes_of(given)
    if "gates" in given:
        body |= _kubelet_changes(given)
    return body | {"nodes": list(given["nodes"]) or None} if "nodes" in given else body


def _nodes_of(given: Json) -> Json:
    """`nodes` and `hypothetical` of a question."""
    copies, machines, nodes = given["copies"], given["machines"], list(given["nodes"])
    changes = {name: value for name, value in _kubelet_changes(given).items() if value}
    if given["added"]:
        changes["add_pods"] = [read_manifest(file, "--add-pod") for file in given["added"]]
    of_copies = {**changes, "empty": given["empty"], "remove_pods": list(given["removed"])}
    if (changes or given["empty"] or given["removed"]) and not (copies or machines):
        raise click.UsageError(
            "--set, --empty and similar options change copies and machines: add one with --copy or --machine"
        )
    hypothetical = [{"copy_of": name, "name": f"{name} (copy)", **of_copies} for name in copies]
    hypothetical += [{"machine": name, "name": f"{name} (machine)", **changes} for name in machines]
    return {"nodes": nodes, "hypothetical": hypothetical} if hypothetical else {"nodes": nodes or None}


def _kubelet_changes(given: Json) -> Json:
    """The fields of a question for what `kubelet_options` gave."""
    return {
        "kubelet": _settings(given["settings"], given["gates"]),
        "kubelet_version": given["kubelet_version"],
        "rules": dict(_switch("--rule", text) for text in given["rules"]),
    }


def _settings(texts: tuple[str, ...], gates: tuple[str, ...]) -> Json:
    """The fields of FIELD=VALUE, or FIELD.KEY=VALUE for a map. *gates*: NAME=true or NAME=false."""
    fields: Json = {}
    for text in texts:
        name, equals, value = text.partition("=")
        field, dot, key = name.partition(".")
        if not equals or not field:
            raise click.UsageError(f"--set {text}: not of the form FIELD=VALUE")
        if field == "featureGates" and dot:
            fields[field] = {**fields.get(field, {}), key: _gate(f"--set {text}", value)}
        elif dot:
            fields[field] = {**fields.get(field, {}), key: value}
        else:
            fields[field] = value
    for text in gates:
        name, is_on = _switch("--feature-gate", text)
        given = fields.setdefault("featureGates", {})
        if not isinstance(given, dict):
            raise click.UsageError("--set featureGates=…: write --feature-gate NAME=true or NAME=false")
        given[name] = is_on
    return fields


def _switch(option: str, text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text}: not of the form NAME=true or NAME=false")
    return name, _gate(f"{option} {text}", value)


def _gate(option: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise click.UsageError(f"{option}: {value!r} is neither true nor false")
    return value.lower() == "true"


@contextmanager
def naming_what_was_typed(manifests: Sequence[TypedManifest], **nodes: Any) -> Iterator[None]:
    """Errors of the extender name the option instead of the field of the question."""
    try:
        yield
    except ExtenderFault as fault:
        raise click.ClickException(_as_typed(fault.message, manifests, nodes)) from None


def _as_typed(message: str, manifests: Sequence[TypedManifest], nodes: Json) -> str:
    """*message* with the option instead of its path. Unchanged if it begins with no path."""
    copies, machines = nodes.get("copies", ()), nodes.get("machines", ())
    unknown = re.search(r"no report of node '(.*)'$", message)
    if unknown is not None and unknown[1] in nodes.get("nodes", ()):
        return f"--node {unknown[1]}: {message}"
    path, colon, reason = message.partition(": ")
    made = re.fullmatch(r"hypothetical\[(\d+)\]\.(.*)", path)
    if made is not None:
        index, field = int(made[1]), made[2]
        name = f"--copy {copies[index]}" if index < len(copies) else f"--machine {machines[index - len(copies)]}"
        return f"{_hypothetical(field, name, nodes)}{colon}{reason}"
    asked = re.fullmatch(r"pods?(?:\[(\d+)\])?(?:\.pod)?(?:\.(.*))?", path)
    if asked is not None and manifests:
        typed = manifests[int(asked[1] or 0)].typed
        return f"{typed}{f', {asked[2]}' if asked[2] else ''}{colon}{reason}"
    return message


def _hypothetical(field: str, name: str, nodes: Json) -> str:
    """The option for a field of a hypothetical node. *name*: the option that created the node."""
    listed = re.fullmatch(r"(remove_pods|add_pods)\[(\d+)\](?:\.(.*))?", field)
    if listed is not None:
        option, values = {"remove_pods": ("--remove-pod", "removed"), "add_pods": ("--add-pod", "added")}[listed[1]]
        return f"{option} {nodes[values][int(listed[2])]}{f', {listed[3]}' if listed[3] else ''}"
    if field.startswith("kubelet.featureGates.") and nodes["gates"]:
        return f"--feature-gate {field.removeprefix('kubelet.featureGates.')}"
    if field.startswith("kubelet."):
        return f"--set {field.removeprefix('kubelet.')}"
    return {"kubelet_version": f"--kubelet-version {nodes['kubelet_version']}"}.get(field, name)
