"""From what a user writes to a cell: a name, a wrapper of names, a function in a file."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from anyrnn.cells import wrappers
from anyrnn.errors import CellError, meant
from anyrnn.trace import Cell

WRAPPERS = {
    name: value
    for name, value in vars(wrappers).items()
    if inspect.isfunction(value) and value.__module__ == wrappers.__name__ and not name.startswith("_")
}


def load(spec: Any, built_in: Mapping[str, Cell]) -> Cell:
    """See `anyrnn.cells.load`."""
    if isinstance(spec, Cell):
        return spec
    if not isinstance(spec, str):
        who = f"function {spec.__name__!r}: put @cell above it" if inspect.isfunction(spec) else f"a {type(spec).__name__}"
        raise TypeError(f"cell should be a Cell, the name of a built-in one, or 'my_file.py:my_cell'; got {who}")
    path, colon, name = spec.rpartition(":")
    if "(" in name or ("(" in spec and not Path(path).is_file()):
        return _written(spec, built_in)
    return _of_file(path, name) if colon else _of_name(spec, built_in)


def _of_name(name: str, built_in: Mapping[str, Cell]) -> Cell:
    if name in built_in:
        return built_in[name]
    if name.endswith(".py"):
        held = {k: v for k, v in vars(_module(name, name)).items() if isinstance(v, Cell)} if Path(name).is_file() else {}
        imported = {id(cell) for cell in built_in.values()}
        own = next((k for k, v in held.items() if id(v) not in imported), "my_cell")
        raise ValueError(f"cell {name!r} is a file: write {name}:{own}")
    hint = f" (did you mean {name.lower()!r}?)" if name.lower() in built_in else meant(name, built_in)
    known = "`anyrnn cells` lists the built-in ones, one of your own is my_file.py:my_cell"
    raise ValueError(f"unknown cell {name!r}{hint}; {known}")


OWN = re.compile(r"[^(),=\s'\"]+:[A-Za-z_]\w*")
"""A cell of a file, within wrappers."""


def _written(spec: str, built_in: Mapping[str, Cell]) -> Cell:
    """Of `residual(fast_slow(lstm, my_file.py:mine(leak=0.5), depth=3))`: wrappers of cells, and cells with other defaults. Names
    are looked up here; nothing is evaluated.
    """
    files = {f"_{k}": own for k, own in enumerate(OWN.findall(spec))}
    places = iter(files)
    known = f"the wrappers are {', '.join(sorted(WRAPPERS))}"
    try:
        expression = ast.parse(OWN.sub(lambda _: next(places), spec.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        expression = None

    def value(node: Any) -> Any:
        with suppress(ValueError, TypeError):
            literal = ast.literal_eval(node)
            if isinstance(literal, (int, float, str)):
                return literal
        if isinstance(node, ast.Name):
            try:
                return load(files.get(node.id, node.id), built_in)
            except ValueError as error:
                raise ValueError(f"{error}; text that is no cell stands in quotes, as 'rms'") from error
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise ValueError(f"cell {spec!r} is not written as wrapper(cell) or cell(name=value); {known}")
        called = node.func.id
        if called not in WRAPPERS and called not in files and called not in built_in:
            slip = meant(called, [*WRAPPERS, *built_in])
            raise ValueError(f"cell {spec!r}: unknown wrapper or cell {called!r}{slip}; {known}")
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError(f"cell {spec!r}: arguments are written as name=value")
        arguments = [value(argument) for argument in node.args]
        named = {str(keyword.arg): value(keyword.value) for keyword in node.keywords}
        if len(named) < len(node.keywords):
            raise ValueError(f"cell {spec!r}: an argument is given twice")
        of = files.get(called, called)
        if called not in WRAPPERS and arguments:
            raise ValueError(f"cell {spec!r}: hyper-parameters are given by name, as {of}(name=value)")
        make: Callable[..., Cell] = WRAPPERS[called] if called in WRAPPERS else load(of, built_in).with_defaults
        try:
            return make(*arguments, **named)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cell {spec!r}: {error}") from None

    found = value(expression)
    if not isinstance(found, Cell):
        raise ValueError(f"cell {spec!r} is none")
    return found


def _of_file(path: str, name: str) -> Cell:
    spec = f"{path}:{name}"
    module = _module(path, spec)
    found = getattr(module, name, None)
    if inspect.isfunction(found):
        raise ValueError(f"cell {spec!r} is a function: put @cell above it")
    if not isinstance(found, Cell):
        cells = [k for k, v in vars(module).items() if isinstance(v, Cell)]
        raise ValueError(f"cell {spec!r}: {path!r} has no cell {name!r}; it has {', '.join(cells) or 'none'}")
    return found


def _module(path: str, spec: str) -> ModuleType:
    """What a file defines. Raises: FileNotFoundError, ValueError for what is no Python, or raises; CellError as it comes."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"cell {spec!r}: there is no file {path!r}")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"cell {spec!r}: {path!r} is not a Python file (my_file.py:my_cell)")
    module = importlib.util.module_from_spec(module_spec)
    try:  # not by exec_module: bytecode that is there is taken for that of a file that was changed within the same second
        with _as_if_imported(module, file):
            exec(compile(file.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    except CellError as error:
        if PLACED.match(str(error)):
            raise
        raise CellError(f"{path}:{_line_in(path, error)}: {error}") from error
    except SyntaxError as error:
        raise ValueError(f"cell {spec!r}: {error.filename or path}:{error.lineno or 1}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"cell {spec!r}: {path}:{_line_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


PLACED = re.compile(r"\S.*?:\d+: ")
"""What begins with a file and a line."""


def _line_in(path: str, error: BaseException) -> int:
    """The last line of a file that was running when an error was raised; the first if none was."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else None) or 1


@contextmanager
def _as_if_imported(module: ModuleType, file: Path) -> Iterator[None]:
    """Meanwhile modules beside the file can be imported, and the module can be found by its name, as dataclasses want."""
    before, folder = sys.modules.get(module.__name__), str(file.resolve().parent)
    sys.modules[module.__name__] = module
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before
