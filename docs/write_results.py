"""Write the site's tables from measurements: `python docs/write_results.py EXPERIMENT_FOLDER ... BENCH.json ...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def experiment(folder: Path) -> str:
    """The page of an experiment: its question, the command, and the report that it wrote."""
    plan = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["plan"]
    command = f"memrl experiment sample_data/experiments/{folder.name}.toml --out ./{folder.name}"
    report = (folder / "report.md").read_text(encoding="utf-8")
    scale = f"{plan['seeds']} seeds, {plan['epochs']} epochs, model: {plan['model']}, embedder: {plan['embedder']}."
    return f"# {plan['title']}\n\n{plan['question']}\n\n```sh\n{command}\n```\n\n{scale} {report.rstrip()}\n"


def performance(measured: Path) -> str:
    """The page of `memrl bench --json`: each time beside a reference of the same run."""
    found = json.loads(measured.read_text(encoding="utf-8"))
    machine = "{system}, {cores} cores, {memory_gib:.1f} GiB · memrl {version} · Python {python}".format(
        **found["machine"]
    )
    head = ("what", "size", "median", "p95", "reference of the same run", "ratio", "aim", "peak")
    rows = [head, ("---", "---", *["---:"] * 2, "---", *["---:"] * 3), *(_cells(row) for row in found["rows"])]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return (
        "# Performance\n\n```sh\nmemrl bench --json bench.json && python docs/write_results.py bench.json\n```\n\n"
        f"{found['date'][:10]} · {machine}. Times of a shared machine say little; the ratio to a reference that is "
        f"measured in turns with it, in the same run, says more.\n\n{table}\n"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    value = row["value"]
    median = _time(row["median_s"]) if value is None else f"{value:.3g} {row['unit'] or ''}".strip()
    reference = f"{row['reference']}, {_time(row['reference_median_s'])}" if row["reference"] else "–"
    ratio = "–" if row["ratio_median"] is None else f"{row['ratio_median']:.2f} ×"
    size = row["size"] or f"{row['memories']:,}" + (f" × {row['dimension']:,}" if row["dimension"] else "")
    peak = "–" if row["peak_mb"] is None else f"{row['peak_mb']:.0f} MB"
    return row["what"], size, median, _time(row["p95_s"]), reference, ratio, row["aim"] or "–", peak


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    scale, unit = next((pair for pair in ((1, "s"), (1e3, "ms")) if seconds * pair[0] >= 1), (1e6, "µs"))
    return f"{seconds * scale:.3g} {unit}"


def main(names: list[str]) -> None:
    """Write a page for each, and say where."""
    for path in map(Path, names):
        page = RESULTS / ("performance.md" if path.suffix == ".json" else f"{path.resolve().name}.md")
        page.write_text(performance(path) if path.suffix == ".json" else experiment(path), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
