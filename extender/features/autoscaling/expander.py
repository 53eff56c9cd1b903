"""The gRPC expander of Cluster Autoscaler: it leaves out pools whose empty node admits none of the pods.

Cluster Autoscaler asks it which of the pools that it could extend are best (`--expander=grpc,…`).

Rules of this file
- Only pools are left out of which something is known, and whose empty node refuses every pod of the option. What the
  order of the others is, the next expander of the list decides.
- An option with more than `MAX_PODS` pods or `MAX_SHAPES` kinds of them, or with a pod that cannot be read, passes. If
  there are more than `MAX_OPTIONS`, or the answer takes longer than `ANSWER_SECONDS`, all pass.
- Pods are read beside the event loop.
- Cluster Autoscaler itself has checked labels, taints and totals. Only the kubelet's admission is replayed.
- TLS with the certificate of the extender. The caller shows none, so the answer says no more than yes or no.

Sources: cluster-autoscaler `expander/grpcplugin`, July 2026.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from extender.api.service import Service
from extender.features.autoscaling.pools import Pools
from extender.features.autoscaling.templates import PREFIX, TemplateNodes
from extender.kube.client import JSON
from extender.observability.logs import FewWarnings
from extender.scheduling.cached_judge import NotReadyError
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs

if TYPE_CHECKING:  # gRPC is loaded with the setting only
    from extender.features.autoscaling._expander import expander_pb2 as messages

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
SERVICE: Final = "grpcplugin.Expander"
MAX_OPTIONS: Final = 1_000
MAX_PODS: Final = 10_000
MAX_SHAPES: Final = 32
MAX_BYTES: Final = 64 << 20
ANSWER_SECONDS: Final = 3.0
"""Cluster Autoscaler waits for five seconds."""
MAX_CALLS: Final = 4
"""Calls at a time. Cluster Autoscaler makes one."""


class Expander:
    """The service. *templates*: judges nodes that do not exist yet."""

    def __init__(self, service: Service, pools: Pools, templates: TemplateNodes) -> None:
        self._settings, self._pools, self._templates = service.settings, pools, templates
        self.port = 0
        """The one that it listens on, once it does."""

    async def serve(self) -> None:
        """Answer calls until cancelled. Certificates are read anew for each connection."""
        import grpc  # noqa: PLC0415 - see above
        from grpc import aio  # noqa: PLC0415

        from extender.features.autoscaling._expander import expander_pb2 as pb  # noqa: PLC0415

        certificate, key = self._settings.tls_cert_file, self._settings.tls_key_file
        assert certificate is not None  # the settings say so
        assert key is not None

        def read() -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(key.read_bytes(), certificate.read_bytes())])

        handler = grpc.unary_unary_rpc_method_handler(
            self._best,
            request_deserializer=pb.BestOptionsRequest.FromString,
            response_serializer=pb.BestOptionsResponse.SerializeToString,
        )
        options = (("grpc.max_receive_message_length", MAX_BYTES), ("grpc.so_reuseport", 0))
        server = aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"BestOptions": handler})])
        credentials = grpc.dynamic_ssl_server_credentials(read(), read)
        address = f"{self._settings.tls_host}:{self._settings.autoscaling_expander_port}"
        self.port = server.add_secure_port(address, credentials)
        await server.start()
        LOG.info("expander listens address=%s", address)
        try:
            await server.wait_for_termination()
        finally:
            await server.stop(None)

    async def _best(self, request: "messages.BestOptionsRequest", context: Any) -> "messages.BestOptionsResponse":  # noqa: ANN401, ARG002
        """The options that pass."""
        from extender.features.autoscaling._expander import expander_pb2 as pb  # noqa: PLC0415

        passed: Sequence[messages.Option] = request.options
        if len(passed) <= MAX_OPTIONS:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    nodes = request.nodeBytesMap
                    passed = [
                        each for each in passed if not await self._refuses(nodes.get(each.nodeGroupId, b""), each)
                    ]
            except (TimeoutError, NotReadyError) as error:
                LOG.warning("all options pass options=%d reason=%r", len(passed), str(error) or "out of time")
        return pb.BestOptionsResponse(options=passed)

    async def _refuses(self, node: bytes, option: "messages.Option") -> bool:
        """Whether an empty node of the pool refuses every pod of the option."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        from extender.features.autoscaling._expander import expander_pb2 as pb  # noqa: PLC0415

        try:
            labels = dict(pb.Node.FromString(node).metadata.labels)
            if len(option.podBytes) > MAX_PODS or not self._pools.models_for(labels):
                return False
            manifests = await asyncio.to_thread(_different, map(pb.Pod.FromString, option.podBytes))
            if not manifests or len(manifests) > MAX_SHAPES:
                return False
            name = f"{PREFIX}{option.nodeGroupId}"
            nodes: list[JSON] = [{"metadata": {"name": name, "labels": labels}}]
            for manifest in manifests:
                args = SchedulerArgs(pod=pod_from_json(manifest), names=[name], nodes=nodes)
                found = await self._templates.simulate(args)
                if found is None or found.feasible:
                    return False
        except (DecodeError, WireError) as error:
            LOG.warning("an option passes unread pool=%s reason=%r", option.nodeGroupId, str(error))
            return False
        LOG.info("no empty node of the pool admits the pods pool=%s pods=%d", option.nodeGroupId, len(option.podBytes))
        return True


def _different(pods: Iterable["messages.Pod"]) -> Sequence[JSON]:
    """One pod of each kind; no more than one above `MAX_SHAPES`. Pods of one kind are admitted alike."""
    found: dict[object, JSON] = {}
    for pod in pods:
        kind = pod.spec.SerializeToString(deterministic=True), tuple(sorted(pod.metadata.annotations.items()))
        if kind not in found:
            found[kind] = _manifest(pod)
        if len(found) > MAX_SHAPES:
            break
    return list(found.values())


def _manifest(pod: "messages.Pod") -> JSON:
    """The v1.Pod, as far as a kubelet's admission reads it."""
    about, spec = pod.metadata, pod.spec
    manifest: JSON = {
        "metadata": {
            "name": about.name,
            "namespace": about.namespace or "default",
            "uid": about.uid or about.name,
            "labels": dict(about.labels),
            "annotations": dict(about.annotations),
        },
        "spec": {
            "containers": [_container(each) for each in spec.containers],
            "initContainers": [_container(each) for each in spec.initContainers],
            "overhead": _amounts(spec.overhead),
        },
    }
    if spec.HasField("resources"):
        manifest["spec"]["resources"] = dict(_resources(spec.resources))
    return manifest


def _container(container: "messages.Container") -> JSON:
    found: JSON = {"name": container.name, "resources": dict(_resources(container.resources))}
    return {**found, "restartPolicy": container.restartPolicy} if container.restartPolicy else found


def _resources(resources: "messages.ResourceRequirements") -> Iterator[tuple[str, object]]:
    for name, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            yield name, _amounts(amounts)
    if resources.claims:
        yield "claims", [{"name": each.name} for each in resources.claims]


def _amounts(amounts: Mapping[str, "messages.Quantity"]) -> dict[str, str]:
    return {name: amount.string for name, amount in amounts.items()}
