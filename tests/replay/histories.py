"""The admissions of a scenario, with the states before them."""

from collections.abc import Iterator

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.wire.scenarios import scenario_from_json
from tests.replay.vectors import Json

Admission = tuple[Kubelet, ManagerState, PodRequest]


def is_new(state: ManagerState, request: PodRequest) -> bool:
    """Whether the node holds nothing of the pod, and it was not the last one to be admitted."""
    held = state.pod_uids | state.cpu.pod_entries.keys() | state.memory.pod_entries.keys()
    last = {state.cpu.reusable[0], state.memory.reusable[0], state.devices.reusable[0]}
    return request.uid not in held | last


def admissions(document: Json) -> Iterator[Admission]:
    """Every admission of a scenario for which the node holds nothing yet; nothing where no kubelet starts."""
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return
    state = initial_state(kubelet, scenario.devices)
    admitted: dict[str, PodRequest] = {}
    for step in scenario.steps:
        if step.op == "remove":
            state = release_pods(state, (step.uid,))
        elif step.op == "start" and step.uid in admitted:
            state = start_pod(state, admitted[step.uid])
        elif step.pod is not None:
            request = admitted[step.uid] = resolve(step.pod, kubelet.rules)
            if is_new(state, request):
                yield kubelet, state, request
            state = admit(kubelet, state, request, max_replays=1).state
