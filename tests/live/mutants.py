"""Changed extenders that no scene may pass: `make live LIVE='--scene mixed --mutant refuses_all'`.

`python -m tests.live.mutants NAME serve …` makes the change and goes on as `python -m extender serve …`. What the
scenes found with them on the real parts is recorded in `test_bounds.py`.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch


def refuses_all() -> None:
    """Filter refuses every node."""
    from extender.scheduling.feasibility import refuse_all
    from extender.scheduling.filter import Filter

    original = Filter.filter

    async def refused(self: Any, args: Any) -> object:  # noqa: ANN401
        return refuse_all(await original(self, args), "refused by the mutant")

    patch.object(Filter, "filter", refused).start()


def passes_all() -> None:
    """Filter passes every node, and bind checks nothing."""
    from extender.scheduling.bind import Bind
    from extender.scheduling.feasibility import Filtered
    from extender.scheduling.filter import Filter

    original = Filter.filter

    async def passed(self: Any, args: Any) -> object:  # noqa: ANN401
        await original(self, args)
        return Filtered(feasible=args.names)

    async def reserved(_self: Any, _call: object, reservation: Any) -> None:  # noqa: ANN401
        reservation.reserve()

    patch.object(Filter, "filter", passed).start()
    patch.object(Bind, "_reserve", reserved).start()


MUTANTS: Final[Mapping[str, Callable[[], None]]] = {each.__name__: each for each in (refuses_all, passes_all)}


def main(name: str, arguments: list[str]) -> None:
    """Make the change of this name, and run the extender."""
    MUTANTS[name]()
    sys.argv = ["numa-extender", *arguments]
    importlib.import_module("extender.__main__").main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
