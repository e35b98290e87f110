"""What a solver package offers: a plan of what it needs, and the solvers of some models.

Training, memory division, checkpoints and clusters know solvers by this alone, and none by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, row_slices
from ooc_svm.data.source import Span
from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import Pass, RowSet, Steps, VectorRequest
from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping

LONG_ROW = 400
"""Nonzeros of a row, on average, from which on a solver may treat rows in another way."""

MANY_COLUMNS = 1 << 16
"""Weights of more columns are not near enough to a processor as they are."""

MANY_MODELS = 6
"""Models from which on a solver may sweep them as one."""

PRECISION = "float64"
"""Precision of kernel values where P and D are to be of the kernel itself."""


@dataclass(frozen=True, slots=True)
class DataSize:
    """The sizes that a plan follows from."""

    n_rows: int
    n_nonzeros: int
    dimension: int  # Parameters of one model
    n_models: int
    value_bytes: int  # Bytes of one stored value in memory: 0 where every value is 1
    has_weight: bool = False  # Whether rows have weights
    n_scored: int = 0  # Models whose scores of rows that are held out are wanted
    n_losses: int = 1  # Number of different losses among the models, at most
    # Ranks of the rows, where all of them are compared; 0: they are not, or there are very many
    n_ranks: int = 0
    in_queries: bool = False  # Whether rows are compared inside queries only

    @property
    def elements(self) -> int:
        """Nonzeros and rows together."""
        return max(self.n_nonzeros + self.n_rows, 1)


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One use of memory."""

    name: str
    nbytes: int
    note: str  # How the bytes come about; "{each}" stands for the size of one of several equal parts
    each: int = 0  # Bytes of that


@dataclass(frozen=True, slots=True)
class Room:
    """What a solver may use, and what an engine will."""

    nbytes: int  # Of memory, for all that the solver plans
    threads: int
    block_nbytes: int  # Bytes of the largest decoded block; 0 for a matrix in memory
    blocks_a_thread: int  # Decoded blocks that are alive for each thread
    partials: int  # Sums of segments that are alive at most
    sorting_bytes: int = 0  # Bytes of ``nbytes`` that sorting takes at least, where rows are sorted

    def blocks(self, count: int) -> MemoryItem:
        """So many blocks alive."""
        return MemoryItem(
            "blocks being read", count * self.block_nbytes, f"{count} of {{each}}", self.block_nbytes
        )


NO_ROOM = Room(0, 1, 0, 1, 1)  # Where memory does not matter


class FunctionKinds(NamedTuple):
    """Data and models that a solver has compiled functions of their own for."""

    long_rows: bool = False  # See `LONG_ROW`
    many_columns: bool = False  # See `MANY_COLUMNS`
    many_models: bool = False  # See `MANY_MODELS`
    by_factor: bool = False  # Rows, fewer than their columns, that are solved by their products alone


NO_KINDS = FunctionKinds()


@dataclass(frozen=True, slots=True)
class SolverPlan:
    """What a solver will need.

    Attributes
    ----------
    parameters : dataclass of int
        The solver's own: they follow from the memory, belong to the algorithm, and are kept by checkpoints.
    items : tuple of MemoryItem
        Uses of memory, row vectors and sorting left out.
    row_bytes : int
        Bytes a row of the row vectors of all models.
    sorts_by : int
        Cut groups for which rows are sorted by their scores; 0 where none are sorted.
    expected_reads : int
        Reads to a gap of 1e-3, as measured on data of several kinds.
    report : mapping
        What the report says of it.
    cut : tuple of int
        How a read is cut, where saved row vectors can be understood by this alone.
    crowded : bool
        Whether it has so little room that fewer models at a time are better, in any case.
    cramped : bool
        Whether it has so little room that fewer values of C, or folds, at a time are better.
    kinds : FunctionKinds
        Which of these the data and the models of the run are.
    """

    parameters: Any
    items: tuple[MemoryItem, ...]
    row_bytes: int
    expected_reads: int
    report: Mapping[str, Any]
    sorts_by: int = 0
    cut: tuple[int, ...] = ()
    crowded: bool = False
    cramped: bool = False
    kinds: FunctionKinds = NO_KINDS


