"""`python -m tests.storm --faults 10000 [--seed N]`: exit 0 when every promise held."""

import argparse
import asyncio
import json
import random
import sys
from dataclasses import asdict

from tests.storm.machine import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    ran = asyncio.run(run(seed, options.faults, lambda line: print(line, file=sys.stderr, flush=True)))
    for line in ran.logs:
        print(line, file=sys.stderr)
    print(json.dumps({"seed": seed, **asdict(ran), "logs": len(ran.logs)}))
    return 1 if ran.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
