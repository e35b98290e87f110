"""A user of AnnData: an atlas with counts in a layer, queries with other genes, predictions back into obs."""

from __future__ import annotations

from pathlib import Path

from trials.checks import near, says, value_of
from trials.data import Documents, arxiv_documents, generated_documents
from trials.session import Session

MARGIN = 0.05
CLASSES = ("T", "B, naive", "NK", "monocyte")


def play(session: Session, size: float, real: Path | None) -> None:
    """All steps."""
    accuracy, first = session.prepare(_prepare, size, real)
    train = "ooc-svm train atlas.zarr -o cells.model --C 0.01"
    session.shell("ooc-svm train atlas.h5ad --label cell_type", says("ooc-svm convert atlas.h5ad"), code=3)
    session.shell("ooc-svm convert atlas.h5ad -o atlas.zarr --layer counts", says("cell_type"))
    for name in ("query", "shuffled", "panel"):
        session.shell(f"ooc-svm convert {name}.h5ad -o {name}.zarr --layer counts --quiet")
    session.shell("ooc-svm info atlas.zarr", says("cell_type"))
    session.shell(train, says("--label", "'cell_type'"), code=3)
    session.shell(f"{train} --label cell_type", says("certified", first))
    evaluated = session.shell(
        "ooc-svm evaluate cells.model query.zarr --label cell_type",
        says(first, "precision"),
        near("accuracy", accuracy, MARGIN),
    )

    # Genes in another order, and genes that are not there; the second has no labels either.
    session.shell(
        "ooc-svm evaluate cells.model shuffled.zarr --label cell_type",
        near("accuracy", value_of("accuracy", evaluated), 1e-12),
    )
    session.shell(
        "ooc-svm predict cells.model panel.zarr -o cells.csv", says("--missing-features zero"), code=3
    )
    session.shell(
        "ooc-svm predict cells.model panel.zarr -o cells.csv --missing-features zero; cat cells.csv",
        says("warning", "taken as 0", first),
    )

    # Back into obs, and on to scikit-learn.
    session.shell("ooc-svm predict cells.model query.zarr --to-obs svm --scores")
    session.shell("ooc-svm predict cells.model query.zarr --to-obs svm", says("--overwrite"), code=2)
    session.python(
        """
import anndata
query = anndata.read_zarr("query.zarr")
print("accuracy", (query.obs["svm"] == query.obs["cell_type"]).mean())
""",
        near("accuracy", value_of("accuracy", evaluated), 1e-6),
    )
    session.python(
        """
from sklearn.svm import LinearSVC
atlas = anndata.read_zarr("atlas.zarr")
svc = LinearSVC(C=0.01).fit(atlas.X, atlas.obs["cell_type"])
print("accuracy", svc.score(query.X, query.obs["cell_type"]))
""",
        near("accuracy", accuracy, MARGIN),
    )

    # In memory, and one class against the rest by a name with a comma.
    session.python(
        """
import ooc_svm
atlas = anndata.read_h5ad("atlas.h5ad")
model = ooc_svm.train(atlas, label="cell_type", layer="counts", C=0.01)
print("accuracy", ooc_svm.evaluate(model, anndata.read_h5ad("query.h5ad"), label="cell_type")["accuracy"])
""",
        near("accuracy", accuracy, MARGIN),
    )
    session.shell(
        f"ooc-svm train atlas.zarr -o one.model --label cell_type --positive '\"{first}\"' --quiet",
        says("certified"),
    )


def _prepare(size: float, real: Path | None) -> tuple[float, str]:
    """Write the files; the accuracy of scikit-learn, and the name of a class."""
    import numpy as np
    from sklearn.svm import LinearSVC

    documents = arxiv_documents(real, int(10_000 * size), 8) if real else None
    if documents is None:
        documents = generated_documents(int(3000 * size), 2000, CLASSES, "gene")
    atlas, query = documents.parts()
    genes = np.random.default_rng(1).permutation(len(documents.words))
    _write("atlas.h5ad", atlas)
    _write("query.h5ad", query)
    _write("shuffled.h5ad", query.of_words(genes))
    _write("panel.h5ad", query.of_words(genes[: len(genes) // 2]), labelled=False)
    reference = LinearSVC(C=0.01, loss="hinge", max_iter=10_000).fit(atlas.counts, atlas.classes)
    return reference.score(query.counts, query.classes), sorted(set(atlas.classes))[0]


def _write(path: str, cells: Documents, labelled: bool = True) -> None:
    """Logarithms as X, and counts by columns in a layer."""
    import warnings

    import anndata
    import pandas as pd
    from scipy.sparse import csc_matrix

    obs = pd.DataFrame(index=[f"cell{i}" for i in range(len(cells.classes))])
    if labelled:
        obs["cell_type"] = pd.Categorical(cells.classes)
    var = pd.DataFrame(index=cells.words)
    layers = {"counts": csc_matrix(cells.counts, dtype="f4")}
    with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
        anndata.AnnData(cells.counts.log1p(), obs=obs, var=var, layers=layers).write_h5ad(path)
