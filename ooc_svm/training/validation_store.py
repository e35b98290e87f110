"""The store that ``validation`` names: opened once, and measured as often as is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ooc_svm.evaluation.evaluate import Measured, measure_data
from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.model import Model
from ooc_svm.store.open import has_manifest, open_store
from ooc_svm.system.memory import INTERPRETER_BYTES
from ooc_svm.training.memory_plan import validation_bytes
from ooc_svm.training.opened import opening_options

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


class ValidationStore:
    """Rows of another store, labelled as those of training are."""

    def __init__(self, run: Run) -> None:
        options, source = run.prepared.options, run.prepared.data.source
        self._run, self._options, path = run, options, str(options.validation)
        given = opening_options(source, options)
        if has_manifest(path):
            given |= {"label": None, "layer": None}  # A store of ours has labels of its own, and no layers.
        self._store = open_store(path, **given)
        self._unlabelled: str = given["unlabelled"]
        self._found: Measured | None = None  # When it was last measured

    @property
    def id(self) -> str:
        """What its measures follow from, apart from models: its content, and whether rows are left out."""
        return f"{self._store.id} {self._unlabelled}"

    def measure(
        self, model: Model, metric: str | None, C: float, spare: int | None = None
    ) -> dict[str, float]:
        """One metric of the models of a C by name, or those that are the default; see `measure_data`.

        ``spare``: bytes for support vectors in addition to those planned for measuring; by default as many as
        these take.
        """
        support = _support_bytes(model)
        self._found = measure_data(
            model,
            self._store,
            metric,
            unlabelled=self._unlabelled,
            threads=self._options.threads,
            memory=INTERPRETER_BYTES
            + validation_bytes(self._options)
            + (support if spare is None else min(support, spare)),
            C=C,
        )
        return self._found.values

    @property
    def ignored(self) -> int:
        """Values in features that the data lack."""
        return 0 if self._found is None else self._found.ignored

    @property
    def left_out(self) -> dict[str, dict[str, int]]:
        """Part of the report: rows that are left out of the measures, where there are any."""
        found = self._found
        if found is None or not (found.n_unlabelled or found.n_unknown):
            return {}
        return {"left_out": {"unlabelled": found.n_unlabelled, "unknown": found.n_unknown}}

    def tell_left_out(self) -> None:
        """Say what the measures leave out, where there is any."""
        batch, path = self._run.prepared.batch, self._options.validation
        if batch is not None and batch.number:
            return  # The first one has said it.
        if self.ignored:
            self._run.recorder.note(
                f"{self.ignored} values of {path} are of features that the data lack; they are ignored"
            )
        for counts in self.left_out.values():
            self._run.recorder.note(
                f"{sum(counts.values())} rows of {path} are left out of its measures: {counts['unlabelled']} "
                f"have no label, {counts['unknown']} have one that the data lack"
            )


def _support_bytes(model: Model) -> int:
    """Bytes of the support vectors of a model: they are in memory, and more as the run goes on."""
    functions = model.functions
    if not isinstance(functions, KernelFunctions):
        return 0
    return functions.vectors.nbytes + 2 * functions.coefficients.nbytes
