"""`numa-extender explain`."""

from pathlib import Path

import click

from extender.cli.client import client_options, complete_node, open_client
from extender.cli.output import output_option, show
from extender.cli.render import decision_text


@click.command()
@click.argument("pod", metavar="POD")
@click.option("--node", help="Show this candidate in full, as it was at that moment.", shell_complete=complete_node)
@output_option
@client_options
def explain(
    *,
    pod: str,
    node: str | None,
    output: str,
    server: str,
    token_file: Path | None,
    ca_file: Path | None,
    reports: tuple[Path, ...],
) -> None:
    """Why the last scheduling calls about POD (its UID, NAMESPACE/NAME, or part of either) answered as they did.

    For a pod that the scheduler has not asked about lately, `what-if --explain` tells what would be answered now.
    """
    if reports:
        raise click.UsageError("report files know of no scheduling calls: ask a server, or use what-if --explain")
    with open_client(server=server, token_file=token_file, ca_file=ca_file, reports=reports) as client:
        found = client.get("/v1/decisions", {"pod": pod, "limit": 20})["decisions"]
        exact = [each for each in found if pod in _names(each["pod"])] or found
        if not exact:
            raise click.ClickException(f"no call about {pod!r} is remembered; `what-if --explain` asks now")
        if len(exact) > 1:
            names = ", ".join(sorted(f"{each['pod']['namespace']}/{each['pod']['name']}" for each in exact))
            raise click.ClickException(f"{pod!r} is part of several: {names}")
        decision = exact[0]
        if node is not None:
            decision = client.get(f"/v1/pods/{decision['pod']['uid']}/decision", {"node": node})
    show(output, decision, decision_text)


def _names(pod: dict[str, str]) -> tuple[str, ...]:
    return pod["uid"], pod["name"], f"{pod['namespace']}/{pod['name']}"
