"""The runtime and the device plugins over real sockets, called as a kubelet calls them."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import grpc
import pytest

from tests.live.tally import Lags
from tests.live.whole import plugins, runtime
from tests.live.whole.plugins import DevicePlugin
from tests.live.whole.runtime import CREATED, EXITED, INIT, LIFE, NOT_READY, READY, RUNNING, STOP, Runtime

Message = runtime.Message
QUICK = Lags(start=(0, 0), stop=(0, 0), plugins=(0, 0))
P = runtime._P


def in_a_loop(story: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test from a coroutine function."""

    @wraps(story)
    def test() -> None:
        asyncio.run(story())

    return test


@asynccontextmanager
async def playing() -> AsyncIterator[tuple[Runtime, Message]]:
    with tempfile.TemporaryDirectory(prefix="k") as directory:  # short: it has a socket
        played = Runtime(Path(directory, "cri.sock"), "127.0.0.1", seed=1, lags=QUICK)
        await played.start()
        try:
            async with grpc.aio.insecure_channel(f"unix:{played.socket}") as channel:
                yield played, runtime._SERVICES.RuntimeServiceStub(channel)
        finally:
            await played.close()


async def sandbox(calls: Message, uid: str = "uid-a", **annotations: str) -> str:
    metadata = P.PodMetadata(name="a", uid=uid, namespace="default")
    config = P.SandboxConfig(metadata=metadata, annotations=annotations, labels={"pod": uid})
    made: str = (await calls.RunPodSandbox(P.RunSandbox(config=config))).pod_sandbox_id
    return made


async def container(calls: Message, where: str, name: str = "c0", cpus: str = "1,9", mems: str = "0") -> str:
    config = P.ContainerConfig(
        metadata=P.ContainerMetadata(name=name),
        labels={"container": name},
        linux=P.LinuxContainer(resources=P.Resources(cpuset_cpus=cpus, cpuset_mems=mems)),
    )
    made: str = (await calls.CreateContainer(P.CreateContainer(pod_sandbox_id=where, config=config))).container_id
    return made


async def state(calls: Message, id_: str) -> int:
    found: int = (await calls.ContainerStatus(P.ContainerId(container_id=id_))).status.state
    return found


