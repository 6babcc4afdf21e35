"""Record the demo bank beside this file: five epochs over eight household tasks with the simulated model.

    python sample_data/record_demo.py

The seed was chosen among a few dozen because its run shows a reversal early; what happens in it was not touched.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from memrl_core import workspace
from memrl_core.analysis.map_layout import MapLayout
from memrl_core.analysis.reversals import reversals
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder

SEED = 23
EPOCHS = 5


def main() -> None:
    """Write `demo_bank` anew and say where in it utility overruled similarity."""
    folder = Path(__file__).parent / "demo_bank"
    shutil.rmtree(folder, ignore_errors=True)
    embedder = HashingEmbedder()
    with MemoryBank.create(str(folder), embedder.name, embedder.dimension) as bank:
        workspace.start_run(bank, environment="household", tasks="household-demo", seed=SEED, run="household")
        live = workspace.live_run(bank, "household", workspace.Preferences())
        with bank.batch(50):
            traces = list(live.agent.run(live.tasks, EPOCHS))
        layout = MapLayout(bank)
        layout.places()
        layout.wait()
        layout.places()
        layout.close()
    for reversal in reversals(traces):
        low, high = reversal.overtaken, reversal.overtaking
        print(
            f"step {reversal.step}: {low.memory_id} (similarity {low.similarity:.3f}, q {low.q:+.3f}) overtaken by "
            f"{high.memory_id} (similarity {high.similarity:.3f}, q {high.q:+.3f})"
        )
    sys.exit(0 if reversals(traces) else "This run shows no reversal: choose another seed.")


if __name__ == "__main__":
    main()
