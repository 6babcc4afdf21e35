"""Record the banks beside this file: five epochs over eight household tasks, each time in other words, with the
simulated model, and 320 messages to a help desk with a real language model.

    python sample_data/record_demo.py [simulated | real]

The household's run is a chosen anecdote and no finding. Some 200 seeds were looked at under an earlier rule for a
reversal, one pair of memories changing places, and none showed a step that passes it and also fails with all that λ = 0
would have chosen. The rule was then changed, after seeing which seeds pass: with λ = 0's whole choice the step fails at
its own seed and in most of 11 other draws, and with the recorded one it succeeds in both. Of the seeds 0 to 208,
counted again, 5 have a reversal by the earlier rule alone (15, 77, 94, 128, 201), 51 by this one, and no step passes
both. Seed 1 is the first of the 51. This script tries no other: where the seed shows no such step it says so and ends
with an exit code of 1. The run of the real model is that of seed 0, the first that was recorded; one run is an anecdote
too. What happens in them was not touched; which memories the answers of the demo follow was computed from it later.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from memrl_core.agent.preferences import DEMO, REAL_DEMO, RECORDINGS, Preferences
from memrl_core.agent.run_parts import create_bank
from memrl_core.agent.runs import live_run, rerunner, start_run
from memrl_core.analysis.compare.counterfactual import Reversal, first_reversal
from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.policies import settings_of

SEED = 1
EPOCHS = 5
MODEL = "gguf:qwen2.5-coder-0.5b.gguf"
"""Qwen2.5-Coder-0.5B-Instruct in 4 bits, as a file in the working folder."""
MESSAGES = 320


def main() -> None:
    """Write them anew and say where in the demo a task is solved because utility overruled similarity."""
    wanted = sys.argv[1:] or ["simulated", "real"]
    if "real" in wanted:
        won = record_real(Path(__file__).parent / RECORDINGS[REAL_DEMO])
        print(f"{REAL_DEMO}: {won} of {MESSAGES} messages went to the right team")
    if "simulated" not in wanted:
        return
    folder = Path(__file__).parent / RECORDINGS[DEMO]
    draft = folder.with_name(f"{folder.name}.draft")
    found = record(draft, SEED)
    if found is None:
        shutil.rmtree(draft)
        sys.exit(
            f"With seed {SEED} no task is solved because utility overruled similarity, so the demo has no step to open "
            "on. The recorded one is as it was; choose another seed, and say how many were tried."
        )
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    low, high = found.overtaken, found.overtaking
    print(
        f"step {found.step}: {low.memory_id} (similarity {low.similarity:.3f}, q {low.q:+.3f}) overtaken by "
        f"{high.memory_id} (similarity {high.similarity:.3f}, q {high.q:+.3f}); with what λ = 0 chooses, the task fails"
    )


def record(folder: Path, seed: int) -> Reversal | None:
    """Write the bank of a run, and give its first reversal."""
    shutil.rmtree(folder, ignore_errors=True)
    preferences = Preferences()
    with create_bank(str(folder), "wordllama", preferences) as bank:
        start_run(bank, environment="household", tasks="household-demo", seed=seed, run="household")
        live = live_run(bank, "household", preferences)
        with bank.write.batch(50):
            list(live.agent.run(live.tasks, EPOCHS))
        _lay_out(bank)
        found = first_reversal(bank, lambda trace: rerunner(bank, trace, preferences))
    _tidy(folder)
    return found


def record_real(folder: Path) -> int:
    """Write the bank of a run with a real language model, and say how many of its steps ended well."""
    shutil.rmtree(folder, ignore_errors=True)
    preferences = Preferences()
    with create_bank(str(folder), "wordllama", preferences) as bank:
        start_run(
            bank,
            environment="helpdesk",
            tasks="helpdesk-train",
            task_count=MESSAGES,
            run="helpdesk",
            model=MODEL,
            model_options={"num_ctx": 2048, "num_thread": 1},
            settings=settings_of("memrl", {"k2": 1}),
        )
        live = live_run(bank, "helpdesk", preferences)
        with bank.write.batch(50):
            traces = list(live.agent.run(live.tasks))
        _lay_out(bank)
    _tidy(folder)
    return sum(trace.reward is not None and trace.reward.outcome == "success" for trace in traces)


def _lay_out(bank: MemoryBank) -> None:
    layout = MapLayout(bank)
    layout.places()
    layout.wait()
    layout.places()
    layout.close()


def _tidy(folder: Path) -> None:
    for lock in folder.glob(".*.lock"):
        lock.unlink()


if __name__ == "__main__":
    main()
