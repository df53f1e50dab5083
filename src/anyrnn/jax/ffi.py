"""XLA's foreign functions, by its C interface: structures as in its header `xla/ffi/api/c_api.h`, and the handler of calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import jax

from anyrnn._locks import ForkedLock

_POINTER, _SIZE, _INT, _LONG = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
VERSION = (0, 3)
"""Of the C interface that is described here: major and minor. XLA refuses a handler whose version it does not take any more."""
METADATA = 1
"""The kind of extension by which XLA asks for the version."""
INTERNAL = 13
"""The code of errors that a handler gives."""

# Structures are XLA's memory, and described as far as they are read.


class _Version(ctypes.Structure):
    _fields_ = (("struct_size", _SIZE), ("extensions", _POINTER), ("major", _INT), ("minor", _INT))


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", _SIZE), ("version", _Version), ("traits", ctypes.c_uint32))


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", _SIZE), ("kind", _INT), ("next", _POINTER), ("metadata", ctypes.POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE), ("extensions", _POINTER),
        ("dtype", _INT), ("data", _POINTER), ("rank", _LONG), ("dims", ctypes.POINTER(_LONG)),
    )  # fmt: skip


class _Text(ctypes.Structure):
    _fields_ = (("data", _POINTER), ("length", _SIZE))


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE), ("extensions", _POINTER),
        ("count", _LONG), ("kinds", _POINTER), ("buffers", _LONG),
    )  # fmt: skip


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE), ("extensions", _POINTER),
        ("count", _LONG), ("kinds", _POINTER), ("names", _POINTER), ("texts", ctypes.POINTER(ctypes.POINTER(_Text))),
    )  # fmt: skip


class _Error(ctypes.Structure):
    _fields_ = (("struct_size", _SIZE), ("extensions", _POINTER), ("message", ctypes.c_char_p), ("code", _INT))


class _Interface(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE), ("extensions", _POINTER), ("version", _Version), ("internal", _POINTER),
        ("make_error", ctypes.CFUNCTYPE(_POINTER, ctypes.POINTER(_Error))),
    )  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE), ("extensions", ctypes.POINTER(_Extension)),
        ("interface", ctypes.POINTER(_Interface)), ("context", _POINTER), ("stage", _INT),
        ("arguments", _Buffers), ("results", _Buffers), ("attributes", _Attributes),
    )  # fmt: skip


Run = Callable[[str, tuple[int, ...], int, Sequence[int], Sequence[int]], None]
"""Makes a call: of its text attribute; of its first argument the shape and the bytes of a number; and of the addresses of all
arguments and results."""

BYTES = {11: 4, 12: 8}
"""Of a number, by XLA's numbers of dtypes."""


def _of_buffers(buffers: _Buffers) -> list[int]:
    """The addresses of the structures."""
    found: list[int] = (_LONG * buffers.count).from_address(buffers.buffers)[:] if buffers.count else []
    return found


def _of_arrays(buffers: list[int]) -> list[int]:
    """Those of what they hold."""
    return [_LONG.from_address(at + _Buffer.data.offset).value for at in buffers]


def _handler(run: Run) -> Callable[[int], int | None]:
    def handle(address: int) -> int | None:
        frame = _Frame.from_address(address)
        if frame.extensions and frame.extensions.contents.kind == METADATA:
            version = frame.extensions.contents.metadata.contents.version
            version.major, version.minor = VERSION
            return None
        try:
            text = frame.attributes.texts[0].contents
            given, made = _of_buffers(frame.arguments), _of_buffers(frame.results)
            first = _Buffer.from_address(given[0])
            which = ctypes.string_at(text.data, text.length).decode()
            sizes = tuple(first.dims[: first.rank])
            run(which, sizes, BYTES[first.dtype], _of_arrays(given), _of_arrays(made))
        except BaseException as error:  # noqa: BLE001  # it cannot be raised through XLA, which raises it again
            told = f"{type(error).__name__}: {error}".encode()
            failure = _Error(ctypes.sizeof(_Error), None, told, INTERNAL)
            failed: int = frame.interface.contents.make_error(ctypes.byref(failure))
            return failed
        return None

    return handle


_known: dict[str, object] = {}
_lock = ForkedLock()


def register(name: str, run: Run) -> None:
    """Let XLA's programs on the CPU call `run` by a name; once."""
    with _lock.now:
        if name in _known:
            return
        jax.devices("cpu")  # a handler that this version of XLA does not take would keep it from starting
        function = ctypes.CFUNCTYPE(_POINTER, _POINTER)(_handler(run))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.cast(function, _POINTER).value), platform="cpu")
        _known[name] = function  # which XLA knows as long as the process lives
