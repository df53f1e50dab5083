"""From what a user writes to a cell: a name, a function in a file, wrappers of these, and cells with other hyper-parameters."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from anyrnn.cells import wrappers
from anyrnn.errors import CellError, meant
from anyrnn.trace import Cell, language

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
    if "(" in name or ("(" in spec and not _is_file(path)):
        return _written(spec, built_in)
    return _of_file(path, name) if colon else _of_name(spec, built_in)


def _is_file(path: str) -> bool:
    """False also for what is too long to be one."""
    with suppress(OSError):
        return Path(path).is_file()
    return False


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


OWN = re.compile(r"""'[^']*'|"[^"]*"|([^(),=\s'"]+:[A-Za-z_]\w*)""")
"""Text in quotes, or a cell of a file within what is written."""
OWN_FIRST = re.compile(r"(.+?):[A-Za-z_]\w*(?=\()")
"""A cell of a file before its hyper-parameters: the path may hold anything."""


def _of_one(function: Callable[..., Any]) -> bool:
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    return len(needed) == 1 and needed[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


FUNCTIONS = {
    name: value
    for name, value in vars(language).items()
    if inspect.isfunction(value) and value.__module__ == language.__name__ and not name.startswith("_") and _of_one(value)
}
"""What a hyper-parameter that is a function may be, by name: those of one operand."""


def _written(spec: str, built_in: Mapping[str, Cell]) -> Cell:
    """Of `residual(fast_slow(lstm, my_file.py:mine(leak=0.5), depth=3))`: wrappers of cells, and cells with other defaults. Names
    are looked up; nothing is evaluated.
    """
    text, mark = spec.strip(), "own"
    places: dict[str, str] = {}
    while mark in text:
        mark += "_"

    def place(own: str) -> str:
        places[f"{mark}{len(places)}"] = own
        return f"{mark}{len(places) - 1}"

    first = OWN_FIRST.match(text)
    begins = place(first[0]) if first and _is_file(first[1]) else ""
    rest = OWN.sub(lambda found: place(found[1]) if found[1] else found[0], text[len(first[0]) if first and begins else 0 :])
    try:
        expression = ast.parse(begins + rest, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        expression = None
    found = _Written(spec, places, built_in).cell(expression)
    if not isinstance(found, Cell):
        raise ValueError(f"cell {spec!r} makes no cell")
    return found


@dataclass(frozen=True)
class _Written:
    """Makes what the expression of a cell says; `places` are the cells of files, by the names that stand for them in it."""

    spec: str
    places: Mapping[str, str]
    built_in: Mapping[str, Cell]

    def refuse(self, what: str) -> ValueError:
        return ValueError(f"cell {self.spec!r}: {what}")

    def cell(self, node: ast.expr | None) -> Any:
        """A cell; what is made of one by a wrapper or with other defaults; or another value that wrappers take."""
        known = f"the wrappers are {', '.join(sorted(WRAPPERS))}"
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if not isinstance(node, ast.Call):
            paths = "; paths within brackets have no spaces, commas, quotes or brackets" if ":" in self.spec else ""
            raise ValueError(f"cell {self.spec!r} is not written as wrapper(cell) or cell(name=value){paths}; {known}")
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called and called not in (*WRAPPERS, *self.places, *self.built_in):
            slip = f" (did you mean {called.lower()!r}?)" if called.lower() in self.built_in else ""
            raise self.refuse(f"unknown wrapper or cell {called!r}{slip or meant(called, [*WRAPPERS, *self.built_in])}; {known}")
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.refuse("arguments are written as name=value")
        arguments = [self.value(argument) for argument in node.args]
        named = {str(keyword.arg): self.value(keyword.value, f" of {keyword.arg!r}") for keyword in node.keywords}
        if len(named) < len(node.keywords):
            raise self.refuse("an argument is given twice")
        if called in WRAPPERS:
            make: Callable[..., Cell] = WRAPPERS[called]
        else:
            make = self.cell(node.func).with_defaults
            if arguments:
                raise self.refuse(f"hyper-parameters are given by name, as {self.places.get(called, called)}(name=value)")
        try:
            return make(*arguments, **named)
        except (TypeError, ValueError) as error:
            raise self.refuse(str(error)) from None

    def named(self, name: str) -> Cell:
        try:
            return load(self.places.get(name, name), self.built_in)
        except CellError:
            raise
        except ValueError as error:
            hint = "" if name in self.places else "; text that is no cell stands in quotes, as 'rms'"
            raise self.refuse(f"{error}{hint}") from error

    def value(self, node: ast.expr, of: str = "") -> Any:
        """Of an argument."""
        if isinstance(node, ast.Call):
            return self.cell(node)
        if not isinstance(node, ast.Name):
            with suppress(ValueError, TypeError):
                literal = ast.literal_eval(node)
                if literal is None or isinstance(literal, (int, float, str)):
                    return literal
            kinds = "a cell, a number, True, False, None, the name of a function, or text in quotes"
            raise self.refuse(f"the value{of} should be {kinds}")
        if node.id in FUNCTIONS and node.id not in self.built_in:
            return FUNCTIONS[node.id]
        return self.named(node.id)


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
