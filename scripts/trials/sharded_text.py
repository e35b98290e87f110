"""A user with advertising text: many compressed shards, few positive rows, a limit of memory."""

from __future__ import annotations

import gzip
from pathlib import Path

from trials.checks import makes, near, says, within
from trials.data import generated_clicks, rows_of, web_pages
from trials.session import Session

MARGIN, MEMORY = 0.03, "600MB"
SHARDS, COLUMNS = 8, 1 << 16


def play(session: Session, size: float, real: Path | None) -> None:
    """All steps."""
    auc = session.prepare(_prepare, size, real)
    few = f"--memory {MEMORY} --quiet"
    session.shell("ooc-svm train shards/*.svm.gz", says("-o"), code=2)
    session.shell(
        f"ooc-svm train shards/*.svm.gz -o plain.model --memory {MEMORY}",
        says("certified", "--class-weight balanced"),
        within(MEMORY),
    )
    session.shell(
        "ooc-svm evaluate plain.model test.svm.gz --metric accuracy,f1,auc", near("auc", auc, 2 * MARGIN)
    )
    session.shell(
        "ooc-svm train shards/*.svm.gz -o clicks.model --class-weight balanced --C 0.01,0.1 --validation 0.1 "
        f"--log passes.jsonl --report passes.json --memory {MEMORY}",
        says("converted", "held out", "is the best of 2"),
        within(MEMORY),
        makes("passes.jsonl", "passes.json"),
    )
    session.python(
        """
import json
rows = [json.loads(line) for line in open("passes.jsonl")]
report = json.load(open("passes.json"))
print([row["pass"] for row in rows] == list(range(1, report["passes"] + 1)), "validation" in rows[-1])
print(report["peak_memory_bytes"] < 600e6, report["converged"])
""",
        says("True True\nTrue True"),
    )
    session.shell("ooc-svm evaluate clicks.model test.svm.gz --metric auc", near("auc", auc, MARGIN))
    session.shell("ooc-svm train shards/*.svm.gz -o piped.model --memory 2", says("2 bytes"), code=2)
    session.shell(
        f"zcat shards/*.svm.gz | ooc-svm train - -o piped.model --class-weight balanced {few}",
        says("certified"),
    )

    # Once converted, often trained.
    session.shell(
        f"ooc-svm convert shards/*.svm.gz -o clicks.zarr --shuffle {few}", says("rows"), within(MEMORY)
    )
    session.shell("ooc-svm verify clicks.zarr --quiet")
    session.shell(f"ooc-svm plan clicks.zarr --memory {MEMORY}", says("allowed", "passes to a gap of 1e-3"))
    session.shell("ooc-svm plan clicks.zarr --memory 100MB", says("allowed are 100 MB"), code=6)
    session.shell(
        f"ooc-svm train clicks.zarr -o ranked.model --problem roc-area --C 10 --report ranked.json {few}",
        says("certified", "auc"),
        within(MEMORY),
    )
    session.shell("ooc-svm evaluate ranked.model test.svm.gz --metric auc", near("auc", auc, MARGIN))
    session.shell("ooc-svm report passes.json ranked.json", says("passes", "ranked"))
    session.shell("ooc-svm report passes.json ranked.json -o gaps.png", makes("gaps.png"))
    session.shell(
        "ooc-svm train clicks.zarr -o long.model --checkpoint saved --max-passes 1 --quiet; "
        "ooc-svm train clicks.zarr -o long.model --checkpoint saved --resume --quiet",
        says("certified      no", "certified      yes"),
    )

    # A damaged line among millions.
    session.shell("ooc-svm convert rough/*.svm.gz -o rough.zarr", says("b.svm.gz:1:1"), code=3)
    session.shell(
        "ooc-svm convert rough/*.svm.gz -o rough.zarr --bad-lines skip --quiet; cat rough.zarr.rejected",
        says("no label"),
    )


def _prepare(size: float, real: Path | None) -> float:
    """Write shards, a text for testing and one with a damaged line; the AUC of scikit-learn."""
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import LinearSVC

    text = (web_pages(real) if real else None) or generated_clicks(int(40_000 * size), COLUMNS)
    tested = text[: len(text) // 5]
    Path("shards").mkdir()
    for shard in range(SHARDS):
        _write(Path("shards", f"part-{shard}.svm.gz"), text[len(tested) + shard :: SHARDS])
    _write(Path("test.svm.gz"), tested)
    Path("rough").mkdir()
    _write(Path("rough", "a.svm.gz"), tested[:1000])
    _write(Path("rough", "b.svm.gz"), ["no label 1:1\n", *tested[1000:2000]])
    X, y = rows_of("".join(text[len(tested) :]).encode(), COLUMNS)
    X_test, y_test = rows_of("".join(tested).encode(), COLUMNS)
    model = LinearSVC(C=0.1, class_weight="balanced").fit(X, y)
    return roc_auc_score(y_test, model.decision_function(X_test))


def _write(path: Path, text: list[str]) -> None:
    with gzip.open(path, "wt") as file:
        file.writelines(text)
