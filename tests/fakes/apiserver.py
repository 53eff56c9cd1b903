"""A Kubernetes API server that fits in a test: real HTTP, real watches, scripted trouble.

    with FakeApiServer() as server:
        server.pods.create({"metadata": {"name": "a", "namespace": "default"}, "spec": {...}})
        client = connect(plain_access(server.url))

Runs an asyncio loop in a thread of its own; every method of the handle may be called from any thread. Speaks pods
(binding, status), nodes, namespaces, configmaps, events, leases, csistoragecapacities, podtemplates,
provisioningrequests, nodepools, nodeclaims, poddisruptionbudgets, Kueue's objects, noderesourcetopologies, podgroups,
workloads, tokenreviews and subjectaccessreviews. Faults: `server.faults`, `break_streams`, `expire_streams`, `compact`,
`restart`.
`python -m tests.fakes.apiserver [port]` serves one by itself.
"""

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import orjson

from tests.fakes.k8s import resources
from tests.fakes.k8s.access import Access, verb_of
from tests.fakes.k8s.faults import Faults
from tests.fakes.k8s.http import MAX_HEAD_BYTES, Request, problem, read_request, reply
from tests.fakes.k8s.objects import Registry
from tests.fakes.k8s.resources import JSON, ApiProblem, Resource, Target, key_of, target_of
from tests.fakes.k8s.routes import Routes, revision_of, selector_of
from tests.fakes.k8s.selectors import compile_selector
from tests.fakes.k8s.store import Store
from tests.fakes.k8s.streams import DEFAULT_TIMEOUT_SECONDS, BrokenOnPurposeError, Stream
from tests.ports import reservation
from tests.waiting import PATIENCE_SECONDS


class Objects:
    """The objects of one resource, for a test's own hands: no HTTP, no access check, no faults."""

    def __init__(self, store: Store, registry: Registry, resource: Resource) -> None:
        self._store, self._registry, self.resource = store, registry, resource

    def create(self, value: JSON) -> JSON:
        return self._registry.create(self.resource, value)

    def get(self, name: str, namespace: str = "default") -> JSON | None:
        """A copy; None when there is none."""
        found = self._store.read(self.resource, key_of(self.resource, namespace, name))
        return None if found is None else found.decode()

    def list(self, field_selector: str = "") -> list[JSON]:
        selector = compile_selector("", field_selector, "")
        items, *_ = self._store.page(self.resource, selector, after="", limit=0, at=None)
        return [orjson.loads(item) for item in items]

    def patch(self, name: str, patch: JSON, namespace: str = "default") -> JSON:
        """JSON merge patch, any field."""
        return self._registry.merge(self._target(name, namespace), patch)

    def bind(self, name: str, node: str, namespace: str = "default") -> JSON:
        """Bind a pod as some other scheduler would."""
        return self._registry.bind(self._target(name, namespace), {"target": {"name": node}})

    def delete(self, name: str, namespace: str = "default", *, grace_seconds: int = 0) -> JSON:
        return self._registry.delete(self._target(name, namespace), {"gracePeriodSeconds": grace_seconds})

    def __len__(self) -> int:
        return len(self._store.collections[self.resource].objects)

    def _target(self, name: str, namespace: str) -> Target:
        return Target(self.resource, namespace if self.resource.namespaced else "", name, "")


