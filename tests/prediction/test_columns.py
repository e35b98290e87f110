"""Columns of data are found by the names that model and data have; missing and other ones are told."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from helpers import anndata_data
from helpers.scored_data import Data, linear_model, one_vs_rest, random_data
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from ooc_svm import convert, convert_matrix, decision_scores, evaluate, predict, train
from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError, spell_parameters
from ooc_svm.model.model import Model
from ooc_svm.prediction.columns import Columns
from ooc_svm.prediction.rows import Ignored

N = 60
NAMES = [f"gene {j}" for j in range(N)]


def all_scores(model: Model, data: Any, **options: Any) -> npt.NDArray[np.float64]:
    with decision_scores(model, data, **options) as stream:
        return np.concatenate([block.scores for block in stream])


@pytest.fixture
def data() -> Data:
    return random_data(400, N, (0.0, 1.0, 2.0))


@pytest.fixture
def model() -> Model:
    rng = np.random.default_rng(1)
    weights, bias = rng.normal(size=(3, N)), rng.normal(size=3)
    return one_vs_rest(weights, bias, (0.0, 1.0, 2.0), feature_names=NAMES)


@pytest.fixture
def order() -> npt.NDArray[np.int64]:
    return np.random.default_rng(2).permutation(N)


def in_order(data: Data, columns: Any) -> Data:
    """The same rows with some of their columns, in this order."""
    matrix = data.matrix[:, columns].tocsr()
    matrix.sort_indices()
    return Data(matrix, data.labels)


def forms(data: Data, names: list[str], folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The same rows with named columns in every form, and the options that name them."""
    folder.mkdir()
    (folder / "names.txt").write_text("\n".join(names))
    ones = data.matrix.copy()
    ones.data[:] = 1
    return {
        "matrix": (data.matrix, {"feature_names": names}),
        "dense": (data.matrix.toarray(), {"feature_names": np.array(names, object)}),
        "text": (data.text(folder / "rows.svm"), {"feature_names": folder / "names.txt"}),
        "store": (data.store(folder / "named.zarr", feature_names=names), {}),
        "numbers": (
            data.store(folder / "numbers.zarr", n_features=len(names)),
            {"feature_names": folder / "names.txt"},
        ),
    }


@pytest.mark.parametrize("form", ["matrix", "dense", "text", "store", "numbers"])
def test_columns_in_another_order_give_the_same_bits(data, model, order, tmp_path, form):
    expected = all_scores(model, data.matrix)
    other = in_order(data, order)
    given, options = forms(other, [NAMES[j] for j in order], tmp_path / "other")[form]
    assert all_scores(model, given, **options).tobytes() == expected.tobytes()
    assert all_scores(model, given, **options, threads=1).tobytes() == expected.tobytes()
    right, options_of_right = forms(data, NAMES, tmp_path / "right")[form]
    assert all_scores(model, right, **options_of_right).tobytes() == expected.tobytes()
    with pytest.raises(AssertionError):  # the order matters
        np.testing.assert_allclose(all_scores(model, other.matrix), expected)
    assert predict(model, given, **options).tolist() == predict(model, data.matrix).tolist()
    if form in ("text", "store", "numbers"):
        # Labels of the data with their rows
        assert evaluate(model, given, **options) == evaluate(model, right, **options_of_right)


def test_an_order_costs_nothing_where_it_is_the_models(data, model, order, tmp_path, monkeypatch):
    store = data.store(tmp_path / "s.zarr", feature_names=NAMES)
    monkeypatch.setattr("ooc_svm.prediction.columns.place_columns", None)
    monkeypatch.setattr(FeatureNames, "_hashes", None)
    with decision_scores(model, store) as stream:
        assert stream.columns.places is None
        list(stream)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_anndata_with_its_genes_in_another_order(model, order, tmp_path, zarr_format):
    data = random_data(anndata_data.N_ROWS, N)
    names = [NAMES[j] for j in order]
    anndata_data.write(tmp_path / "a.zarr", in_order(data, order).matrix, zarr_format, features=names)
    assert all_scores(model, tmp_path / "a.zarr").tobytes() == all_scores(model, data.matrix).tobytes()
    wide = sp.hstack([data.matrix, data.matrix[:, :5]]).tocsr()
    anndata_data.write(tmp_path / "b.zarr", wide, zarr_format)
    with pytest.raises(
        InputError, match=r"lacks 60 of the model's 60 features \(100 %\), such as 'gene 0', "
    ):
        predict(model, tmp_path / "b.zarr")