async def eventually(condition: Callable[[], Coroutine[None, None, bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - it is asked over a socket
            await asyncio.sleep(0.01)


@in_a_loop
async def test_a_container_keeps_what_it_was_given_until_it_is_stopped_and_removed() -> None:
    async with playing() as (played, calls):
        admitted: list[Message] = []
        played.on_sandbox = admitted.append
        where = await sandbox(calls)
        made = await container(calls, where)
        assert [(each.uid, each.container, each.cpus, each.mems) for each in played.given] == [
            ("uid-a", "c0", "1,9", "0")
        ]
        assert [metadata.uid for metadata in admitted] == ["uid-a"]
        assert await state(calls, made) == CREATED
        await calls.StartContainer(P.ContainerId(container_id=made))
        assert await state(calls, made) == RUNNING
        change = P.UpdateResources(container_id=made, linux=P.Resources(cpuset_cpus="1-2"))
        await calls.UpdateContainerResources(change)
        status = (await calls.ContainerStatus(P.ContainerId(container_id=made))).status
        assert (status.resources.resources.cpuset_cpus, status.resources.resources.cpuset_mems) == ("1-2", "0")
        await calls.StopContainer(P.ContainerId(container_id=made, timeout=5))
        assert await state(calls, made) == EXITED
        await calls.StopPodSandbox(P.SandboxId(pod_sandbox_id=where))
        (listed,) = (await calls.ListPodSandbox(P.ListSandboxes())).items
        assert listed.state == NOT_READY
        await calls.RemovePodSandbox(P.SandboxId(pod_sandbox_id=where))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await state(calls, made)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@in_a_loop
async def test_lists_are_filtered_by_state_label_and_sandbox() -> None:
    async with playing() as (_, calls):
        places = [await sandbox(calls, uid) for uid in ("uid-a", "uid-b")]
        made = [await container(calls, where, f"c{i}") for i, where in enumerate(places)]
        await calls.StartContainer(P.ContainerId(container_id=made[1]))
        await calls.StopPodSandbox(P.SandboxId(pod_sandbox_id=places[0]))

        async def containers(**wanted: object) -> list[str]:
            answer = await calls.ListContainers(P.ListContainers(filter=P.ContainerFilter(**wanted)))
            return [each.id for each in answer.containers]

        assert await containers() == made
        assert await containers(state=P.State(state=CREATED)) == made[:1]
        assert await containers(label_selector={"container": "c1"}) == made[1:]
        assert await containers(pod_sandbox_id=places[0]) == made[:1]
        ready = P.ListSandboxes(filter=P.SandboxFilter(state=P.State(state=READY)))
        assert [each.id for each in (await calls.ListPodSandbox(ready)).items] == places[1:]


@in_a_loop
async def test_containers_end_by_themselves_after_the_annotated_time_and_init_containers_at_once() -> None:
    async with playing() as (_, calls):
        where = await sandbox(calls, **{LIFE: "0.3"})
        made = [await container(calls, where, name) for name in (INIT, "c0", "c1")]
        for each in made:
            await calls.StartContainer(P.ContainerId(container_id=each))
        assert [await state(calls, each) for each in made] == [RUNNING] * 3
        for each in made:

            async def has_ended(each: str = each) -> bool:
                return await state(calls, each) == EXITED

            await eventually(has_ended)
        status = (await calls.ContainerStatus(P.ContainerId(container_id=made[1]))).status
        assert (status.exit_code, status.reason) == (0, "Completed")


@in_a_loop
async def test_without_a_mean_life_a_pod_runs_until_it_is_told_to_finish() -> None:
    async with playing() as (played, calls):
        made = await container(calls, await sandbox(calls))
        await calls.StartContainer(P.ContainerId(container_id=made))
        played.finish("uid-b")
        assert await state(calls, made) == RUNNING
        played.finish("uid-a")
        assert await state(calls, made) == EXITED


@in_a_loop
async def test_a_slow_stop_lasts_until_the_timeout_and_is_a_kill() -> None:
    async with playing() as (_, calls):
        made = await container(calls, await sandbox(calls, **{STOP: "60"}))
        await calls.StartContainer(P.ContainerId(container_id=made))
        await calls.StopContainer(P.ContainerId(container_id=made, timeout=0))
        assert (await calls.ContainerStatus(P.ContainerId(container_id=made))).status.exit_code == 137


class Registry:
    """The kubelet's side of the registration."""

    def __init__(self) -> None:
        self.registered: list[tuple[str, str]] = []

    async def Register(self, request: Message, _context: Message) -> Message:  # noqa: N802
        self.registered.append((request.resource_name, request.endpoint))
        return plugins._P.Empty()


@in_a_loop
async def test_a_plugin_registers_and_tells_its_devices_when_they_change() -> None:
    with tempfile.TemporaryDirectory(prefix="k") as name:
        directory, registry, server = Path(name), Registry(), grpc.aio.server()
        plugins._SERVICES.add_RegistrationServicer_to_server(registry, server)
        server.add_insecure_port(f"unix:{directory / plugins.KUBELET_SOCKET}")
        await server.start()
        devices = [{"id": f"gpu{i}", "numa": [i] if i else [], "healthy": True} for i in range(2)]
        plugin = DevicePlugin(directory, "gpu.example/gpu", devices)
        try:
            await plugin.register()
            ((resource, endpoint),) = registry.registered
            assert resource == "gpu.example/gpu"
            async with grpc.aio.insecure_channel(f"unix:{directory / endpoint}") as channel:
                calls = plugins._SERVICES.DevicePluginStub(channel)
                stream = calls.ListAndWatch(plugins._P.Empty())
                assert shown(await stream.read()) == [("gpu0", "Healthy", []), ("gpu1", "Healthy", [1])]
                await plugin.set_healthy({"gpu0"})
                assert shown(await stream.read()) == [("gpu0", "Healthy", []), ("gpu1", "Unhealthy", [1])]
        finally:
            await plugin.close()
            await server.stop(None)


def shown(answer: Message) -> list[tuple[str, str, list[int]]]:
    return [(each.ID, each.health, [node.ID for node in each.topology.nodes]) for each in answer.devices]
