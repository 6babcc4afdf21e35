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

from tests.fuzz.running import TARGETS, try_cases

AT_ONCE = 200


def main() -> int:
    """Try cases of the chosen targets; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    names = [target.name for target in TARGETS]
    parser.add_argument("--target", action="append", choices=names, help="only this one; may be given again")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the first cases")
    asked = parser.parse_args()
    chosen = [target for target in TARGETS if target.name in (asked.target or names)]
    print(f"seed {asked.seed}, {asked.minutes:g} minutes, {len(chosen)} targets", flush=True)
    faults = 0
    for target in chosen:
        end, number = time.monotonic() + asked.minutes * 60 / len(chosen), asked.seed
        try:
            while time.monotonic() < end:
                try_cases(target, AT_ONCE, number)
                number += 1
            print(f"{target.name}: no fault in about {(number - asked.seed) * AT_ONCE:,} cases", flush=True)
        except Exception:  # A fault of any kind is what is looked for.
            print(f"{target.name}, seed {number}:\n{traceback.format_exc()}", flush=True)
            faults += 1
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
