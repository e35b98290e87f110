"""``ooc-svm info`` and ``ooc-svm verify``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ooc_svm.cli.format import block, count, describe_labels, describe_values, printable, shortened, table
from ooc_svm.cli.options import Label, Layer, Quiet, argument, option
from ooc_svm.cli.paths import check_data, is_model, refuse_no_model
from ooc_svm.cli.report import comparison, model_table, probabilities
from ooc_svm.errors import DamageError, InputError, UsageError, parameter, percent
from ooc_svm.parameters import COUNT, PATH
from ooc_svm.system.address import address_of
from ooc_svm.system.amounts import format_read, format_seconds
from ooc_svm.system.files import exists, file_size, is_folder
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.model.model import Model
    from ooc_svm.store import Store


# Names of features in a line.
_NAMES_SHOWN = 3

# Counts of the conversion that other lines show.
_SHOWN_ABOVE = {"rows", "nonzeros", "n_features"}


def info(
    path: Annotated[str, argument(PATH, metavar="STORE|MODEL", help="A store or a model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    top: Annotated[
        Any,
        option(COUNT, metavar="N", help="Of a model: list the features with the largest weights, so many."),
    ] = None,
    label: Label = None,
    layer: Layer = None,
) -> None:
    """Show what a store or a model holds."""
    if is_folder(path):
        if top is not None:
            raise UsageError(f"{parameter('top')} lists weights, and {path} is a store; give a model")
        from ooc_svm.store import open_store, store_info

        store = open_store(path, label=label, layer=layer, unlabelled="keep")
        typer.echo(_json(store_info(store)) if as_json else describe_store(store))
        return
    if not exists(path):
        raise InputError(f"{path}: there is no such store or model; check the path")

    refuse_no_model(path)
    for name, value in (("label", label), ("layer", layer)):
        if value is not None:
            raise UsageError(f"{parameter(name)} is for stores, and {path} is none; leave it out")

    from ooc_svm.model.file import load_model, model_info
    from ooc_svm.model.top_features import top_features

    try:
        model = load_model(path)
    except DamageError:
        if address_of(path) is not None or is_model(path):
            raise
        raise DamageError(
            f"{path}: is neither a store nor a model of ooc-svm; make a store of data by ooc-svm convert"
        ) from None
    facts = model_info(model)
    found = [] if top is None else top_features(model, top)
    if as_json:
        typer.echo(_json(facts | ({"top_features": found} if top is not None else {})))
        return
    typer.echo("\n\n".join([describe_model(model, facts, path), *map(_describe_weights, found)]))


def verify(
    path: Annotated[str, argument(PATH, metavar="STORE", help="A store.")],
    label: Label = None,
    layer: Layer = None,
    quiet: Quiet = False,
) -> None:
    """Check every chunk and every row of a store.

    Chunks are checked against the sizes and checksums of the manifest, rows against the rules. Of AnnData
    without a manifest it is what training reads: the matrix, labels, weights and qids.
    """
    check_data([path])

    from ooc_svm.cli.progress import byte_progress
    from ooc_svm.store import verify_store

    with byte_progress("verify", quiet) as progress:
        report = verify_store(path, label=label, layer=layer, progress=progress)
    checked = f"{count(report.n_chunks, 'chunk')} ({format_size(report.n_bytes)})"
    how = "against the manifest" if report.manifest else "by decoding; there is no manifest"
    typer.echo(
        f"{path}: whole: {checked} {how}, {count(report.n_rows, 'row')} in {count(report.n_blocks, 'block')}"
    )
    if report.remark is not None:
        typer.echo(report.remark)


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, allow_nan=False)


def _describe_weights(found: dict[str, Any]) -> str:
    """The largest weights of a function in a table."""
    of = [] if found["label"] is None else [f"label {found['label']}"]
    of += [] if found["C"] is None else [f"C {found['C']:g}"]
    title = printable(", ".join(["largest weights", *of]))
    rows = [
        (str(each["number"]) if each["name"] is None else each["name"], f"{each['weight']:.6g}")
        for each in found["features"]
    ]
    return f"{title}\n{table(('feature', 'weight'), rows)}" if rows else f"{title}: all are 0"


def _describe_features(n_features: int, index_base: int, names: Sequence[str] | None) -> str:
    """The number of features, and some of their names."""
    if names is None:
        return f"{n_features:,} (numbered from {index_base})"
    more = ", ..." if n_features > _NAMES_SHOWN else ""
    return f"{n_features:,} ({', '.join(names[:_NAMES_SHOWN])}{more})"


def describe_store(store: Store) -> str:
    """The facts of a store for people."""
    share = percent(store.n_nonzeros, store.n_rows * store.n_features)
    a_row = store.n_nonzeros / max(store.n_rows, 1)
    labels = describe_labels(store.labels, store.label_names, store.label_sets)
    lines = [
        ("store", str(store.path)),
        ("rows", f"{store.n_rows:,}"),
        ("features", _describe_features(store.n_features, store.index_base, store.feature_names)),
        ("nonzeros", f"{store.n_nonzeros:,} ({a_row:.4g} a row, {share})"),
        ("values", describe_values(store.value_type)),
        ("labels", labels if store.has_labels else "none"),
    ]
    if store.format_version is None:
        from ooc_svm.store.anndata import obs_columns

        columns = obs_columns(store.parts.storage, str(store.path))
        lines.append(("columns of cells", shortened(columns) if columns else "none"))
    if store.has_labels and store.n_unlabelled:
        lines.append(("rows without one", f"{store.n_unlabelled:,}"))
    if store.has_qid:
        lines.append(("groups (qid)", f"{store.qid_groups:,}"))
    if store.has_weight:
        lines.append(("row weights", "yes"))
    lines.append(("size on disk", f"{format_size(store.n_bytes)} in {count(store.n_chunks, 'chunk')}"))
    lines += _describe_origin(store.provenance)
    version = store.format_version
    lines.append(("format", "AnnData without a manifest" if version is None else f"version {version}"))
    return block(lines)


def _describe_origin(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Where the rows came from, as far as the store records it."""
    lines = []
    if isinstance(sources := provenance.get("sources"), list):
        named = [_describe_source(source) for source in sources if isinstance(source, dict)]
        lines.append(("made from", shortened(named)))
    for name in ("options", "counts"):
        if isinstance(found := provenance.get(name), dict):
            shown = [f"{key} {value}" for key, value in found.items() if value and key not in _SHOWN_ABOVE]
            lines.append((name, ", ".join(shown)))
    if "created" in provenance:
        lines.append(("made", f"{provenance['created']} by version {provenance.get('version', 'unknown')}"))
    return lines


