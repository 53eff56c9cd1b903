"""What the extender says of a node before something happens there, and what the node's kubelet then gave."""

import httpx

from tests.live.api import Json
from tests.live.node import LiveNode
from tests.live.scheduling import Extender
from tests.live.whole.node import WholeNode
from tests.oracle.amounts import parse_cpus


def ask(extender: Extender, question: str, asked: Json) -> Json:
    """The reply to a question, such as `what-if`."""
    reply = httpx.post(f"{extender.url}/v1/{question}", json=asked, timeout=30, trust_env=False)
    found: Json = reply.raise_for_status().json()
    return found


def what_if(extender: Extender, node: LiveNode, pod: Json) -> Json:
    """What-if's answer about one node."""
    (answer,) = ask(extender, "what-if", {"pod": pod, "nodes": [node.name]})["nodes"]
    found: Json = answer
    return found


def said(answer: Json, node: LiveNode) -> str:
    """CPUs of the container `c0`, and on a real kubelet the NUMA nodes of the memory; or the reason of the refusal."""
    verdict = answer["verdict"]
    if not verdict["admit"]:
        reason: str = verdict["reason"]
        return reason
    held = verdict["containers"]["c0"]
    numas = {numa for block in held["memory"] for numa in block["numa"]}
    return f"CPUs {sorted(parse_cpus(held['cpus']))}" + f", memory of {sorted(numas)}" * isinstance(node, WholeNode)


def was(node: LiveNode, uid: str) -> str:
    """The same of what the kubelet did; empty: it did not admit the pod."""
    if uid not in node.kubelet.placements:
        return ""
    mems = "".join(f", memory of {sorted(parse_cpus(each.mems))}" for each in node.given if each.uid == uid)
    return f"CPUs {sorted(parse_cpus(node.kubelet.placements[uid]['containers']['c0']['cpus']))}{mems}"
