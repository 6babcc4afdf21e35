"""`python -m tests.fuzz --minutes 10`: spoil what others may hand to this program, and see whether it stumbles.

Shares the minutes among the targets. A target ends at its first fault, which is printed with the case that showed it;
the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from itertools import count

from tests.fuzz.running import TARGETS, Target, try_cases

AT_ONCE = 200


def main() -> int:
    """Try cases of the chosen targets; the exit code."""
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=names, help="only this one; may be given again")
    parser.add_argument("--seed", type=int, default=None, help="of the first cases; drawn anew when left out")
    asked = parser.parse_args()
    chosen = [target for target in TARGETS if asked.target is None or target.name in asked.target]
    first_seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    print(f"seed {first_seed}, {asked.minutes:g} minutes, {len(chosen)} targets", flush=True)
    faults = [_has_a_fault(target, asked.minutes * 60 / len(chosen), first_seed) for target in chosen]
    return int(any(faults))


def _has_a_fault(target: Target, seconds: float, first_seed: int) -> bool:
    end = time.monotonic() + seconds
    for batch in count():
        if time.monotonic() > end:
            print(f"{target.name}: no fault in about {batch * AT_ONCE:,} cases", flush=True)
            return False
        try:
            try_cases(target, AT_ONCE, first_seed + batch)
        except Exception:  # A fault of any kind is what is looked for.
            print(f"{target.name}, seed {first_seed + batch}:\n{traceback.format_exc()}", flush=True)
            return True
    raise AssertionError


if __name__ == "__main__":
    sys.exit(main())
