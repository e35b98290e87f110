"""The cache of compiled functions: a file that is damaged is as good as none, and is compiled again.

Numba runs what its files hold: of a truncated one it raises what unpickling raises, and a flipped bit is a
flipped bit of machine code. Here each file ends with a checksum of its name and its content.

Numba also loads all that it can compile before it loads machine code, and with the code each module whose
functions the code has inlined, some of which import much of SciPy: half a second and 80 MB in all. It parses
the intermediate code of each function, in case another one is compiled that calls it: more than half of the
time of a load. None of this is needed to run the code, so none is done here; compiling loads what it needs.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from io import BytesIO
from typing import Any, NamedTuple

from llvmlite import binding  # type: ignore[import-untyped]
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import compile_result
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]  # it is compiled

from ooc_svm.ops import compile_events

_CHECKSUM_BYTES = 4


def _checksum(path: str, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(os.path.basename(path).encode())).to_bytes(
        _CHECKSUM_BYTES, "little"
    )


def _is_whole(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return False
    return content[-_CHECKSUM_BYTES:] == _checksum(path, content[:-_CHECKSUM_BYTES])


class _CheckedFiles(IndexDataCacheFile):
    """Numba's files with checksums. Unpickling ignores the bytes after the end."""

    def save(self, key: Any, data: Any) -> None:
        """Save a function with its key."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """The function of a key; None if it is not there.

        Where two processes save at once, the index of one may name the file of the other's function.
        """
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    # To unpickle is to import the types that any process has called a function with, such as a loss of its
    # own: where that is not possible, the file is as good as none.

    def _load_index(self) -> dict[Any, str]:
        with suppress(Exception):
            return super()._load_index() if _is_whole(self._index_path) else {}
        return {}

    def _load_data(self, name: str) -> Any:
        with suppress(Exception):
            return super()._load_data(name) if _is_whole(self._data_path(name)) else None
        return None

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = BytesIO()
            yield content
            file.write(content.getvalue() + _checksum(filepath, content.getvalue()))


@cache
def _offer_runtime() -> None:
    """Let machine code find the functions of Numba's runtime.

    Where code is to be compiled, Numba also compiles those parts of the runtime that are put into it.
    """
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _Constants(NamedTuple):
    """An environment of a function as it is kept: the objects that its machine code refers to.

    Numba's own form imports the module by its name. Only code for the interpreter reads the module's globals.
    """

    module: str
    constants: list[Any]
    name: str

    @classmethod
    def of(cls, found: Environment) -> _Constants:
        return cls(found.globals["__name__"], found.consts, found.env_name)

    def environment(self) -> Environment:
        known: Environment | None = lookup_environment(self.name)
        if known is None:
            known = Environment({"__name__": self.module})
            known.consts[:] = self.constants
            known.env_name = self.name
            Environment._memo[self.name] = known
        return known


class _Code(NamedTuple):
    """The code of a function as it is kept.

    Attributes
    ----------
    name : str
        Of the library.
    machine, intermediate : bytes
        The second is linked into functions that are compiled.
    symbols : frozenset of str
        What it defines.
    """

    name: str
    machine: bytes
    intermediate: bytes
    symbols: frozenset[str]


def _defined(module: Any) -> frozenset[str]:
    """The names of what a module of intermediate code defines."""
    found = (*module.functions, *module.global_variables)
    return frozenset(each.name for each in found if not each.is_declaration)


class _LoadedLibrary(JITCodeLibrary):
    """Machine code from the cache; its intermediate code is parsed where it is to be linked."""

    def __init__(self, codegen: Any, code: _Code) -> None:
        super().__init__(codegen, code.name)
        self._intermediate = code.intermediate
        self.enable_object_caching()
        self._set_compiled_object(code.machine)
        self._finalize_final_module()
        codegen._engine._defined_symbols |= code.symbols

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._intermediate)
        return self._shared_module


class _Place(UserProvidedCacheLocator):
    """The place of a function in a folder of ours."""

    def __init__(self, function: Callable[..., Any], path: str, folder: str) -> None:
        super().__init__(function, path)
        self._cache_path = os.path.join(folder, self.get_suitable_cache_subpath(path))


class _Folder(NamedTuple):
    """A folder that Numba asks for a place before its own.

    Numba's own way to name a folder is a setting of the whole process. It cannot be set for a moment: modules
    are imported by several threads at once, and a place found between two changes is in the current folder.
    """

    path: str

    def from_function(self, function: Callable[..., Any], path: str) -> _Place | None:
        place = _Place(function, path, self.path)
        try:
            place.ensure_cache_path()
        except OSError:
            return None
        return place


class _Results(CompileResultCacheImpl):
    """How a compiled function is kept: Numba's tuple, in which other code and other environments stand."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        if folder:
            places: list[Any] = [_Folder(folder), *self._locator_classes]
            self._locator_classes = places
        super().__init__(function)

    def reduce(self, cres: Any) -> tuple[Any, ...]:
        (name, _, (machine, intermediate)), description, own, *middle, others = super().reduce(cres)
        code = _Code(name, machine, intermediate, _defined(cres.library._get_module_for_linking()))
        return code, description, _Constants.of(own), *middle, tuple(map(_Constants.of, others))

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        code, description, own, signature, objectmode, lifted, annotation, initialize, others = payload
        for each in initialize:
            each()
        codegen, environment = target_context.codegen(), own.environment()
        library = _LoadedLibrary(codegen, code)
        entry_point = target_context.get_executable(library, description, environment)
        referenced = tuple(each.environment() for each in others)
        for each in referenced:
            codegen.set_env(each.env_name, each)
        return compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=entry_point,
            type_annotation=annotation,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            fndesc=description,
            library=library,
            environment=environment,
            reload_init=initialize,
            referenced_envs=referenced,
        )


class CheckedCache(FunctionCache):
    """The cache of one function, in a folder, or where Numba finds one if that is empty or cannot be written.

    Raises RuntimeError where no folder can be written.
    """

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        self._impl_class = partial(_Results, folder=folder)  # type: ignore[assignment]  # it is only called
        super().__init__(function)
        impl = self._impl
        self._cache_file = _CheckedFiles(
            self._cache_path, impl.filename_base, impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a function; None if it is not there, and no other process compiles it."""
        _offer_runtime()
        found = self._load_overload(sig, target_context)
        if found is None and any(helps(self._py_func, sig) for helps in compile_events.helpers):
            found = self._load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a function; where that fails, as on a full disk, the next process compiles it again."""
        with suppress(OSError):
            super().save_overload(sig, data)
