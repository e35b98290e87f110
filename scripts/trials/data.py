"""What the users bring: generated stand-ins, always the same, or real sets of the folder OOC_SVM_DATA."""

from __future__ import annotations

import bz2
import io
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, vstack

Strings, Float64Array = npt.NDArray[np.str_], npt.NDArray[np.float64]
TEST_SHARE = 5


class Documents(NamedTuple):
    """Counted words (or genes): rows with a class each; every fifth row is for testing.

    Attributes
    ----------
    counts : csr_matrix of int64, shape (n, d)
    classes : ndarray of str, shape (n,)
    words : ndarray of str, shape (d,)
    """

    counts: csr_matrix
    classes: Strings
    words: Strings

    def parts(self) -> tuple[Documents, Documents]:
        """The rows for training, and those for testing."""
        tested = np.arange(len(self.classes)) % TEST_SHARE == 0
        return self._of_rows(~tested), self._of_rows(tested)

    def _of_rows(self, part: npt.NDArray[np.bool_]) -> Documents:
        return Documents(self.counts[part], self.classes[part], self.words)

    def of_words(self, order: npt.NDArray[np.int64]) -> Documents:
        """The same rows with these words, in this order."""
        return Documents(self.counts[:, order], self.classes, self.words[order])

    def texts(self) -> list[str]:
        """The words of each row."""
        ends = self.counts.indptr
        return [
            " ".join(np.repeat(self.words[self.counts.indices[i:j]], self.counts.data[i:j]))
            for i, j in pairwise(ends)
        ]


def generated_documents(n_rows: int, n_words: int, classes: tuple[str, ...], word: str) -> Documents:
    """Counts by a Zipf law; each class has words of its own that are more frequent in its rows."""
    rng = np.random.default_rng(1)
    common = 1.0 / (np.arange(n_words) + 20.0)
    common /= common.sum()
    number = rng.choice(len(classes), n_rows, p=_falling(len(classes)))
    rows = []
    for own in number:
        mixed = common.copy()
        mixed[own :: len(classes)] *= 1.5 + rng.gamma(1.0, 1.5)
        drawn = rng.choice(n_words, rng.integers(30, 90), p=mixed / mixed.sum())
        columns, counts = np.unique(drawn, return_counts=True)
        rows.append(csr_matrix((counts, (np.zeros_like(columns), columns)), shape=(1, n_words)))
    words = np.array([f"{word}{k}" for k in range(n_words)])
    return Documents(csr_matrix(vstack(rows)), np.array(classes)[number], words)


def _falling(n_classes: int) -> Float64Array:
    shares = 1.0 / (np.arange(n_classes) + 1.5)
    return shares / shares.sum()


def arxiv_documents(folder: Path, n_lines: int, n_classes: int) -> Documents | None:
    """The most frequent classes among the first lines of arXiv's abstracts, or None without them."""
    home = folder / "arxiv"
    if not (home / "arxiv.svm.bz2").exists():
        return None
    names = dict(line.split()[:2] for line in (home / "classes.txt").read_text().splitlines())
    lines = bz2.decompress((home / "vocab.txt.bz2").read_bytes()).decode().splitlines()
    words = [line.split()[0] for line in lines]
    labels, pairs = [], []
    with bz2.open(home / "arxiv.svm.bz2", "rt") as file:
        for line in islice(file, n_lines):
            label, *rest = line.split()
            labels.append(names[label])
            pairs.append([part.split(":") for part in rest])
    indptr = np.cumsum([0, *map(len, pairs)])
    columns = np.array([int(column) - 1 for row in pairs for column, _ in row])
    counts = np.array([int(count) for row in pairs for _, count in row])
    matrix = csr_matrix((counts, columns, indptr), shape=(len(labels), len(words)))
    found, frequency = np.unique(labels, return_counts=True)
    kept = np.isin(labels, found[np.argsort(-frequency)[:n_classes]])
    used = np.unique(matrix[kept].indices)
    return Documents(matrix[kept][:, used], np.array(labels)[kept], np.array(words)[used])


def tf_idf(documents: Documents) -> tuple[csr_matrix, csr_matrix]:
    """Rows of length 1 for training and testing; the words are weighted as scikit-learn does it."""
    from sklearn.feature_extraction.text import TfidfTransformer

    train, test = documents.parts()
    weigh = TfidfTransformer().fit(train.counts)
    return weigh.transform(train.counts), weigh.transform(test.counts)


def generated_values(n_rows: int) -> tuple[csr_matrix, Float64Array]:
    """Rows and values that depend on them linearly, up to some noise."""
    rng = np.random.default_rng(2)
    x = rng.random((n_rows, 20)) * (rng.random((n_rows, 20)) < 0.5)
    return csr_matrix(x), np.round(x @ rng.standard_normal(20) + 0.1 * rng.standard_normal(n_rows) + 1.0, 4)


def abalone_values(folder: Path) -> tuple[csr_matrix, Float64Array] | None:
    """The age of abalones by their measures, or None without them."""
    path = folder / "regression/abalone.trn.bz2"
    return rows_of(bz2.decompress(path.read_bytes())) if path.exists() else None


def generated_clicks(n_rows: int, n_columns: int) -> list[str]:
    """Lines of text: hashed words of advertisements, of which a few in a hundred were clicked at."""
    rng = np.random.default_rng(3)
    common = rng.integers(1, n_columns + 1, 2000)
    wanted = rng.integers(1, n_columns + 1, 40)
    rows = []
    for _ in range(n_rows):
        clicked = rng.random() < 0.04
        words = {*common[rng.integers(0, len(common), 12)]}
        words |= {
            *wanted[rng.integers(0, len(wanted), rng.integers(1, 5) if clicked else rng.integers(0, 2))]
        }
        rows.append(f"{1 if clicked else -1} " + " ".join(f"{column}:1" for column in sorted(words)) + "\n")
    return rows


def web_pages(folder: Path) -> list[str] | None:
    """Platt's web pages in random order, of which 3 in 100 are of the class, or None without them."""
    path = folder / "web/w8a.bz2"
    if not path.exists():
        return None
    text = bz2.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    return [text[line] for line in np.random.default_rng(4).permutation(len(text))]


def rows_of(text: bytes, n_features: int | None = None) -> tuple[csr_matrix, Float64Array]:
    """Rows and labels of SVMlight text, as scikit-learn's LIBLINEAR takes them: with 32-bit indices."""
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(io.BytesIO(text), n_features=n_features)
    arrays = rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return csr_matrix(arrays, shape=rows.shape), labels


def write_rows(path: str, matrix: Any, labels: Any) -> None:
    """SVMlight text; columns count from 1."""
    with open(path, "w") as file:
        for row, label in enumerate(labels):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            pairs = zip(matrix.indices[part] + 1, matrix.data[part], strict=True)
            file.write(" ".join([str(label), *(f"{column}:{value:.6g}" for column, value in pairs)]) + "\n")
