"""A thousand recorded states of the NRI policy: the filter's answers over HTTP against those of the plugin itself."""

from collections import Counter

import orjson
from rich.console import Console
from rich.table import Table
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.identity import EVERYTHING
from tests.nri_states import filter_answer, machine_facts, report_with, sampled_creations, section_of
from tests.reports import args_of

STATES = 1000


def run(console: Console) -> None:
    """Print one table: the plugin's answer, the extender's answer, how often."""
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    service = make_service(
        Settings(max_nodes=2 * STATES, max_body_bytes=8 << 20, question_workers=0, loopback_scopes=EVERYTHING)
    )
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        for i, creation in enumerate(sampled_creations(STATES)):
            if machine_facts(creation.machine) is None:
                continue
            name = f"node-{i}"
            section = section_of(creation.machine, creation.config, creation.before)
            reply = client.put(f"/v1/nodes/{name}/report", content=orjson.dumps(report_with(section, name)))
            reply.raise_for_status()
            answer = filter_answer(client.post("/scheduler/filter", json=args_of(creation.pod, name)).json(), name)
            found[creation.refusal or "accepted", answer or "feasible"] += 1
            if bool(answer) is not bool(creation.refusal):
                wrong.append(creation.name)
    table = Table(title=f"{found.total():,} recorded states: {len(wrong)} differences {' '.join(wrong[:5])}")
    for column in ("plugin", "extender", "states"):
        table.add_column(column, justify="right" if column == "states" else "left")
    for (plugin, answer), count in sorted(found.items()):
        table.add_row(plugin, answer, str(count))
    console.print(table)
