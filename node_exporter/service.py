"""Sets up `run`: the sink, the threads, the probes, and the shutdown."""

import logging
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from node_exporter.agent import Agent, Cadence
from node_exporter.metrics import ExporterMetrics, OpsServer
from node_exporter.node import SOCKET, NodeReader, NodeSettings
from node_exporter.sinks import Delivery, Sink
from node_exporter.watch import KubeletWatcher, StateWatcher

LOG = logging.getLogger(__name__)

HUNG_AFTER_SECONDS = 120.0
"""An observation and a message together take far less. /livez fails if the loop has not advanced for this long."""
STOP_SECONDS = 5.0
"""Time for work in progress to end after SIGTERM. The pod's terminationGracePeriodSeconds is 10."""
END_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """All settings of `run`.

    `mode` and `receiver` are what the first log line says of `sink`: push, nrt or dry-run, and an address.
    `certificates`: the certificate files in use, by purpose. `listen` None: no metrics and probes.
    """

    node: NodeSettings
    sink: Sink
    mode: str
    receiver: str
    certificates: Mapping[str, Path | None] = field(default_factory=dict)
    cadence: Cadence = field(default_factory=Cadence)
    listen: tuple[str, int] | None = None


def run_once(settings: ServiceSettings) -> bool:
    """Send one report. True if it was accepted."""
    node, metrics, sink = NodeReader(settings.node), ExporterMetrics(), settings.sink
    try:
        return Agent(node.look, sink, metrics, settings.cadence).publish().outcome is Delivery.ACCEPTED
    finally:
        sink.close()


def run_until_signal(settings: ServiceSettings) -> None:
    """Report until SIGTERM or SIGINT. Raises OSError if the listening address is in use.

    A separate thread does all the work, and the main thread only waits for the signal, so that a read or a message that
    hangs cannot keep the program from ending. After `STOP_SECONDS` the process exits without it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    node, metrics = NodeReader(settings.node), ExporterMetrics()
    metrics.watch_certificates(settings.certificates)
    agent = Agent(node.look, settings.sink, metrics, settings.cadence, lambda: node.seconds_to_next_look)
    ops = _start_ops(settings, agent, metrics)
    faults: list[BaseException] = []
    worker = threading.Thread(target=_work, args=(settings, node, agent, faults), name="agent", daemon=True)
    worker.start()
    signal.sigwait(END_SIGNALS)
    agent.stop()
    worker.join(STOP_SECONDS)
    if ops:
        ops.close()
    if faults:
        raise faults[0]
    if worker.is_alive():
        LOG.warning(
            "stopped node=%s: work in progress did not end within %.0f s", settings.node.node_name, STOP_SECONDS
        )
        logging.shutdown()
        os._exit(0)  # a thread that hangs in the kernel or in a library would keep the interpreter running
    LOG.info("stopped node=%s", settings.node.node_name)


def _work(settings: ServiceSettings, node: NodeReader, agent: Agent, faults: list[BaseException]) -> None:
    """Report until the agent is stopped. An exception ends the program; the main thread raises it."""
    try:
        watchers = (
            StateWatcher(settings.node.root, node.kubelet_dir, agent.notice_change),
            KubeletWatcher(node.kubelet_dir / SOCKET, agent.notice_change),
        )
        for watcher in watchers:
            watcher.start()
        LOG.info("%s", start_line(settings))
        agent.run()
        for watcher in watchers:
            watcher.stop()
        settings.sink.close()
    except Exception as fault:  # noqa: BLE001 - raised again by the main thread
        faults.append(fault)
        os.kill(os.getpid(), signal.SIGTERM)


def start_line(settings: ServiceSettings) -> str:
    """Version, mode and node, for the first log line."""
    values = {
        "version": version("numa-extender"),
        "mode": settings.mode,
        "node": settings.node.node_name,
        "to": settings.receiver,
        "root": settings.node.root,
        "interval": f"{settings.cadence.interval:g}s",
    }
    return " ".join(("started", *(f"{key}={value}" for key, value in values.items())))


def _start_ops(settings: ServiceSettings, agent: Agent, metrics: ExporterMetrics) -> OpsServer | None:
    if settings.listen is None:
        return None
    limit = settings.cadence.interval * 2 + HUNG_AFTER_SECONDS

    def live() -> str | None:
        age = agent.seconds_since_alive
        return f"the reporting loop has not advanced for {age:.0f} s" if age > limit else None

    def ready() -> str | None:
        return None if agent.is_ready else "the extender has not accepted the last message"

    server = OpsServer(*settings.listen, registry=metrics.registry, live=live, ready=ready)
    server.start()
    LOG.info("serving metrics and probes port=%d", server.port)
    return server
