"""The store that ``validation`` names: opened once, and measured as often as is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ooc_svm.evaluation.evaluate import measure_data
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
        self.ignored = 0
        """Values in features that the data lack, as they were met when it was last measured."""

    @property
    def id(self) -> str:
        """What its measures follow from, besides the models: its content, and whether rows are left out."""
        return f"{self._store.id} {self._unlabelled}"

    def measure(self, model: Model, metric: str | None, C: float) -> dict[str, float]:
        """One metric of the models of a C by name, or those that are the default; see `measure_data`."""
        found = measure_data(
            model,
            self._store,
            metric,
            unlabelled=self._unlabelled,
            threads=self._options.threads,
            memory=INTERPRETER_BYTES + validation_bytes(self._options) + _support_bytes(model),
            C=C,
        )
        self.ignored = found.ignored
        return found.values

    def tell_ignored(self) -> None:
        """Say how many of its values are ignored, where some are."""
        batch = self._run.prepared.batch
        if self.ignored and (batch is None or batch.number == 0):
            self._run.recorder.note(
                f"{self.ignored} values of {self._options.validation} are of features that the data lack; "
                "they are ignored"
            )


def _support_bytes(model: Model) -> int:
    """Bytes of the support vectors of a model: they are in memory, and more as the run goes on."""
    functions = model.functions
    if not isinstance(functions, KernelFunctions):
        return 0
    return functions.vectors.nbytes + 2 * functions.coefficients.nbytes