def _describe_source(source: dict[str, Any]) -> str:
    size = source.get("size")
    known = f" ({format_size(size)})" if type(size) is int and 0 <= size < 2**63 else ""
    return f"{source.get('name')}{known}"


def _describe_functions(model: Model, facts: dict[str, Any]) -> tuple[str, str]:
    """The weights, or the support vectors with the numbers of the kernel."""
    models = count(model.n_models, "model")
    if "n_nonzero_weights" in facts:
        return "weights", f"{facts['n_nonzero_weights']:,} other than 0 in {models}"
    numbers = [f"{name} {facts[name]:.6g}" for name in ("gamma", "degree", "coef0") if name in facts]
    vectors = f"{facts['n_support_vectors']:,} in {models}"
    return "support vectors", f"{vectors}, {', '.join(numbers)}"


def _positive(model: Model) -> list[tuple[str, str]]:
    """The labels on the positive side, where they were named, and what stands for all others."""
    from ooc_svm.data.classes import label_name

    labels = model.options.get("positive")
    if not labels or model.multilabel or model.negative is None:
        return []
    names = [label_name(label, model.label_names) for label in labels]
    others = label_name(model.negative, model.label_names)
    return [("positive", f"{shortened(names)}; others are predicted as {others}")]


def describe_model(model: Model, facts: dict[str, Any], path: str) -> str:
    """The facts of a model for people; DamageError if the report in it is malformed."""
    from ooc_svm.data.classes import label_text

    lines = [
        ("model", f"{path} ({format_size(file_size(path))})"),
        ("problem", f"{model.problem}, {model.loss} loss, {model.kernel} kernel, solver {model.solver}"),
        ("features", _describe_features(model.n_features, model.index_base, model.feature_names)),
        _describe_functions(model, facts),
    ]
    if model.classes:
        names = model.label_names or [label_text(label) for label in model.classes]
        lines.append(("labels of a row" if model.multilabel else "classes", shortened(list(names))))
        lines += _positive(model)
    if model.epsilon is not None:
        lines.append(("epsilon", f"{model.epsilon:g}"))
    if model.C:
        lines.append(("C", shortened([f"{C:g}" for C in dict.fromkeys(model.C)])))
    if len(set(model.C)) > 1:
        lines.append(("predicts with", f"C {model.C[model.selected]:g}"))
    lines.append(("bias", shortened([f"{bias:.6g}" for bias in model.bias.tolist()])))
    report = model.report
    try:
        if "n_rows" in report:
            size = f"{count(report['n_rows'], 'row')}, {count(report['n_nonzeros'], 'nonzero')}"
            lines.append(("trained on", size))
            read = format_read(report["bytes_read"])
            lines.append(("took", f"{report['passes']} passes, {read}, {format_seconds(report['seconds'])}"))
        if model.calibration is not None and "calibration" in report:
            lines.append(("probabilities", probabilities(report)))
        parts = [block(lines)]
        if models := report.get("models"):
            parts.append(model_table(models))
        if tuning := report.get("tuning"):
            parts.append(comparison(tuning))
        return "\n\n".join(parts)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamageError(
            f"{path}: the report in this model is malformed; use another copy or train again"
        ) from error
