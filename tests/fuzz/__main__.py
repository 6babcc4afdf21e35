"""`python -m tests.fuzz --minutes 10`: spoil what others may hand to this program, and see whether it stumbles.

Prints the cases of each target, and each fault with the case that showed it. Ends with code 1 when there was one.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.running import TARGETS, Target, Tried, for_seconds


def main() -> int:
    """Share the minutes among the targets; the exit code."""
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=names, help="only this one; may be given again")
    parser.add_argument("--seed", type=int, default=None, help="of the first cases; drawn anew when left out")
    asked = parser.parse_args()
    chosen = [target for target in TARGETS if asked.target is None or target.name in asked.target]
    first_seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    print(f"seed {first_seed}, {asked.minutes:g} minutes, {len(chosen)} targets", flush=True)
    all_tried = [_tried(target, asked.minutes * 60 / len(chosen), first_seed) for target in chosen]
    faults = sum(len(tried.faults) for tried in all_tried)
    print(f"{sum(tried.cases for tried in all_tried):,} cases, {faults} faults")
    return 1 if faults else 0


def _tried(target: Target, seconds: float, first_seed: int) -> Tried:
    tried = for_seconds(target, seconds, first_seed)
    print(
        f"{target.name:16} {tried.cases:7,} cases in {tried.seconds:4.0f} s, the slowest {tried.slowest:5.2f} s, "
        f"{len(tried.faults)} faults",
        flush=True,
    )
    for place, reported in tried.faults.items():
        print(f"\n--- {target.name}: {place}, met {tried.met[place]:,} times\n{reported}", flush=True)
    return tried


if __name__ == "__main__":
    sys.exit(main())
