"""What the parameters of public functions may be: their kinds, and the check of a call before any work.

A `Kind` reads the values of a parameter: it returns them as Python's own types, so that a number of NumPy is
as good as one of Python, and refuses all others by a `UsageError` that names parameter and value.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, Field, fields
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

from ooc_svm.errors import UsageError, parameter, shown
from ooc_svm.system.address import address_of, complaint_about, local_name, looks_like_address
from ooc_svm.system.memory import format_size, parse_size

MissingFeatures = Literal["error", "zero"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Integers up to this one are numbers of float64.
_EXACT = 2**53
_LARGEST_COUNT = 2**63 - 1
_MOST_THREADS = 4096
_LEAST_SIZE = 10**6  # Bytes of memory below which a unit was forgotten
_MANY_GIGABYTES = 100  # A number without a unit that is as large is meant as megabytes


class Complaint(Exception):
    """What is wrong with a value, in words that follow the name of its parameter."""


class Kind(NamedTuple):
    """What a parameter may be.

    `doc` is its type in docstrings, `allowed` follows "must be" in messages, and `convert` returns the value
    as it is used. It raises TypeError, ValueError, OverflowError or AttributeError for a value that is not
    allowed, or `Complaint` where more than that can be said.
    """

    doc: str
    allowed: str
    convert: Callable[[Any], Any]

    def read(self, name: str, value: Any) -> Any:
        """The value of a parameter, converted; UsageError if it is not allowed."""
        try:
            return self.convert(value)
        except Complaint as complaint:
            raise UsageError(f"{parameter(name)} {complaint}") from None
        except (TypeError, ValueError, OverflowError, AttributeError):
            raise UsageError(f"{parameter(name)} must be {self.allowed}, not {shown(value)}") from None


def plain(value: Any) -> Any:
    """A number of NumPy as one of Python; other values as they are."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray) and value.ndim == 0:
        return value.item()
    return value