class FakeApiServer:
    """The handle. *history*: changes remembered per resource before the oldest are compacted."""

    def __init__(
        self,
        *,
        port: int = 0,
        history: int = 50_000,
        bookmark_seconds: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.store = Store(history)
        self.faults = Faults()
        self.access = Access()
        self.bookmark_seconds = bookmark_seconds
        registry = Registry(self.store)
        self._routes = Routes(self.store, registry, self.access)
        self._tls = tls
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-apiserver", daemon=True)
        self._listener: socket.socket | None = None
        self._connections: set[asyncio.Future[None]] = set()
        self._streams: set[Stream] = set()
        self.pods = Objects(self.store, registry, resources.PODS)
        self.nodes = Objects(self.store, registry, resources.NODES)
        self.namespaces = Objects(self.store, registry, resources.NAMESPACES)
        self.slices = Objects(self.store, registry, resources.SLICES)
        self.classes = Objects(self.store, registry, resources.CLASSES)
        self.templates = Objects(self.store, registry, resources.TEMPLATES)
        self.provisioning = Objects(self.store, registry, resources.PROVISIONING)
        self.node_pools = Objects(self.store, registry, resources.NODE_POOLS)
        self.node_claims = Objects(self.store, registry, resources.NODE_CLAIMS)
        self.capacities = Objects(self.store, registry, resources.CAPACITIES)
        self.config_maps = Objects(self.store, registry, resources.CONFIG_MAPS)
        self.claims = Objects(self.store, registry, resources.CLAIMS)
        self.claim_templates = Objects(self.store, registry, resources.CLAIM_TEMPLATES)
        self.events = Objects(self.store, registry, resources.EVENTS)
        self.leases = Objects(self.store, registry, resources.LEASES)
        self.pdbs = Objects(self.store, registry, resources.PDBS)
        self.pod_groups = Objects(self.store, registry, resources.POD_GROUPS)
        self.coscheduling = Objects(self.store, registry, resources.COSCHEDULING)
        self.workloads = Objects(self.store, registry, resources.WORKLOADS)
        self.kueue_checks = Objects(self.store, registry, resources.KUEUE_CHECKS)
        self.kueue_flavors = Objects(self.store, registry, resources.KUEUE_FLAVORS)
        self.kueue_workloads = Objects(self.store, registry, resources.KUEUE_WORKLOADS)
        self.job_sets = Objects(self.store, registry, resources.JOB_SETS)
        self.topologies = Objects(self.store, registry, resources.NRTS)

    @property
    def url(self) -> str:
        """Where it listens; stays the same over restarts."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def open_streams(self) -> int:
        """Watches being served now."""
        return len(self._streams)

    def __enter__(self) -> Self:
        self._reservation = reservation(self._port)
        self._port = self._reservation.getsockname()[1]
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reservation.close()

    def restart(self, *, lose_state: bool = False, down_seconds: float = 0.0) -> None:
        """Hang up on everybody, come back on the same port. The watch history is gone; *lose_state*: objects too."""
        self._call(self._close())
        if lose_state:
            self.store.clear()
        else:
            self.compact()
        time.sleep(down_seconds)
        self._call(self._listen())

    def compact(self) -> None:
        """Forget the history: watches and list pages from before get 410. Open streams go on."""
        with self.store.lock:
            for collection in self.store.collections.values():
                collection.compact()

    def break_streams(self) -> None:
        """Cut every open watch in the middle of a line."""
        self._order("cut")

    def expire_streams(self) -> None:
        """End every open watch with an ERROR event of code 410."""
        self._order("expire")

    def end_streams(self) -> None:
        """End every open watch as if its time were up."""
        self._order("end")

    def _order(self, what: str) -> None:
        def tell() -> None:
            for stream in list(self._streams):
                stream.order(what)

        self._loop.call_soon_threadsafe(tell)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _listen(self) -> None:
        """Our own accept: asyncio's server and `sock_accept` can lose a connection that arrives while they close."""
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._listener.settimeout(0)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        accepted.settimeout(0)
        task = asyncio.ensure_future(self._serve(accepted))
        self._connections.add(task)
        task.add_done_callback(lambda done: self._forget(done, accepted))

    def _forget(self, task: asyncio.Future[None], accepted: socket.socket) -> None:
        self._connections.discard(task)
        accepted.close()

    async def _close(self) -> None:
        assert self._listener is not None
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)

    async def _serve(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
        except OSError:
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            while (request := await read_request(reader)) is not None:
                await self._respond(request, reader, writer)
        except (BrokenOnPurposeError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        drop = None
        try:
            if request.path in ("/livez", "/readyz", "/healthz", "/version"):
                writer.write(reply(200, b'{"gitVersion":"v1.36.2"}'))
                return
            target = target_of(request.path)
            watch = request.query.get("watch") in ("true", "1")
            verb = verb_of(request.method, target, watch=watch)
            user = self.access.user(request.headers.get("authorization", ""))
            if other := request.headers.get("impersonate-user"):
                self.access.impersonate(user, other)
                user = other
            self.access.check(user, verb, target)
            if self.faults.latency:
                await asyncio.sleep(self.faults.latency)
            drop = self.faults.take(verb, target.resource.plural)
            if drop == "before":
                raise BrokenOnPurposeError
            if watch:
                await self._stream(request, target, reader, writer)
                return
            answer = self._routes.answer(request, target)
        except ApiProblem as error:
            answer = problem(error)
        if drop == "after":
            raise BrokenOnPurposeError
        writer.write(answer)
        await writer.drain()

    async def _stream(
        self, request: Request, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        stream = Stream(
            store=self.store,
            faults=self.faults,
            resource=target.resource,
            selector=selector_of(request, target),
            bookmark_seconds=self.bookmark_seconds,
        )
        self._streams.add(stream)
        hangup = asyncio.ensure_future(reader.read(1))
        hangup.add_done_callback(lambda done: None if done.cancelled() else stream.order("gone"))
        try:
            await stream.serve(
                writer,
                revision_of(request),
                seconds=float(request.query.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS),
                bookmarks=request.query.get("allowWatchBookmarks") in ("true", "1"),
            )
        finally:
            self._streams.discard(stream)
            hangup.cancel()
            await asyncio.gather(hangup, return_exceptions=True)


def main(argv: list[str]) -> None:
    """Serve until interrupted."""
    with FakeApiServer(port=int(argv[1]) if len(argv) > 1 else 0) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        wait: Callable[[], bool] = threading.Event().wait
        wait()


if __name__ == "__main__":
    main(sys.argv)
