"""Run the benchmarks named, or all: `python -m tests.bench [replay] [filter_http] [bind_http] …`.

`make bench BENCH=compiled` does the same.
"""

import importlib
import sys

from rich.console import Console

ALL = (
    "replay", "distinct_states", "many_nodes", "filter_http", "demands", "claims", "bind_http", "pods", "preempt",
    "capacity", "advice", "nri", "nri_counts", "nri_states", "compiled",
)  # fmt: skip


def main() -> None:
    """Each module has `run(console)`."""
    console = Console(width=110 if not sys.stdout.isatty() else None)
    for name in sys.argv[1:] or ALL:
        if name not in ALL:
            sys.exit(f"no benchmark {name!r}: one of {', '.join(ALL)}")
        importlib.import_module(f"tests.bench.{name}").run(console)


if __name__ == "__main__":
    main()
