"""`numa-extender explain`."""

import click

from extender.api.records.models import PodDecision
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.output import show
from extender.cli.render import decision_text


@click.command(short_help="Show the reasons of the last scheduling calls about a pod.")
@click.argument("pod", metavar="POD")
@click.option(
    "--node", help="Show details of this candidate, as it was at the time of the call.", shell_complete=complete_node
)
@client_options
@click.pass_context
def explain(context: click.Context, *, pod: str, node: str | None, client: ExtenderClient) -> None:
    """Show why the last scheduling calls about POD (a UID, NAMESPACE/NAME, or a part) gave their answers.

    For a pod without a recent scheduling call, `what-if --explain` shows what the answer would be now.
    """
    if context.params["reports"]:
        raise click.UsageError("report files contain no scheduling calls: use a server, or what-if --explain")
    found = client.get("/v1/decisions", {"pod": pod, "limit": 20})["decisions"]
    exact = [each for each in found if pod in _names(each["pod"])] or found
    if not exact:
        raise click.ClickException(f"there is no recent call about {pod!r}; `what-if --explain` judges it now")
    if len(exact) > 1:
        names = ", ".join(sorted(f"{each['pod']['namespace']}/{each['pod']['name']}" for each in exact))
        raise click.ClickException(f"{pod!r} matches several pods: {names}")
    decision = exact[0]
    if node is not None:
        decision = client.get(f"/v1/pods/{decision['pod']['uid']}/decision", {"node": node})
    show(client.output, decision, PodDecision, decision_text)


def _names(pod: dict[str, str]) -> tuple[str, ...]:
    return pod["uid"], pod["name"], f"{pod['namespace']}/{pod['name']}"
