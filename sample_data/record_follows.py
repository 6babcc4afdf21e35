"""Record in `follows.json` how often language models follow their memories, from the results of experiments.

    python sample_data/record_follows.py OUT [OUT ...]

Each OUT is a folder that `memrl experiment` wrote with a language model that is still installed under its name: what
is recorded goes by the digest of its weights. A record of the same weights in the same environment is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import TypeAdapter

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import must_be_there
from memrl_core.analysis.run.following import FOLLOWS, MeasuredFollows, measured_follows
from memrl_core.errors import MemRLError
from memrl_core.experiments.epochs import follows_in
from memrl_core.experiments.executors import STEPS
from memrl_core.experiments.plan import Plan


def main(folders: list[str], file: Path) -> None:
    """Replace in `file` what the results in `folders` say anew; print each record."""
    known = {(one.digest, one.environment): one for one in measured_follows()}
    for folder in map(Path, folders):
        try:
            table = pq.read_table(folder / STEPS)
            plan = Plan.model_validate_json((table.schema.metadata or {})[b"plan"])
            facts = must_be_there(plan.model, load_preferences(), ask=False)
        except (OSError, LookupError, ValueError):
            sys.exit(f"{folder} has no results of an experiment that can be read. Nothing was recorded.")
        except MemRLError as error:
            sys.exit(f"{error} Nothing was recorded.")
        if "follows" not in table.column_names or not facts.get("digest"):
            sys.exit(f"{folder} does not say what a model with a digest followed. Nothing was recorded.")
        named = plan.model_copy(update={"model": re.sub("gguf:.*/", "gguf:", plan.model)})  # Not where its file lies.
        for one in follows_in(named, table.to_pandas(), facts["digest"]):
            known[one.digest, one.environment] = one
            print(f"{one.model}: {one.sentence}")
    records = sorted(known.values(), key=lambda one: (one.model, one.environment, one.digest))
    file.write_bytes(TypeAdapter(list[MeasuredFollows]).dump_json(records, indent=1) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:], Path(__file__).parent / FOLLOWS)
