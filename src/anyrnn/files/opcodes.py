"""What a torch checkpoint's pickle does, looked at before torch's own safe loader runs it.

That loader runs no foreign program, but a few bytes can make it fill any memory (`bytearray(10**10)`) or compare nested values
for ever. So only the names, and the use of what was remembered, are let through that saved tensors and settings need.
"""

from __future__ import annotations

from typing import NamedTuple

from anyrnn.files import limits

LARGEST_TUPLE = 1000
"""Values in a tuple, with those of the tuples in it: sizes, strides and arguments, nothing else."""

_FUNCTIONS = {
    "collections OrderedDict",
    "torch Size",
    "torch device",
    *(f"torch._utils _rebuild_{name}" for name in ("parameter", "tensor", "tensor_v2", "tensor_v3")),
}
_STORAGES = (
    "Double",
    "Float",
    "Half",
    "BFloat16",
    "Long",
    "Int",
    "Short",
    "Char",
    "Byte",
    "Bool",
    "ComplexFloat",
    "ComplexDouble",
)
_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "complex64", "complex128"),
)
_VALUES = {
    *("torch.storage UntypedStorage", "torch.storage TypedStorage"),
    *(f"torch {name}Storage" for name in _STORAGES),
    *(f"torch {name}" for name in _DTYPES),
}

_NUMBERS = {b"K": 1, b"M": 2, b"J": 4, b"G": 8, b"N": 0, b"\x88": 0, b"\x89": 0}
_TEXTS = {b"X": 4, b"U": 1, b"\x8a": 1}
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}
_PUTS = {b"q": 1, b"r": 4}
_GETS = {b"h": 1, b"j": 4}


class _Value(NamedTuple):
    """What is known of a value: how many values it is made of, whether it can grow, and its name if it can be called."""

    weight: int = 1
    grows: bool = False
    function: str = ""


_CONTAINER = _Value(grows=True)


class _Machine:
    """Does what a pickle says, on values of which only their kind is known."""

    def __init__(self, name: str, data: bytes, at: int) -> None:
        self.name, self.data, self.at = name, data, at
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, _Value] = {}

    def refuse(self, what: str) -> ValueError:
        return ValueError(f"{self.name}: the pickle {what}, before byte {self.at}; no weights need that, it is not loaded")

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise ValueError(f"{self.name}: the pickle ends at byte {len(self.data)}, in the middle: the file is truncated")
        return self.data[start : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def pop(self, count: int) -> list[_Value]:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise self.refuse("takes values that are not there")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def pop_mark(self) -> list[_Value]:
        if not self.marks:
            raise self.refuse("takes values that are not there")
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def tuple_of(self, items: list[_Value]) -> _Value:
        weight = 1 + sum(item.weight for item in items)
        if weight > LARGEST_TUPLE:
            raise self.refuse(f"makes a tuple of {weight} values")
        return _Value(weight, any(item.grows for item in items))

    def take_global(self) -> _Value:
        words = []
        for _ in range(2):
            end = self.data.find(b"\n", self.at, self.at + 100)
            if end < 0:
                raise self.refuse("names a global in more than 100 letters")
            words.append(self.take(end - self.at).decode("latin-1"))
            self.at += 1
        name = " ".join(words)
        if name not in _FUNCTIONS and name not in _VALUES:
            raise self.refuse(f"uses {name.replace(' ', '.')!r}")
        return _Value(function=name if name in _FUNCTIONS else "")

    def call(self) -> _Value:
        function, _ = self.pop(2)
        if not function.function:
            raise self.refuse("calls what is no function")
        return _CONTAINER if function.function == "collections OrderedDict" else _Value()

    def step(self, op: bytes) -> None:
        """One operation that may leave a value on the stack."""
        stack = self.stack
        if op in _NUMBERS:
            self.take(_NUMBERS[op])
            stack.append(_Value())
        elif op in _TEXTS:
            self.take(self.number(_TEXTS[op]))
            stack.append(_Value())
        elif op in _PUTS:
            (item,) = self.pop(1)
            stack.append(item)
            self.memo[self.number(_PUTS[op])] = item
        elif op in _GETS:
            found = self.memo.get(self.number(_GETS[op]))
            if found is None or found.grows:
                raise self.refuse("repeats a list or dictionary" if found else "repeats what it never kept")
            stack.append(found)
        elif op in _TUPLES:
            stack.append(self.tuple_of(self.pop(_TUPLES[op])))
        elif op == b"(":
            self.marks.append(len(stack))
        elif op == b"t":
            stack.append(self.tuple_of(self.pop_mark()))
        elif op == b")":
            stack.append(_Value())
        elif op in (b"]", b"}"):
            stack.append(_CONTAINER)
        elif op == b"c":
            stack.append(self.take_global())
        elif op == b"R":
            stack.append(self.call())
        elif op == b"Q":
            if self.pop(1)[0].grows:
                raise self.refuse("names a storage by a list or dictionary")
            stack.append(_Value())
        elif op in (b"a", b"b", b"s"):
            self.pop(2 if op == b"s" else 1)
        elif op in (b"e", b"u"):
            self.pop_mark()
        else:
            raise self.refuse(f"has the operation {op!r}")
        if len(self.marks) > limits.DEPTH:
            raise self.refuse(f"is nested more than {limits.DEPTH} levels deep")


def check(name: str, data: bytes, at: int = 0) -> int:
    """Go through the pickle at a byte of a file, and refuse what is not needed for tensors. Gives the byte behind it.

    Raises: ValueError that begins with `name`.
    """
    machine = _Machine(name, data, at)
    if machine.take(2) != b"\x80\x02":
        raise machine.refuse("is not of protocol 2, as torch writes them")
    while (op := machine.take(1)) != b".":
        machine.step(op)
    return machine.at