def test_missing_features_are_refused_or_zero_and_told(tmp_path):
    names = [f"gene {j}" for j in range(2000)]
    model = linear_model(np.random.default_rng(3).normal(size=2000), feature_names=names)
    data = random_data(50, 2000)
    kept = np.setdiff1d(np.arange(2000), np.arange(0, 100, 10))[::-1]
    some, named = in_order(data, kept), [names[j] for j in kept]
    store = some.store(tmp_path / "some.zarr", feature_names=named)
    sentence = (
        r"lacks 10 of the model's 2,000 features \(0.5 %\), such as 'gene 0', 'gene 10', 'gene 20'; add"
    )
    for given, options in ((store, {}), (some.matrix, {"feature_names": named})):
        for function in (predict, evaluate):
            with pytest.raises(InputError, match=sentence + ".* with missing_features='zero'"):
                function(model, given, **options)
        zeros = data.matrix.toarray()
        zeros[:, np.arange(0, 100, 10)] = 0
        with pytest.warns(match=r"lacks 10 of .* \(0.5 %\), which are taken as 0$"):
            found = all_scores(model, given, missing_features="zero", **options)
        assert found.tobytes() == all_scores(model, sp.csr_array(zeros)).tobytes()
        with pytest.warns(match="lacks 10 of"):
            written = predict(model, given, output=io.BytesIO(), missing_features="zero", **options)
        assert (written.missing, written.extra, written.ignored) == (10, 0, Ignored())


def test_columns_that_are_no_features_are_ignored_and_told(data, model, order, tmp_path):
    wide = Data(sp.hstack([data.matrix, data.matrix[:, :7]]).tocsr(), data.labels)
    columns = np.random.default_rng(4).permutation(N + 7)
    names = [([*NAMES, *(f"other {j}" for j in range(7))])[j] for j in columns]
    store = in_order(wide, columns).store(tmp_path / "wide.zarr", feature_names=names)
    with pytest.warns(
        UserWarning, match=r"wide.zarr has 7 columns that are no features of the model and are"
    ):
        assert all_scores(model, store).tobytes() == all_scores(model, data.matrix).tobytes()
    with pytest.warns(match="7 columns") as told:
        written = predict(model, store, output=io.BytesIO())
    assert len(told) == 1
    extra = data.matrix[:, :7]
    rows = int((np.diff(extra.tocsr().indptr) > 0).sum())
    assert (written.missing, written.extra, written.ignored) == (0, 7, Ignored(rows, extra.nnz))


def test_a_matrix_of_another_width_is_refused_or_told(data, model):
    plain = one_vs_rest(model.weights, model.bias, (0.0, 1.0, 2.0))
    for each in (model, plain):
        for width in (N - 1, N + 2):
            matrix = sp.csr_array(data.matrix.copy())
            matrix.resize((400, width))
            with pytest.raises(
                InputError, match=rf"has {width} columns and the model 60 features; .*='zero'"
            ):
                predict(each, matrix)
            words = "lacks 1 of the model's" if width < N else "has 2 columns that are no features"
            with pytest.warns(match=words):
                found = all_scores(each, matrix, missing_features="zero")
            matrix.resize((400, N))
            assert found.tobytes() == all_scores(each, matrix).tobytes()


@pytest.mark.parametrize(
    ("missing", "of", "share"),
    [(999, 1000, "99.9 %"), (9999, 10000, "99.9 %"), (987, 1000, "99 %"), (1, 1000, "0.1 %")],
)
def test_a_share_is_told_in_plain_digits(missing, of, share):
    names = [f"gene {j}" for j in range(of)]
    model = linear_model(np.ones(of), feature_names=names)
    with pytest.raises(InputError, match=rf"lacks {missing:,} of the model's {of:,} features \({share}\)"):
        predict(model, np.ones((3, of - missing)), feature_names=names[missing:])


def test_text_states_no_width(data, model, tmp_path):
    """Neither does a store that was made from it: its width is that of its largest column."""
    narrow = Data(data.matrix[:, :40], data.labels)
    text = narrow.text(tmp_path / "rows.svm")
    convert(text, tmp_path / "rows.zarr")
    wide = in_order(data, [*range(N), *range(5)])
    for given in (text, tmp_path / "rows.zarr", wide.text(tmp_path / "wide.svm")):
        wider = (
            pytest.warns(match="features that the model does not have")
            if "wide" in str(given)
            else nullcontext()
        )
        with wider:
            predict(model, given)
            predict(model, given, missing_features="zero")
    # Columns beyond the names have none.
    with decision_scores(model, tmp_path / "wide.svm", feature_names=NAMES[::-1]) as stream:
        found = np.concatenate([block.scores for block in stream])
    assert stream.ignored.entries == data.matrix[:, :5].nnz
    assert found.tobytes() == all_scores(model, data.matrix[:, ::-1]).tobytes()


