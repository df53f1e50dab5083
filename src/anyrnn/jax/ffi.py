"""XLA's foreign functions, by its C interface: structures as in its header `xla/ffi/api/c_api.h`, and the handler of calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from string import Template

import jax

from anyrnn._locks import ForkedLock
from anyrnn.backends.llvm import target

_POINTER, _SIZE, _INT, _LONG = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
VERSION = (0, 3)
"""Of the C interface that is described here: major and minor. What is read is the same in 0.2, JAX 0.8's. XLA refuses a handler
of a later version than its own, or whose version it does not take any more.
"""
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


def _in_python(run: Run) -> Callable[[int, int], None]:
    def handle(address: int, told: int) -> None:
        """What a handler does; last of all it tells how it went, see `HANDLER`."""
        try:
            frame = _Frame.from_address(address)
            if frame.extensions and frame.extensions.contents.kind == METADATA:
                version = frame.extensions.contents.metadata.contents.version
                of_xla = frame.interface.contents.version
                version.major, version.minor = min(VERSION, (of_xla.major, of_xla.minor))
            else:
                text = frame.attributes.texts[0].contents
                given, made = _of_buffers(frame.arguments), _of_buffers(frame.results)
                first = _Buffer.from_address(given[0])
                which = ctypes.string_at(text.data, text.length).decode()
                run(which, tuple(first.dims[: first.rank]), BYTES[first.dtype], _of_arrays(given), _of_arrays(made))
            outcome = 0
        except BaseException as error:  # noqa: BLE001  # it cannot be raised through XLA, which raises it again
            outcome = _error(_Frame.from_address(address), f"{type(error).__name__}: {error}")
            outcome |= isinstance(error, KeyboardInterrupt)
        _LONG.from_address(told).value = outcome

    return handle


def _error(frame: _Frame, message: str) -> int:
    """Of XLA, its address."""
    failure = _Error(ctypes.sizeof(_Error), None, message.encode(), INTERNAL)
    made: int = frame.interface.contents.make_error(ctypes.byref(failure))
    return made


HANDLER = f"""
; Python tells how a call went: 0 for well, else the address of an error, plus 1 where Ctrl-C was pressed, which is then raised as
; soon as XLA has returned. If it tells nothing, as an exception of a signal or of the stack's depth may come at any time, that is
; an error too.
@nothing = private constant [41 x i8] c"Python was interrupted in a call of ours\\00"

define ptr @handler(ptr %frame) {{
  %told = alloca i64
  store i64 1, ptr %told
  call void inttoptr (i64 $python to ptr)(ptr %frame, ptr %told)
  %outcome = load i64, ptr %told
  switch i64 %outcome, label %failed [ i64 0, label %done i64 1, label %untold ]
done:
  ret ptr null
failed:
  %pressed = trunc i64 %outcome to i1
  br i1 %pressed, label %interrupt, label %raise
interrupt:
  call void inttoptr (i64 $interrupt to ptr)()
  br label %raise
raise:
  %address = and i64 %outcome, -2
  %error = inttoptr i64 %address to ptr
  ret ptr %error
untold:
  %at = getelementptr i8, ptr %frame, i64 {_Frame.interface.offset}
  %interface = load ptr, ptr %at
  %there = getelementptr i8, ptr %interface, i64 {_Interface.make_error.offset}
  %make = load ptr, ptr %there
  %failure = alloca {{ i64, ptr, ptr, i64 }}
  store {{ i64, ptr, ptr, i64 }} {{ i64 {ctypes.sizeof(_Error)}, ptr null, ptr @nothing, i64 {INTERNAL} }}, ptr %failure
  %made = call ptr %make(ptr %failure)
  ret ptr %made
}}
"""


def _handler(run: Run) -> tuple[int, object]:
    """The address of native code that calls Python, and what has to stay as long as it is used."""
    function = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(_in_python(run))
    python, interrupt = (ctypes.cast(f, _POINTER).value for f in (function, ctypes.pythonapi.PyErr_SetInterrupt))
    text = Template(HANDLER).substitute(python=python, interrupt=interrupt)
    (address,) = target.load(target.object_code(text), "handler")
    return address, function


_known: dict[str, object] = {}
_lock = ForkedLock()


def register(name: str, run: Run) -> None:
    """Let XLA's programs on the CPU call `run` by a name; once."""
    with _lock.now:
        if name not in _known:
            jax.devices("cpu")  # a handler that this version of XLA does not take would keep it from starting
            address, function = _handler(run)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
            _known[name] = function