def read_number(value: Any) -> float:
    """A real number: an int where it was one that float64 has; TypeError or OverflowError for others."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    if isinstance(value, Integral) and abs(int(value)) <= _EXACT:
        return int(value)
    return float(value)


def read_items(value: Any) -> list[Any]:
    """The items of a sequence or a 1-d array; TypeError for text, sets, mappings and what has no length."""
    if isinstance(value, str | bytes | Mapping | Set) or not (
        hasattr(value, "__iter__") and hasattr(value, "__len__")
    ):
        raise TypeError
    return list(value)


def integer(allowed: str = "an integer", holds: Callable[[int], bool] = lambda number: True) -> Kind:
    """Integers with a property; floats are none, even if they are whole."""

    def convert(value: Any) -> int:
        value = plain(value)
        if isinstance(value, bool) or not isinstance(value, Integral) or not holds(int(value)):
            raise ValueError
        return int(value)

    return Kind("int", allowed, convert)


def at_least(least: int, most: int = _LARGEST_COUNT) -> Kind:
    """Integers of a range."""
    span = f"of at least {least}" if most == _LARGEST_COUNT else f"from {least} to {_power(most)}"
    return integer(f"an integer {span}", lambda number: least <= number <= most)


def _power(number: int) -> str:
    return f"2^{number.bit_length()} - 1" if number > 10**6 and number & (number + 1) == 0 else str(number)


def number(allowed: str, holds: Callable[[float], bool]) -> Kind:
    """Real numbers with a property, which NaN must not have."""

    def convert(value: Any) -> float:
        found = read_number(value)
        if not holds(found):
            raise ValueError
        return found

    return Kind("float", allowed, convert)


def choice(*values: str | int) -> Kind:
    """One of a few names, or integers."""
    listed = ", ".join(map(repr, values))

    def convert(value: Any) -> Any:
        value = plain(value)
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in values:
            raise ValueError
        return values[values.index(value)]

    allowed = f"one of {listed}" if len(values) > 2 else " or ".join(map(repr, values))
    return Kind(f"{{{listed}}}".replace("'", '"'), allowed, convert)


def _read_flag(value: Any) -> bool:
    value = plain(value)
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise TypeError
    value.encode()  # not so text with parts of characters
    return str(value)


def _read_path(value: Any) -> Any:
    """A path, unchanged, with which the operating system can be asked, or an address, in its plain form."""
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError
    if looks_like_address(path):
        if (complaint := complaint_about(path)) is not None:
            raise Complaint(complaint)
        address = address_of(path)
        if address is None:
            return local_name(path)
        return os.fspath(address) if isinstance(value, str) else address
    os.fsencode(path)
    return value if isinstance(value, os.PathLike) else str(path)


def _read_output(output: Any) -> Any:
    """A path, or a stream of bytes; streams of text have an encoding."""
    if not hasattr(output, "write"):
        return _read_path(output)
    writable = getattr(output, "writable", lambda: True)
    if hasattr(output, "encoding") or getattr(output, "closed", False) or not writable():
        raise TypeError
    return output


def _read_local_path(value: Any) -> Any:
    path = _read_path(value)
    if address_of(path) is not None:
        raise Complaint(f"{path} is in an object store, and a path on a local disk is needed")
    return path


def _read_size(value: Any) -> str | int:
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise TypeError
    size = str(value) if isinstance(value, str) else int(value)
    n_bytes = parse_size(size)
    if n_bytes < _LEAST_SIZE:
        unit = "GB" if n_bytes < _MANY_GIGABYTES else "MB"
        example = f"{size}{unit}" if str(size).isdecimal() and n_bytes else "600MB"
        raise Complaint(f"{shown(value)} is {format_size(n_bytes)}, too little; write for example {example}")
    return size


def _read_function(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value


def _read_json(value: Any) -> Any:
    import json

    if not isinstance(value, dict):
        raise TypeError
    json.dumps(value)
    return value


def _read_grid(grid: Any) -> dict[str, tuple[Any, ...]]:
    found = {}
    for name, values in grid.items():
        numbers = [values] if isinstance(plain(values), int | float) else read_items(values)
        if not numbers:
            raise ValueError
        found[str(name)] = tuple(map(read_number, numbers))
    return found


def _read_names(names: Any) -> Any:
    if is_path(names):
        return _read_path(names)
    if isinstance(names, Mapping | Set) or not (hasattr(names, "__iter__") and hasattr(names, "__len__")):
        raise TypeError
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError
    return names


def is_path(value: Any) -> bool:
    """Whether a value can only be meant as a path."""
    return isinstance(value, str | bytes | os.PathLike)


def _read_data(data: Any) -> Any:
    """A path, or what may be a matrix: that is seen where its entries are read."""
    if is_path(data):
        return _read_path(data)
    if (isinstance(data, list | tuple) and data) or hasattr(data, "read_block"):
        return data
    if len(data.shape if hasattr(data, "shape") else data.__array__().shape) != 2:
        raise ValueError
    return data


def _read_any_data(data: Any) -> Any:
    if isinstance(data, list | tuple) and any(map(is_path, data)):
        return [_read_path(path) for path in data]
    return _read_data(data)


FLAG = Kind("bool", "True or False", _read_flag)
TEXT = Kind("str", "text that is not empty", _read_text)
PATH = Kind("path", "a path as text or os.PathLike", _read_path)
LOCAL_PATH = Kind("path", "a path on a local disk, as text or os.PathLike", _read_local_path)
OUTPUT = Kind("path or binary stream", "a path, or a binary stream to write to", _read_output)
SIZE = Kind("int or str", "a size: bytes as an integer, or text like '600MB' or '4GiB'", _read_size)
CALLBACK = Kind("callable", "a function", _read_function)
JSON = Kind("dict", "a dict that JSON can hold", _read_json)
ARRAY = Kind("array_like", "one number a row", lambda entries: entries)
MATRIX = Kind("matrix", "a matrix of rows", lambda matrix: matrix)
DATA = Kind("path, Store or matrix", "the path of a store, a Store, or a matrix of rows", _read_data)
ANY_DATA = Kind(
    "path, paths, Store or matrix",
    "the path of a store or of text, several paths of text, a Store, or a matrix of rows",
    _read_any_data,
)
FEATURE_NAMES = Kind(
    "path or sequence of str",
    "the path of a file with a name on each line, or a sequence of names",
    _read_names,
)
MISSING_FEATURES = choice("error", "zero")
COUNT = at_least(1)
THREADS = at_least(1, _MOST_THREADS)
COST = number("a positive number", lambda C: 0 < C < math.inf)
PRICE = number("finite and not negative", lambda price: 0 <= price < math.inf)
DTYPE = choice("float32", "float64")
FOLDS = at_least(2, 100)
GRID = Kind(
    "mapping of str to sequence of float",
    "a mapping of names of options to numbers, or several of them",
    _read_grid,
)
RULE = choice("best", "one-standard-error")
EXPORT_FORMAT = choice("liblinear", "libsvm", "svmlight")
INDEX_BASE = choice(0, 1)
UNLABELLED = choice("error", "skip", "keep")


def checks(rest: type | None = None, /, **kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function so that its arguments are read by their kinds before it runs.

    A default is always allowed. `rest` is the class, decorated by `checked_fields`, whose fields the function
    takes as ``**options``; its signature shows them. Unknown and missing arguments are a `UsageError` as
    well.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @cache
        def signature() -> inspect.Signature:
            return inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = _bound(function, signature(), rest, args, kwargs)
            for name, value in bound.arguments.items():
                if name in kinds and value is not signature().parameters[name].default:
                    bound.arguments[name] = kinds[name].read(name, value)
            return function(*bound.args, **bound.kwargs)

        checked.kinds = kinds  # type: ignore[attr-defined]
        if rest is not None:
            checked.__signature__ = _with_fields(signature(), rest)  # type: ignore[attr-defined]
        return checked

    return decorate


def _with_fields(signature: inspect.Signature, rest: Any) -> inspect.Signature:
    """A signature with the fields of a class instead of ``**options``, as it is shown."""
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=_default_of(each), annotation=each.type
        )
        for each in fields(rest)
    ]
    return signature.replace(parameters=[*own, *more])


def _default_of(item: Field[Any]) -> Any:
    """The default of a field, made where it is made for each object; the mark of a signature for none."""
    if item.default_factory is not MISSING:
        return item.default_factory()
    return inspect.Parameter.empty if item.default is MISSING else item.default


def _bound(
    function: Callable[..., Any],
    signature: inspect.Signature,
    rest: type | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> inspect.BoundArguments:
    """The arguments by name; UsageError where the function does not take them."""
    known = [name for name, each in signature.parameters.items() if each.kind is not each.VAR_KEYWORD]
    known += [] if rest is None else [item.name for item in fields(rest)]
    unknown = next((name for name in kwargs if name not in known), None)
    if unknown is not None:
        raise _unknown(unknown, known)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function.__qualname__.removesuffix(".__init__")
        raise UsageError(f"{name}: {error}; see its documentation") from None


def _unknown(name: str, known: list[str]) -> UsageError:
    from difflib import get_close_matches

    spelled = {each.lower(): each for each in known if each != "self"}
    near = get_close_matches(name.lower(), spelled, 1)
    advice = f"did you mean {spelled[near[0]]}?" if near else f"there are: {', '.join(spelled.values())}"
    return UsageError(f"there is no parameter {name!r:.82}; {advice}")


def check_engine(engine: str, scheduler: str | None, insecure_cluster: bool) -> None:
    """Refuse options of a cluster where none is used."""
    for name, given in (("scheduler", scheduler is not None), ("insecure_cluster", insecure_cluster)):
        if given and engine != "dask":
            raise UsageError(
                f"{parameter(name)} needs {parameter('engine', 'dask')}; add it, or leave it out"
            )


def checked_fields(cls: type[T]) -> type[T]:
    """Decorate a dataclass so that its fields are read by the kinds in their metadata (``kind``)."""
    made: Any = cls
    made.__init__ = checks(**{item.name: item.metadata["kind"] for item in fields(made)})(made.__init__)
    return cls


def _read_costs(value: Any) -> tuple[float, ...]:
    value = plain(value)
    costs = tuple(map(read_number, [value] if isinstance(value, Real) else read_items(value)))
    if not costs or not all(0 < C < math.inf for C in costs):
        raise ValueError
    if len(set(costs)) != len(costs):
        raise Complaint(f"holds the same value twice: {shown(value)}")
    return costs


def _read_label(label: Any) -> float | str:
    """A label: a name, or a finite number; True and False are 1 and 0."""
    label = plain(label)
    if isinstance(label, bool):
        return float(label)
    if isinstance(label, str):
        return str(TEXT.convert(label))
    found = read_number(label)
    if not math.isfinite(found):
        raise ValueError
    return found


def _read_labels(value: Any) -> tuple[float | str, ...]:
    value = plain(value)
    return tuple(map(_read_label, [value] if isinstance(value, str | Real) else read_items(value)))


def _read_validation(value: Any) -> float | Any:
    """A share of the rows, or the path of a store."""
    if not isinstance(plain(value), Real):
        return PATH.convert(value)
    share = read_number(value)
    if not 0 < share < 1:
        raise ValueError
    return share


def _read_gamma(value: Any) -> float | str:
    """A positive number, or one of the rules that it follows from the data by."""
    if isinstance(value, str):
        return GAMMA_RULES[GAMMA_RULES.index(value)]
    found = read_number(value)
    if not 0 < found < math.inf:
        raise ValueError
    return found


def _read_class_weight(weights: Any) -> str | dict[float | str, float]:
    if isinstance(weights, str) and weights == "balanced":
        return "balanced"
    if not isinstance(weights, Mapping):
        raise TypeError
    return {_read_label(label): _read_weight(label, weight) for label, weight in weights.items()}


def _read_weight(label: Any, weight: Any) -> float:
    try:
        found = read_number(weight)
    except (TypeError, OverflowError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise Complaint(f"of label {shown(label)} must be finite and not negative, not {shown(weight)}")
    return found


GAMMA_RULES = ("scale", "auto")
GAMMA = Kind('float or {"scale", "auto"}', "a positive number, 'scale' or 'auto'", _read_gamma)
LARGEST_DEGREE = 1000
DEGREE = at_least(1, LARGEST_DEGREE)
FINITE = number("a finite number", math.isfinite)
COSTS = Kind("float or sequence of float", "positive and finite: a number, or several of them", _read_costs)
LABELS = Kind("label or sequence of labels", "a label or a sequence of labels", _read_labels)
CLASS_WEIGHT = Kind(
    '"balanced" or dict of label to float', "'balanced' or a dict of weights by label", _read_class_weight
)
VALIDATION = Kind(
    "float or path", "a share of the rows between 0 and 1, or the path of a store", _read_validation
)
SEED = integer("an integer from -2^63 to 2^64 - 1", lambda seed: -(2**63) <= seed < 2**64)
GAP = number("a relative gap between 0 and 1", lambda tol: 0 < tol < 1)
SECONDS = number("a positive number", lambda seconds: seconds > 0)
DEVIATION = number("finite and not negative", lambda epsilon: 0 <= epsilon < math.inf)
SHARE = number("a share of the data above 0 and at most 1", lambda share: 0 < share <= 1)
PRUNED_SHARE = number("a share of the largest weight, above 0 and below 1", lambda share: 0 < share < 1)
POWER = number("a power from 1 to 2", lambda p: 1 <= p <= 2)
NU = number("above 0 and at most 1", lambda nu: 0 < nu <= 1)
LANES = integer("a power of two up to 64", lambda lanes: lanes in (1, 2, 4, 8, 16, 32, 64))
