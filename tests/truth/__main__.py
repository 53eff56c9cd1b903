"""Runs a check against truth of its own for as many seeds as wanted: `python -m tests.truth NAME [SEEDS] [FIRST]`."""

import sys
from importlib import import_module


def main(name: str, seeds: str = "1000", first: str = "0") -> int:
    """Print what is wrong as it is found; the exit code says whether anything was."""
    check = import_module(f"tests.truth.{name}").check
    cases = faults = 0
    for seed in range(int(first), int(first) + int(seeds)):
        count, wrong = check(seed)
        cases, faults = cases + count, faults + len(wrong)
        for text in wrong:
            print(f"seed {seed}: {text}", flush=True)
        print(f"{seed}: {cases} cases, {faults} wrong", file=sys.stderr, flush=True)
    print(f"{cases} cases, {faults} wrong")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