@dataclass(frozen=True, slots=True)
class Context:
    """What the solvers of all models share."""

    size: DataSize
    blocks: Sequence[Span]
    value_type: str  # {"ones", "float32", "float64"}
    space: LinearSpace
    stopping: Stopping
    options: TrainOptions
    kernels: tuple[Any, ...]  # See `ooc_svm.ops.kernels`: of each variant of `ModelSpec`
    crew: Callable[[], Crew] = Alone  # Makes a crew for the solves of a model


@dataclass(frozen=True, slots=True)
class Sample:
    """What a solver asks for in a typical read, to measure how long one takes."""

    counts: tuple[VectorRequest, ...]  # Requests that come before the passes
    passes: tuple[Pass, ...]  # That share a read
    n_counts: int = 0  # How often such requests are made for one read
    # What is computed in addition to the passes, as a multiple of the time that they take: from easy to hard
    # data
    sweeps: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class KeptScores:
    """The scores of the best point in row vectors: ``start + t (end - start) + offset``."""

    start: str
    end: str
    t: float = 0.0
    offset: float = 0.0
    rows: RowSet | None = None  # Of passes over these vectors, see `Pass`

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""
        return (self.start,) if self.t == 0.0 else (self.start, self.end)

    def of(self, vectors: Mapping[str, Any]) -> Float64Array:
        """The scores of some rows, from slices of the row vectors."""
        start: Float64Array = vectors[self.start]
        return (start if self.t == 0.0 else start + self.t * (vectors[self.end] - start)) + self.offset


class LinearFunction(NamedTuple):
    """``w.x + b``, with the weights in units of the data."""

    weights: Float64Array
    bias: float


class KernelExpansion(NamedTuple):
    """``sum_i v_i k(x, x_i) + b`` over the rows of the data."""

    coefficients: str  # Name of the row vector of v (float64): rows other than 0 are support vectors
    bias: float
    precision: str = "float32"  # {"float32", "float64"}: in which kernel values are computed
    rows: RowSet | None = None  # Of passes over the row vector, see `Pass`


Solution = LinearFunction | KernelExpansion


