"""A call as a Python function, line by line, of what it was seen to do."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anyrnn.backends.quick import EMPTY, reinterpreted
from anyrnn.backends.triton.memory import ALIGNMENT, are_counters, counters_of_stream, span
from anyrnn.backends.triton.relaunch import launcher
from anyrnn.backends.triton.tape_watching import Launch, Operator, read_by, tensors_of

LIBRARY = {
    **{
        f"aten::{name}": getattr(torch, name)
        for name in ("_cudnn_rnn", "add", "addmm", "bmm", "cat", "mm", "mul", "stack", "sum")
    },
    **{f"aten::{name}": getattr(Tensor, name) for name in ("add_", "addmm_", "clone", "copy_", "fill_", "new_full", "zero_")},
}
"""Operators that Python calls more quickly by these names than by their own."""
READS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")
"""Operators by which Python comes to know numbers: what follows may depend on them."""


@dataclass(frozen=True)
class Tape:
    """A call as a function of its tensors. `constants`: what it reads beside them on a device."""

    text: str
    file: str
    call: Callable[..., Any]
    constants: Constants


@dataclass(frozen=True)
class Constants:
    """What a tape reads beside what it is given, on a device: it may be forgotten before a stream has read them."""

    tensors: tuple[Tensor, ...]
    streams: set[int] = field(default_factory=set)
    """those that their memory waits for before it is used again"""

    def keep(self, stream: int) -> None:
        """For the current stream."""
        for tensor in self.tensors:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        self.streams.add(stream)


@dataclass(frozen=True)
class Place:
    """Of a tensor: in the memory of which one that a name stands for, so many bytes from its first number."""

    root: str
    begin: int


class Writer:
    """Writes a call as a function: of the tensors that it was given, what was done, and what it gave."""

    def __init__(self, given: Sequence[Tensor], done: Sequence[Operator | Launch], found: Any) -> None:
        self.done, self.found, self.device = done, found, given[0].device
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"__name__": __name__, "device": self.device}
        self.space |= {"empty": EMPTY[self.device.type], "reinterpreted": reinterpreted}
        self.named: dict[object, str] = {}
        self.places: dict[int, Place] = {}
        self.roots: dict[str, Tensor] = {}
        self.constants: dict[int, Tensor] = {}
        self.fits = True
        self.given = [f"given_{k}" for k in range(len(given))]
        for name, tensor in zip(self.given, given, strict=True):
            self._add_root(name, tensor)
        self.made = [self._roots_of(one) for one in done]
        self.used = [{self.places[id(t)].root for t in read_by(one) if id(t) in self.places} for one in done]
        results = [(t, self.places[id(t)].root) for t in tensors_of(found) if id(t) in self.places]
        kept = {root for _, root in results}
        self.fits = self.fits and not any(root in self.given and t is not self.roots[root] for t, root in results)
        self.last = {root: k for k, roots in enumerate(self.used) for root in roots}
        self.last |= dict.fromkeys(kept, len(done))
        self.own = self._own_memory(kept)
        """where in its own piece of memory the roots stand that the call needs for itself, in bytes"""
        self.own_dtype = _most([self.roots[root].dtype for root in self.own])
        """of that memory, as it is asked for"""

    def _add_root(self, name: str, tensor: Tensor) -> None:
        self.roots[name], self.places[id(tensor)] = tensor, Place(name, 0)

    def _roots_of(self, one: Operator | Launch) -> list[str]:
        """Names of new tensors that an operator makes; what it makes of others' memory has a place there."""
        if isinstance(one, Launch):
            return []
        self.fits = self.fits and one.name not in READS
        of_storage = {t.untyped_storage().data_ptr(): t for t in read_by(one) if t.numel()}
        names = []
        for tensor in tensors_of(one.found):
            if id(tensor) in self.places:
                continue
            base = of_storage.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
            if base is not None:
                self._add_view(tensor, base)
            else:
                names.append(f"{one.name}_{len(self.roots)}")
                self._add_root(names[-1], tensor)
        return names

    def _add_view(self, view: Tensor, of: Tensor) -> None:
        place = self.places.get(id(of))
        if place is None:
            self.constants[id(view)] = view
            return
        root = self.roots[place.root]
        begin = view.data_ptr() - root.data_ptr()
        inside = begin >= 0 and begin + span(view) <= span(root)
        self.fits = self.fits and inside and not begin % view.element_size()
        self.places[id(view)] = Place(place.root, begin)

    def _own_memory(self, kept: set[str]) -> dict[str, int]:
        """Zeros come first, which are made once; the others stand where none stands at the same time."""
        found: dict[str, int] = {}
        self.zeros, self.bytes = 0, 0
        ranges: list[tuple[int, int, int, int]] = []
        for k, (one, names) in enumerate(zip(self.done, self.made, strict=True)):
            if not self._is_plain(one, names) or names[0] in kept:
                continue
            assert isinstance(one, Operator)
            root, size = names[0], span(self.roots[names[0]])
            size += -size % ALIGNMENT
            if one.name == "zeros":
                found[root] = self.zeros
                self.zeros += size
                continue
            last, begin = self.last.get(root, k), 0
            beside = sorted((b, e) for b, e, first, end in ranges if first <= last and k <= end)
            for b, e in beside:
                if begin + size <= b:
                    break
                begin = max(begin, e)
            ranges.append((begin, begin + size, k, last))
            found[root] = -1 - begin  # behind the zeros, of which there may be more
        self.bytes = self.zeros + max((end for _, end, _, _ in ranges), default=0)
        return {root: begin if begin >= 0 else self.zeros - 1 - begin for root, begin in found.items()}

    def _is_plain(self, one: Operator | Launch, names: Sequence[str]) -> bool:
        """Whether it makes memory for one tensor, in rows, and nothing else."""
        if isinstance(one, Launch) or one.name not in ("empty", "zeros") or len(names) != 1:
            return False
        return self._is_rows(self.roots[names[0]])

    def _is_rows(self, tensor: Tensor) -> bool:
        return tensor.device == self.device and tensor.is_contiguous() and bool(tensor.numel())

    # lines

    def tape(self) -> Tape | None:
        """None where it cannot be made again."""
        if self.bytes:
            numbers, kind = self.bytes // self.own_dtype.itemsize, self._constant(self.own_dtype, "dtype")
            self.lines.append(f"own = empty(({numbers},), (1,), {kind})")
        if self.zeros:
            self.lines.append(f"reinterpreted(own, ({self.zeros // self.own_dtype.itemsize},), (1,), 0).zero_()")
        for k, (one, names) in enumerate(zip(self.done, self.made, strict=True)):
            if isinstance(one, Launch):
                self.lines.append(self._launch(one))
            elif not (names and names[0] in self.own) and not self._is_view(one, names) and not self._is_idle(one, names):
                self.lines.append(self._operator(one))
            gone = [root for root in {*self.used[k], *names} if self.last.get(root, k) == k]
            words = [name for root in gone if root not in self.given and root not in self.own for name in self._names_of(root)]
            if words:
                self.lines.append(f"del {', '.join(sorted(words))}")
        self.lines.append(f"return {self._text(self.found)}")
        if not self.fits:
            return None
        constants = Constants(tuple(t for t in self.constants.values() if t.is_cuda))
        text = "\n    ".join([f"def call({', '.join(self.given)}):", *self._of_stream(constants), *self.lines]) + "\n"
        file = f"<anyrnn call {abs(hash(text)):x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.space)
        return Tape(text, file, self.space["call"], constants)

    def _of_stream(self, constants: Constants) -> list[str]:
        """Lines before all others: on which stream the call is, which then reads the constants."""
        if self.device.type != "cuda":
            return ["stream = 0"]
        self.space |= {"current_stream": torch._C._cuda_getCurrentRawStream, "constants": constants}
        lines = [f"stream = current_stream({self.device.index})"]
        return lines + ["if stream not in constants.streams: constants.keep(stream)"] * bool(constants.tensors)

    def _is_view(self, one: Operator, names: Sequence[str]) -> bool:
        """Whether all that it gives is others' memory, of which the lines that read it say where."""
        return not names and not one.function._schema.is_mutable and bool(tensors_of(one.found))

    def _is_idle(self, one: Operator, names: Sequence[str]) -> bool:
        """Whether it does nothing for the call: memory of no numbers, mostly."""
        makes_room = one.name in ("empty", "new_empty", "zeros") and len(names) == 1
        return one.name == "record_stream" or (makes_room and names[0] not in self.last)

    def _operator(self, one: Operator) -> str:
        if one.name in ("empty", "new_empty") and "out" not in one.options and self._is_rows(one.found):
            call = f"empty({tuple(one.found.shape)}, {one.found.stride()}, {self._constant(one.found.dtype, 'dtype')})"
        else:
            words = [self._text(a) for a in one.arguments] + [f"{k}={self._text(a)}" for k, a in one.options.items()]
            function = LIBRARY.get(one.function._schema.name, one.function._op)
            call = f"{self._constant(function, one.name)}({', '.join(words)})"
        roots = {
            id(t): place.root for t in tensors_of(one.found) if (place := self.places.get(id(t))) and self.roots[place.root] is t
        }
        fresh = {i: root for i, root in roots.items() if root not in self.given and root not in self.named}
        for root in fresh.values():
            self.named[root] = root
        return f"{_target(one.found, fresh)} = {call}" if fresh else call

    def _launch(self, one: Launch) -> str:
        name = one.function.__name__
        if one.compiled is None:
            words = [self._text(a) for a in one.arguments] + [f"{k}={self._text(a)}" for k, a in one.rest.items()]
            return f"{self._constant(one.function, name)}[{tuple(one.grid)}]({', '.join(words)})"
        words = [self._address(a) if isinstance(a, Tensor) else self._text(a) for a in one.arguments]
        words += [self._text(one.rest[k]) for k in one.function.arg_names[len(one.arguments) :]]
        launch = launcher(one.compiled, (*one.grid, *[1] * (3 - len(one.grid))))
        return f"{self._constant(launch, name)}(stream, {', '.join(words)})"

    def _names_of(self, root: str) -> list[str]:
        """Of a root and its views, those that lines have given."""
        views = [name for key, name in self.named.items() if isinstance(key, tuple) and key[0] == root]
        return [root, *views] if root in self.named else views

    # what lines call things

    def _constant(self, thing: Any, wanted: str) -> str:
        key = id(thing)
        if key not in self.named:
            self.named[key] = f"{wanted}_at_{len(self.named)}"
            self.space[self.named[key]] = thing
        return self.named[key]

    def _text(self, thing: Any) -> str:
        """An argument."""
        if isinstance(thing, Tensor):
            return self._counters(thing) or self._tensor(thing)
        if isinstance(thing, (tuple, list)):
            inside = ", ".join(map(self._text, thing))
            return f"[{inside}]" if isinstance(thing, list) else f"({inside}{',' * (len(thing) == 1)})"
        if thing is None or type(thing) in (bool, int, str) or (type(thing) is float and abs(thing) < float("inf")):
            return repr(thing)
        return self._constant(thing, "constant")

    def _counters(self, tensor: Tensor) -> str:
        """Those of the stream that the function is called on; nothing for another tensor."""
        if not are_counters(tensor):
            return ""
        return f"{self._constant(counters_of_stream, 'counters')}(device, stream, {len(tensor)})"

    def _tensor(self, tensor: Tensor) -> str:
        place = self.places.get(id(tensor))
        if place is None:
            self.constants[id(tensor)] = tensor
            return self._constant(tensor, "constant")
        root = self.roots[place.root]
        shape, strides, begin = tuple(tensor.shape), tensor.stride(), place.begin // tensor.element_size()
        if place.root in self.own:
            begin += self.own[place.root] // tensor.element_size()
        elif not begin and (root.dtype, tuple(root.shape), root.stride()) == (tensor.dtype, shape, strides):
            return place.root
        key = place.root, tensor.dtype, shape, strides, begin
        if key not in self.named:
            whole = self._in_dtype("own" if place.root in self.own else place.root, tensor.dtype)
            self.named[key] = f"{place.root}_{len(self.named)}"
            self.lines.append(f"{self.named[key]} = reinterpreted({whole}, {shape}, {strides}, {begin})")
        return self.named[key]

    def _in_dtype(self, root: str, dtype: torch.dtype) -> str:
        """The memory of a root as numbers of a kind."""
        if dtype == (self.roots[root].dtype if root != "own" else self.own_dtype):
            return root
        key = root, dtype
        if key not in self.named:
            flat = root == "own" or self.roots[root].dim() == 1
            self.fits = self.fits and (flat or self.roots[root].is_contiguous())
            self.named[key] = f"{root}_{str(dtype).removeprefix('torch.')}"
            self.lines.append(f"{self.named[key]} = {root}{'' if flat else '.view(-1)'}.view({self._constant(dtype, 'dtype')})")
        return self.named[key]

    def _address(self, tensor: Tensor) -> str:
        """The number that a launch takes in the place of a tensor."""
        counters = self._counters(tensor)
        if counters:
            return f"{counters}.data_ptr()"
        place = self.places.get(id(tensor))
        if place is None:
            self.constants[id(tensor)] = tensor
            return str(tensor.data_ptr())
        root, begin = place.root, place.begin
        if root in self.own:
            root, begin = "own", begin + self.own[root]
        return f"{root}.data_ptr()" + (f" + {begin}" if begin else "")


def _target(found: Any, names: Mapping[int, str]) -> str:
    """What an operator's results are assigned to."""
    if isinstance(found, (tuple, list)):
        return f"[{', '.join(_target(one, names) for one in found)}]"
    return names.get(id(found), "_")


def _most(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    return max(dtypes, key=dtypes.count, default=torch.uint8)
