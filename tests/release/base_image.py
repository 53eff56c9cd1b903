"""A stand-in for the images' base: the Python that runs the tests, the libraries it is linked with, and a shell.

The registry of the real base is out of reach of many machines that run the tests. The stand-in has no package manager,
and only the programs that the Containerfiles call.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pip

PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
PROGRAMS: Final = ("sh", "rm", "mkdir", "touch", "cat")
LIBRARIES: Final = ("stdc++.so.6", "gcc_s.so.1", "pthread.so.0", "rt.so.1", "dl.so.2", "util.so.1", "m.so.6", "z.so.1")
"""What compiled wheels may expect of every system (PEP 600), without `lib`."""
LEFT_OUT: Final = {"site-packages", "test", "idlelib", "tkinter", "ensurepip"}
PIP: Final = f"""#!/usr/local/bin/{PYTHON}
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


def make(engine: str, name: str, work: Path, variables: Mapping[str, str]) -> None:
    """Import the image *name*, whose environment has the *variables*. *work*: an empty directory."""
    archive = work / "base.tar"
    with tarfile.open(archive, "w") as tar:
        _add(tar, work)
    changes = {"PATH": "/usr/local/bin:/bin", **variables}.items()
    options = [word for key, value in changes for word in ("--change", f"ENV {key}={value}")]
    subprocess.run([engine, "import", "--quiet", *options, str(archive), name], check=True, capture_output=True)


def _add(tar: tarfile.TarFile, work: Path) -> None:
    standard, interpreter = Path(sys.base_prefix, "lib", PYTHON), Path(sys.executable).resolve()
    programs = {name: Path(found).resolve() for name in PROGRAMS if (found := shutil.which(name))}
    (work / "pip").write_text(PIP)
    (work / "pip").chmod(0o755)
    files = {f"bin/{name}": path for name, path in programs.items()}
    files |= {"usr/local/bin/pip": work / "pip"}
    files |= {f"usr/local/bin/{name}": interpreter for name in (PYTHON, "python3", "python")}
    linked = _libraries([interpreter, *programs.values(), *standard.glob("lib-dynload/*.so")])
    files |= {str(library).lstrip("/"): library.resolve() for library in linked}
    for target, path in files.items():
        tar.add(path, target)
    tar.add(standard, f"usr/local/lib/{PYTHON}", filter=_kept)
    tar.add(Path(pip.__file__).parent, f"usr/local/lib/{PYTHON}/site-packages/pip")
    temporary = tarfile.TarInfo("tmp")
    temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(temporary)


def _libraries(files: Iterable[Path]) -> set[Path]:
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    lines = [re.search(rf"^\slib{re.escape(name)} .*x86-64.* => (\S+)$", cache, re.MULTILINE) for name in LIBRARIES]
    found = {Path(line[1]) for line in lines if line}
    for file in [*files, *found]:
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        found |= {Path(path) for path in re.findall(r"(?:=> |^\s)(/\S+) \(0x", listed, re.MULTILINE)}
    return found


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.rpartition("/")[2] in LEFT_OUT else entry
