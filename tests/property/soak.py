"""A long run of the core machine: `python -m tests.property.soak --steps N [--core NAME] [--seed S]`."""

import argparse
import sys
import time

from tests.builders import CORES
from tests.property.session_rules import CoreMachine
from tests.property.test_core_machine import drive


def main() -> int:
    """Repeat the machine with new seeds until at least `--steps` steps were checked; prints the coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--core", choices=sorted(CORES), default=min(CORES))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    number, began = asked.seed, time.monotonic()
    while CoreMachine.reached["steps"] < asked.steps:
        drive(asked.core, 20, 80, number)
        number += 1
        print(f"seed {number - 1}: {CoreMachine.reached['steps']} steps", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{CoreMachine.reached['steps']} steps in {seconds:.0f} s, seeds {asked.seed}..{number - 1}")
    for name, count in sorted(CoreMachine.reached.items()):
        print(f"  {count:8d}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
