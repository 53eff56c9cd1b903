"""The CPUs that dra-driver-cpu has given to claims, from the CDI files that it writes for the container runtime.

Rules of this file
- Nothing is read, and nothing said, where the directory of these files does not exist.
- Driver 0.1.0 keeps all claims in one file, later ones each in a file of its own. Both are read.
- The directory also has files of other drivers. Only files with a name of this driver are opened.
- A file that cannot be read, or that says something else than this driver writes, is skipped. So is a claim that two
  files give different CPUs. There is a problem for each of the first files; beyond `MAX_PROBLEMS` the last one counts.
- The driver replaces files by renaming. So the directory changes with them, and is read again only then.

Source: dra-driver-cpu 0.1.0, 0.2.0 and of August 2026, pkg/driver/cdi.go and prepareDevices in dra_hooks.go;
container-device-interface 1.1.0, GenerateTransientSpecName.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from node_exporter.cpu_lists import format_ids, parse_cpu_list
from node_exporter.files import describe, identity, list_names, mapping, objects, parse_json, read_file, under
from node_exporter.report import NodeReport, Problem

DIRECTORY: Final = "/var/run/cdi"
SOURCE: Final = "dra-driver-cpu"
KIND: Final = "dra.k8s.io/cpu"
OF_ALL: Final = "dra.cpu.json"
MAX_NAMES: Final = 10_000
"""Files in the directory, of all drivers."""
MAX_BYTES: Final = 256 << 10
"""Of one file. 0.1.0 writes about 200 bytes for a claim."""
MAX_CLAIMS: Final = 1000
"""A node has a few hundred pods at most."""
MAX_CHARACTERS: Final = 128 << 10
"""Of all claims together. The extender reads twice as much."""
MAX_PROBLEMS: Final = 8
SETTLED_SECONDS: Final = 1.0
"""A directory that has just changed can change again within one tick of its clock. It is read again until then."""
_UID: Final = r"([0-9a-f][0-9a-f-]{7,63})"
_FILE: Final = re.compile(rf"dra\.k8s\.io-cpu_claim-{_UID}\.json", re.ASCII)
_DEVICE: Final = re.compile(rf"claim-{_UID}", re.ASCII)


def is_spec(name: str) -> bool:
    """Whether dra-driver-cpu writes a file of this name."""
    return name == OF_ALL or _FILE.fullmatch(name) is not None


class ClaimedCpus:
    """Reads them at each look, if they have changed. *root*: where the node's files are."""

    def __init__(self, root: Path) -> None:
        self._directory: Final = under(root, DIRECTORY)
        self._seen: tuple[int, int] | None = None
        self._found: tuple[Mapping[str, str], tuple[Problem, ...]] = {}, ()

    def added_to(self, report: NodeReport) -> NodeReport:
        """The report with the CPUs of claims, and with what is wrong with their files."""
        now = identity(self._directory)
        if now is None or now != self._seen:
            self._found = read_claimed_cpus(self._directory) if now else ({}, ())
            is_settled = now is not None and abs(time.time() - now[1] / 1e9) > SETTLED_SECONDS
            self._seen = now if is_settled else None
        cpus, problems = self._found
        return replace(report, claimed_cpus=cpus, problems=(*report.problems, *problems))


def read_claimed_cpus(directory: Path) -> tuple[Mapping[str, str], tuple[Problem, ...]]:
    """CPU lists by the UID of the claim, such as `{"0c8f4c1e-6f0a-4a56-9a53-0d5f3b6a1c11": "2-5"}`. Raises nothing."""
    found, wrong, characters = dict[str, str](), dict[str, str](), 0
    try:
        names = sorted(filter(is_spec, list_names(directory, MAX_NAMES)))
    except (OSError, ValueError) as error:
        return {}, (_problem("", describe(error)),)
    for name in names:
        try:
            for uid, cpus in _claims_of(name, read_file(directory / name, MAX_BYTES)):
                characters += len(uid) + len(cpus)
                if len(found) >= MAX_CLAIMS or characters > MAX_CHARACTERS:
                    raise ValueError("more claims than a node has: they are left out from here on")  # noqa: TRY301
                if found.setdefault(uid, cpus) != cpus:
                    wrong[name] = f"claim {uid} has other CPUs in another file"
                    found[uid] = ""
        except FileNotFoundError:
            continue  # the claim has just ended
        except (OSError, ValueError) as error:
            wrong[name] = describe(error)
    problems = [_problem(name, reason) for name, reason in sorted(wrong.items())[:MAX_PROBLEMS]]
    if len(wrong) > MAX_PROBLEMS:
        problems[-1] = _problem("", f"{len(wrong)} files are skipped")
    return {uid: cpus for uid, cpus in sorted(found.items()) if cpus}, tuple(problems)


def _claims_of(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """The claims of a file with their CPUs. Raises ValueError."""
    if not content:
        return  # 0.1.0 takes an empty file for one without claims
    document = mapping(parse_json(content))
    if document.get("kind") != KIND:
        raise ValueError(f"kind is not {KIND}")
    whose = _FILE.fullmatch(name)
    for device in objects(document.get("devices")):
        found = _DEVICE.fullmatch(str(mapping(device).get("name")))
        if found is None or (whose is not None and whose[1] != found[1]):
            raise ValueError("a device is not named after its claim")
        edits = mapping(mapping(device).get("containerEdits"))
        prefix = f"DRA_CPUSET_{found[1]}="
        sets = [each[len(prefix) :] for each in objects(edits.get("env")) if str(each).startswith(prefix)]
        if len(sets) != 1:
            raise ValueError(f"{len(sets)} sets of CPUs for claim {found[1]}")
        yield found[1], format_ids(parse_cpu_list(sets[0]))


def _problem(name: str, reason: str) -> Problem:
    return Problem(source=SOURCE, path=f"{DIRECTORY}/{name}".rstrip("/"), reason=f"skipped: {reason}"[:300])
