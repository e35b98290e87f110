"""``ooc-svm info`` and ``ooc-svm verify``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ooc_svm.cli.format import block, count, describe_labels, describe_values, seconds, shortened
from ooc_svm.cli.options import Label, Quiet
from ooc_svm.cli.report import model_table
from ooc_svm.errors import DamageError, InputError
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.model.model import Model
    from ooc_svm.store import Store


# Counts of the conversion that other lines show.
_SHOWN_ABOVE = {"rows", "nonzeros", "n_features"}


def info(
    path: Annotated[str, typer.Argument(metavar="STORE|MODEL", help="A store or a model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    label: Label = None,
) -> None:
    """Show what a store or a model holds."""
    if os.path.isdir(path):
        from ooc_svm.store import open_store, store_info

        store = open_store(path, label=label)
        typer.echo(_json(store_info(store)) if as_json else describe_store(store))
        return
    if not os.path.exists(path):
        raise InputError(f"{path}: there is no such store or model; check the path")

    from ooc_svm.model.file import load_model, model_info

    model = load_model(path)
    facts = model_info(model)
    typer.echo(_json(facts) if as_json else describe_model(model, facts, path))


def verify(
    path: Annotated[str, typer.Argument(metavar="STORE", help="A store.")],
    label: Label = None,
    quiet: Quiet = False,
) -> None:
    """Check every chunk and every row of a store.

    Chunks are checked against the sizes and checksums of the manifest, rows against the rules.
    """
    from ooc_svm.cli.progress import byte_progress
    from ooc_svm.store import verify_store

    with byte_progress("verify", quiet) as progress:
        report = verify_store(path, label=label, progress=progress)
    checked = f"{count(report.n_chunks, 'chunk')} ({format_size(report.n_bytes)})"
    how = "against the manifest" if report.manifest else "by decoding; there is no manifest, so no checksums"
    typer.echo(
        f"{path}: whole: {checked} {how}, {count(report.n_rows, 'row')} in {count(report.n_blocks, 'block')}"
    )


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, allow_nan=False)


def describe_store(store: Store) -> str:
    """The facts of a store for people."""
    cells = max(store.n_rows * store.n_features, 1)
    a_row = store.n_nonzeros / max(store.n_rows, 1)
    lines = [
        ("store", str(store.path)),
        ("rows", f"{store.n_rows:,}"),
        ("features", f"{store.n_features:,} (numbered from {store.index_base})"),
        ("nonzeros", f"{store.n_nonzeros:,} ({a_row:.4g} a row, {100 * store.n_nonzeros / cells:.2g} %)"),
        ("values", describe_values(store.value_type)),
        ("labels", describe_labels(store.labels, store.label_names)),
    ]
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
    return f"{source.get('name')}" + (f" ({format_size(size)})" if isinstance(size, int) else "")


def describe_model(model: Model, facts: dict[str, Any], path: str) -> str:
    """The facts of a model for people; DamageError if the report in it is malformed."""
    from ooc_svm.data.classes import label_text

    lines = [
        ("model", f"{path} ({format_size(os.path.getsize(path))})"),
        ("problem", f"{model.problem}, {model.loss} loss, {model.kernel} kernel, solver {model.solver}"),
        ("features", f"{model.n_features:,} (numbered from {model.index_base})"),
        ("weights", f"{facts['n_nonzero_weights']:,} other than 0 in {count(model.n_models, 'model')}"),
    ]
    if model.classes:
        names = model.label_names or [label_text(label) for label in model.classes]
        lines.append(("classes", shortened(list(names))))
    if model.epsilon is not None:
        lines.append(("epsilon", f"{model.epsilon:g}"))
    if model.C:
        lines.append(("C", shortened([f"{C:g}" for C in dict.fromkeys(model.C)])))
    lines.append(("bias", shortened([f"{bias:.6g}" for bias in model.bias.tolist()])))
    report = model.report
    try:
        if "n_rows" in report:
            size = f"{count(report['n_rows'], 'row')}, {count(report['n_nonzeros'], 'nonzero')}"
            lines.append(("trained on", size))
            read = format_size(report["bytes_read"])
            lines.append(("took", f"{report['passes']} passes, {read} read, {seconds(report['seconds'])}"))
        models = report.get("models", [])
        return block(lines) + (f"\n\n{model_table(models)}" if models else "")
    except (KeyError, TypeError, ValueError) as error:
        raise DamageError(
            f"{path}: the report in this model is malformed; use another copy or train again"
        ) from error