def test_names_that_cannot_tell_columns_apart(data, model, order, tmp_path):
    twice = ["gene 1", *NAMES[1:]]
    for given in (data.matrix, data.text(tmp_path / "rows.svm")):
        with pytest.raises(InputError, match=r"'gene 1' stands twice in feature_names"):
            predict(model, given, feature_names=twice)
    anndata_names = FeatureNames.of(twice)
    with pytest.raises(InputError, match=r"the matrix has the feature 'gene 1' twice"):
        predict(model, data.matrix, feature_names=anndata_names)
    of_twice = one_vs_rest(model.weights, model.bias, (0.0, 1.0, 2.0), feature_names=anndata_names)
    store = data.store(tmp_path / "twice.zarr", feature_names=anndata_names)
    predict(of_twice, store)  # in the same order they need not be told apart
    names = FeatureNames.of([twice[j] for j in order])
    other = in_order(data, order).store(tmp_path / "other.zarr", feature_names=names)
    with pytest.raises(InputError, match=r"cannot be found by name: the model has 'gene 1' twice"):
        predict(of_twice, other)


def test_names_that_do_not_fit_the_data(data, model, tmp_path):
    store = data.store(tmp_path / "named.zarr", feature_names=NAMES)
    with pytest.raises(UsageError, match=r"named.zarr names its features; leave feature_names out"):
        predict(model, store, feature_names=NAMES)
    with pytest.raises(InputError, match=r"feature_names has 3 names, and the matrix has 60 columns"):
        predict(model, data.matrix, feature_names=["a", "b", "c"])
    for wrong in ("none", True, None):
        with pytest.raises(UsageError, match=r"missing_features must be 'error' or 'zero'"):
            predict(model, store, missing_features=wrong)
    spell_parameters({})
    try:
        with pytest.raises(InputError, match=r"with --missing-features zero$"):
            predict(model, data.matrix[:, :3])
    finally:
        spell_parameters(None)


def test_a_model_without_names_takes_named_columns_by_number(data, model, tmp_path):
    plain = one_vs_rest(model.weights, model.bias, (0.0, 1.0, 2.0))
    store = data.store(tmp_path / "named.zarr", feature_names=[f"other {j}" for j in range(N)])
    assert all_scores(plain, store).tobytes() == all_scores(plain, data.matrix).tobytes()
    short = in_order(data, range(N - 1)).store(tmp_path / "short.zarr", feature_names=NAMES[:-1])
    with pytest.raises(InputError, match=r"short.zarr has 59 columns and the model 60 features"):
        predict(plain, short)


@settings(deadline=None)
@drawn(st.data())
def test_rows_are_those_of_a_permuted_matrix(draws):
    n_columns, n_features = draws.draw(st.integers(1, 40)), draws.draw(st.integers(1, 40))
    n_rows = draws.draw(st.integers(0, 5))
    rng = np.random.default_rng(draws.draw(st.integers(0, 1000)))
    places = rng.permutation(n_features + n_columns)[:n_columns]
    matrix = sp.random(
        n_rows, n_columns + 3, draws.draw(st.sampled_from([0.1, 1.0])), "csr", random_state=rng
    )
    matrix.sort_indices()
    values = None if draws.draw(st.booleans()) else matrix.data.copy()
    columns = Columns(n_features, np.where(places < n_features, places, 2**32 - 1).astype(np.uint32))
    block = RowBlock(7, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values)
    expected = np.zeros((n_rows, n_features))
    dense = (matrix if values is not None else matrix.astype(bool)).toarray()
    for column, place in enumerate(places.tolist()):
        if place < n_features:
            expected[:, place] = dense[:, column]
    lost = dense[:, [*np.flatnonzero(places >= n_features), *range(n_columns, n_columns + 3)]] != 0
    for in_place in (False, True):
        rows, n_shorter, n_lost = columns.select(block, in_place=in_place)
        kept = np.ones(len(rows.indices)) if rows.values is None else rows.values
        found = sp.csr_array((kept, rows.indices, rows.indptr), shape=(n_rows, n_features))
        assert found.has_canonical_format
        assert (found.toarray() == expected).all()
        assert (n_shorter, n_lost) == (lost.any(axis=1).sum(), lost.sum())
        assert rows.start == 7


def test_the_memory_that_a_refusal_names_is_enough_with_names(tmp_path):
    names = [f"gene {j}" for j in range(50_000)]
    model = linear_model(np.ones(50_000), feature_names=names)
    matrix = sp.csr_array((3, 50_000))
    with pytest.raises(MemoryBudgetError, match=r"names of features") as refused:
        predict(model, matrix, memory="1MB", feature_names=names[::-1])
    named = str(refused.value).split(" needs ")[1].split(" of memory")[0]
    predict(model, matrix, memory=named, feature_names=names[::-1])


def test_a_store_of_a_matrix_keeps_its_names_through_training_and_prediction(data, order, tmp_path):
    convert_matrix(data.matrix, data.labels, tmp_path / "train.zarr", feature_names=NAMES)
    model = train(tmp_path / "train.zarr")
    other = in_order(data, order)
    convert_matrix(
        other.matrix, other.labels, tmp_path / "test.zarr", feature_names=[NAMES[j] for j in order]
    )
    assert evaluate(model, tmp_path / "test.zarr") == evaluate(model, tmp_path / "train.zarr")