class Solver(ABC):
    """The solver of one model.

    Attributes
    ----------
    state : Any
        What a checkpoint holds: everything kept between two reads, apart from the row vectors.
    stopping : Stopping
    """

    state: Any
    stopping: Stopping

    @property
    def certificate(self) -> Certificate:
        """Values and bound so far."""
        certificate: Certificate = self.state.certificate
        return certificate

    @property
    @abstractmethod
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        """Row vectors that it goes on from, with types."""

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        """Row vectors that it makes from others in every iteration, with types."""
        return {}

    @abstractmethod
    def steps(self) -> Steps:
        """Yield requests until the gap is certified or a limit is reached."""

    @abstractmethod
    def solution(self) -> Solution:
        """The decision function of the best point."""

    @abstractmethod
    def is_sound(self) -> bool:
        """Whether the state fits the model; a saved one may come from anywhere."""

    def distrust(self, origin: str) -> None:
        """Take the state for one of the checkpoint ``origin``, to be checked before it is gone on from."""
        del origin

    @abstractmethod
    def sample(self) -> Sample:
        """What it asks for in a typical read; only of a solver that is not run."""

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Its part of the report."""
        return {}

    def kept_scores(self) -> KeptScores | None:
        """The scores of the best point, between two reads; None where they are not known."""
        return None

    def hints(self) -> dict[str, str]:
        """What a user should know of the columns, after the first read: sentences by a short code."""
        return {}

    @property
    def refines_values(self) -> bool:
        """Whether reads to come may compute with less rounding than those so far."""
        return False

    def obstacles(self) -> dict[str, str]:
        """What keeps the gap from being certified, as far as it is known: sentences by a short code."""
        return {}

    def leave(self) -> None:  # noqa: B027
        """Take no further part: what other models have of this one is given up, and the reverse."""


class Prunable(Solver):
    """The solver of a model whose weights may be set to 0 in the end: ``prune`` is one of its options."""

    @abstractmethod
    def solution(self) -> LinearFunction: ...

    @abstractmethod
    def prune(self, features: npt.NDArray[np.bool_]) -> Steps:
        """After the end of a run: yield requests that find P where the weights of some features are 0.

        That is the best point then, with the best parameters that have no penalty. The data are read once.
        The state is none to go on from.

        Parameters
        ----------
        features : ndarray of bool of shape (n_features,)
        """


class SolverPackage(ABC):
    """An algorithm: what `ooc_svm.catalog` names.

    Attributes
    ----------
    solves_apart : bool
        Whether most of the time of many models goes into what each has of its own, which threads may share.
    """

    solves_apart: ClassVar[bool] = False

    @abstractmethod
    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """Parameters that fit the room, or that need the least, those for 0 bytes, if none do.

        Parameters
        ----------
        size : DataSize
        options : TrainOptions
        room : Room
        kept : mapping of str to int, optional
            Parameters that a saved state was made with; no others are tried.

        Raises
        ------
        ValueError
            The parameters kept cannot be those of a run on such data with these options.
        """

    @abstractmethod
    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        """A plan for a few rows with which the functions are used that others use: for compiling them."""

    @abstractmethod
    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """What a worker of a cluster needs for some rows, ``size``, of a run with the plan ``whole``."""

    @abstractmethod
    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        """Parameters that fit a cluster's client, with its plan, and the smallest worker, with that one's."""

    @abstractmethod
    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        """The solvers of the models, in their order."""

    def rounds(self, plan: SolverPlan, context: Context) -> Sequence[RowSet]:
        """The rows of each round, where a read comes in rounds."""
        return ()

    def opening(self, plan: SolverPlan, context: Context) -> tuple[int, ...]:
        """The blocks that the first read begins with, where that is known."""
        return ()


def write_entries(vector: Any, numbers: Int64Array, entries: Float64Array) -> None:
    """Set the entries of some rows of a row vector."""
    order = np.argsort(numbers)
    numbers, entries = numbers[order], entries[order]
    for first, last in row_slices(vector.n_rows):
        here = slice(*np.searchsorted(numbers, (first, last)))
        if here.start < here.stop:
            own = vector.read(first, last).copy()
            own[numbers[here] - first] = entries[here]
            vector.write(first, own)


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Two points to begin with: a function of some rows' kernel values, and multipliers of all rows."""

    numbers: Int64Array  # Of the rows of the function, ascending
    coefficients: Float64Array
    bias: float
    multipliers: Any  # RowVector


class PointStarting(SolverPackage):
    """An algorithm for kernels that can begin with points: ``landmarks`` is one of its options."""

    @abstractmethod
    def begin_with(self, solver: Any, vectors: Any, start: Start) -> None:
        """Let a fresh solver, with these row vectors, begin with some points."""


class WarmStarting(SolverPackage):
    """An algorithm whose runs can begin where others ended: ``warm_start`` is one of its options."""

    @abstractmethod
    def begin_at(self, solver: Any, w: Float64Array, b: float) -> None:
        """Let a fresh solver begin at the weights of a model."""

    @abstractmethod
    def settle(self, solver: Any, vectors: Any) -> str:
        """Put the multipliers of all rows into one row vector; its name. The run has ended."""

    @abstractmethod
    def take_over(
        self,
        solver: Any,
        ratio: float,
        cut: Sequence[int],
        blocks: Sequence[Span],
        vectors: Any,
        fill: Callable[[Any], None],
    ) -> bool:
        """Let a fresh solver begin with the state of a run with another C.

        Parameters
        ----------
        solver : Solver
            Its row vectors are those of that run.
        ratio : float
            Of this C to the other one.
        cut : sequence of int
            See `SolverPlan`; of that run.
        blocks : sequence of Span
        vectors : RowVectors
        fill : callable
            Puts the saved state into a fresh one.

        Returns
        -------
        bool
            Whether the state fits the data; if not, nothing of it is to be used.
        """
