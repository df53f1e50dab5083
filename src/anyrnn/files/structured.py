"""JSON from a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.files import limits

DIGITS = 20
"""Of a whole number: more than any size has, and little work."""


def parsed(where: str, data: bytes) -> Any:
    """The value of JSON text in UTF-8.

    Raises: ValueError that begins with `where`: for text that is no JSON, duplicate keys, deep nesting, NaN, whole numbers
        of more than 20 digits, and text that would take many times its own size as Python's objects.
    """
    _check(where, np.frombuffer(data, np.uint8))

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(found)
        if len(unique) < len(found):
            seen: set[str] = set()
            twice = next(key for key, _ in found if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ValueError(f"the key {limits.shown(twice)} is there twice")
        return unique

    try:
        return json.loads(data.decode(), object_pairs_hook=pairs, parse_int=_whole, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from None


def _check(where: str, text: npt.NDArray[np.uint8]) -> None:
    """Depth and number of values, before anything is made of them. For text that is no JSON they hold up to its first mistake."""
    if (text == ord("\\")).any():
        plain = text.tobytes().replace(b"\\\\", b"").replace(b'\\"', b"")
        text = np.frombuffer(plain, np.uint8)
    in_string = np.bitwise_xor.accumulate(text == ord('"'))
    text = text[~in_string]
    opens, objects = (text == ord("[")) | (text == ord("{")), int(np.count_nonzero(text == ord("{")))
    closes = (text == ord("]")) | (text == ord("}"))
    deepest = int(np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32).max(initial=0))
    if deepest > limits.DEPTH:
        raise ValueError(f"{where}: nested {deepest} levels deep, at most {limits.DEPTH} are read")
    # What CPython takes, roughly: 240 bytes an object, 100 a list, 40 any other value.
    lists, others = int(np.count_nonzero(opens)) - objects, int(np.count_nonzero(text == ord(",")))
    if 240 * objects + 100 * lists + 40 * others > limits.FREE + limits.TREE * len(in_string):
        raise ValueError(
            f"{where}: {objects} objects and {lists} lists in {len(in_string)} bytes are more than any network needs"
        )


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
