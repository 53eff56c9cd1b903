"""The exporter killed at any moment, while the node's files change: the extender always holds a whole report of some
moment, never an older one after a newer one, and the newest soon after the last start.
"""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from extender.samples.files import write_node
from tests.faults.parts import Extender, Process
from tests.reports import sample
from tests.waiting import until


@dataclass
class Kills:
    """What was seen. `caught_up_after`: seconds from the last start to the newest state held."""

    kills: int = 0
    looks: int = 0
    reports_seen: int = 0
    went_back: int = 0
    caught_up_after: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        faults = (
            (not self.kills, "the exporter was never killed"),
            (not self.looks, "nobody looked at the node"),
            (not self.reports_seen, "no report arrived"),
            (self.went_back, f"{self.went_back} times an older report replaced a newer one"),
            (self.caught_up_after > 20.0, f"the newest state arrived only after {self.caught_up_after:.0f} s"),
        )
        return self.wrong + [text for is_so, text in faults if is_so]


def play(directory: Path, *, seed: int, kills: int) -> Kills:
    """Kill after 0 to 1.5 seconds, *kills* times."""
    chance, story = random.Random(seed), Kills()
    node = sample("node-0")
    root = directory / "root"
    write_node(root, node)
    state = root / "var/lib/kubelet/cpu_manager_state"
    command = (
        "-m", "node_exporter", "run", "--root", str(root), "--node-name", node.name, "--interval", "0.2",
        "--kubelet-version", node.description.kubelet_version, "--listen", "",
    )  # fmt: skip
    with Extender(directory / "extender.log") as extender:
        until(extender.is_ready, "readiness")
        exporter = Process((*command, "--push", extender.url), log=directory / "exporter.log")
        last = -1
        with exporter:
            for _ in range(kills):
                time.sleep(chance.uniform(0.0, 1.5))
                state.with_suffix(".new").write_text(state.read_text())
                state.with_suffix(".new").replace(state)  # as the kubelet writes it
                last = look(extender, last, story)
                exporter.kill()
                last = look(extender, last, story)
                exporter.start()
            started = time.monotonic()
            until(lambda: look(extender, last, story) > last, "a report after the last kill")
            story.caught_up_after = time.monotonic() - started
        story.kills = exporter.kills
    return story


def look(extender: Extender, last: int, story: Kills) -> int:
    """The sequence of the report held; -1 for none."""
    reply = extender.get("/v1/nodes/node-0")
    story.looks += 1
    if reply is None or reply.status_code == 404:
        if last >= 0:
            story.wrong.append("a report was lost")
        return last
    node = orjson.loads(reply.content)
    sequence: int = node["sequence"]
    story.went_back += sequence < last
    story.reports_seen += sequence > last
    if node["certainty"] not in ("exact", "stale"):
        story.wrong.append(f"certainty {node['certainty']}: {node.get('problems')}")
    return max(sequence, last)
