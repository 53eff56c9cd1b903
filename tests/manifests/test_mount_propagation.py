"""Why the exporter mounts with `mountPropagation: HostToContainer`, shown with real mounts in namespaces of their own.

A "node" (a mount namespace with shared mounts) has the volume of a pod mounted below the kubelet's directory; a
"container" (another one) has that directory. The node unmounts the volume: is it free?
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.manifests.rendering import named, rendered
from tests.waiting import PATIENCE_SECONDS

NODE = r"""
import os, subprocess, sys
top, propagation, has_device = sys.argv[1], sys.argv[2], sys.argv[3] == "device"

def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", top)
run("mount", "--make-shared", top)
volume = f"{top}/kubelet/pods/p/volumes/v"
os.makedirs(volume)
os.makedirs(f"{top}/container")
device = ""
try:
    if has_device:
        with open(f"{top}/disk", "wb") as disk:
            disk.truncate(16 << 20)
        run("mkfs.ext4", "-q", f"{top}/disk")
        device = run("losetup", "--find", "--show", f"{top}/disk")
        run("mount", device, volume)
    else:
        run("mount", "-t", "tmpfs", "-o", "size=1m", "volume", volume)
    container = subprocess.Popen(
        ["unshare", "-m", "--propagation", propagation, "sh", "-c",
         'mount --rbind "$0/kubelet" "$0/container" && echo ready && read -r go && cat /proc/self/mountinfo', top],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    assert container.stdout.readline() == "ready\n"
    run("umount", volume)
    busy = "not tried"
    if device:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
            busy = "free"
        except OSError as error:
            busy = error.strerror
    mounts, _ = container.communicate("go\n", timeout=100)
    print("kept" if "/pods/p/volumes/v " in mounts else "gone", busy, sep=",")
finally:
    if device:
        run("losetup", "--detach", device)
"""


def volume_after_unmount(propagation: str, *, has_device: bool) -> tuple[str, str]:
    """Whether the container still has the volume mounted, and what an exclusive open of its device says.

    The namespaces, and with them every mount, end with their processes.
    """
    with tempfile.TemporaryDirectory(prefix="mounts") as top:
        done = subprocess.run(
            [
                *("unshare", "-m", "--propagation", "private", sys.executable, "-c", NODE),
                *(top, propagation, "device" if has_device else "tmpfs"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    if done.returncode:
        pytest.skip(f"mounts are not permitted here: {done.stderr.strip().splitlines()[-1]}")
    kept, _, busy = done.stdout.strip().partition(",")
    return kept, busy


@pytest.fixture(scope="module")
def _has_namespaces() -> None:
    try:
        done = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        pytest.skip("unshare (util-linux) is not installed")
    if done.returncode:
        pytest.skip(f"mount namespaces are not permitted here: {done.stderr.strip()}")


@pytest.mark.usefixtures("_has_namespaces")
@pytest.mark.parametrize(("propagation", "after"), [("private", "kept"), ("slave", "gone")])
def test_a_volume_that_the_node_unmounts(propagation: str, after: str) -> None:
    kept, _ = volume_after_unmount(propagation, has_device=False)

    assert kept == after


@pytest.mark.usefixtures("_has_namespaces")
@pytest.mark.parametrize(
    ("propagation", "after"), [("private", ("kept", "Device or resource busy")), ("slave", ("gone", "free"))]
)
def test_the_device_of_a_volume_that_the_node_unmounts(propagation: str, after: tuple[str, str]) -> None:
    if not Path("/dev/loop-control").exists():
        pytest.skip("no loop devices here")

    assert volume_after_unmount(propagation, has_device=True) == after


def test_the_daemon_set_has_the_propagation_under_which_it_goes() -> None:
    pod = named(rendered("base/exporter"), "DaemonSet", "numa-node-exporter")["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}

    assert mounts["/var/lib/kubelet"]["mountPropagation"] == "HostToContainer", "rslave: test_a_volume…[slave-gone]"
