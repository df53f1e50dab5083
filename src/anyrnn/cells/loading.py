"""From what a user writes to a cell: a name, a wrapper of names, a function in a file."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyrnn.cells import wrappers
from anyrnn.errors import meant
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
    if colon:
        return _of_file(spec, path, name)
    return _wrapped(spec, built_in) if "(" in spec else _of_name(spec, built_in)


def _of_name(name: str, built_in: Mapping[str, Cell]) -> Cell:
    if name not in built_in:
        known = f"the built-in cells are {', '.join(sorted(built_in))}; one of your own is my_file.py:my_cell"
        raise ValueError(f"unknown cell {name!r}{meant(name, built_in)}; {known}")
    return built_in[name]


def _wrapped(spec: str, built_in: Mapping[str, Cell]) -> Cell:
    """Of `residual(fast_slow(lstm, gru, depth=3))`. Names are looked up here; nothing is evaluated."""
    try:
        expression = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        expression = None

    def value(node: Any) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
            return node.value
        if isinstance(node, ast.Name):
            return _of_name(node.id, built_in)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise ValueError(f"cell {spec!r} is not written as wrapper(cell): {', '.join(sorted(WRAPPERS))}")
        if node.func.id not in WRAPPERS:
            known = f"the wrappers are {', '.join(sorted(WRAPPERS))}"
            raise ValueError(f"cell {spec!r}: unknown wrapper {node.func.id!r}{meant(node.func.id, WRAPPERS)}; {known}")
        arguments = [value(argument) for argument in node.args]
        named = {str(keyword.arg): value(keyword.value) for keyword in node.keywords}
        try:
            made: Cell = WRAPPERS[node.func.id](*arguments, **named)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cell {spec!r}: {error}") from None
        return made

    found = value(expression)
    if not isinstance(found, Cell):
        raise ValueError(f"cell {spec!r} is none")
    return found


def _of_file(spec: str, path: str, name: str) -> Cell:
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"cell {spec!r}: there is no file {path!r}")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"cell {spec!r}: {path!r} is not a Python file (my_file.py:my_cell)")
    module = importlib.util.module_from_spec(module_spec)
    try:  # not by exec_module: bytecode that is there is taken for that of a file that was changed within the same second
        exec(compile(file.read_bytes(), path, "exec"), vars(module))
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.filename == str(file) else path
        raise ValueError(f"cell {spec!r}: {where}: {error.msg}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Cell):
        cells = [k for k, v in vars(module).items() if isinstance(v, Cell)]
        raise ValueError(f"cell {spec!r}: {path!r} has no cell {name!r}; it has {', '.join(cells) or 'none'}")
    return found
