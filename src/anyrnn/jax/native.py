"""Calls of the native kernels in XLA's programs, on XLA's own buffers: nothing is copied where all samples have all steps."""

from __future__ import annotations

import ctypes
import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax import Array

import anyrnn.numpy
from anyrnn import backends
from anyrnn._memory import ALIGNMENT, LARGE, addresses, aligned, in_large_pages, keep_what_is_freed
from anyrnn.jax import ffi
from anyrnn.jax.call import Call, Shape
from anyrnn.numpy.packed_weights import Packs
from anyrnn.numpy.parameters import gradients_by_name, new_gradients, sources
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import steps_given

NumPyArray = npt.NDArray[Any]
Strides = tuple[int, int]
States = tuple[Strides | None, ...]
MOST_PACKED = 2**28
"""Bytes of the weights that inference calls have packed. Beyond them those of the oldest layer go: nobody tells when it does."""
DTYPES: dict[int, np.dtype[Any]] = {4: np.dtype(np.float32), 8: np.dtype(np.float64)}


@dataclass(frozen=True)
class Site:
    """What compiled programs say of a call of kernels.

    Args:
        which: `inference`, `training` or `backward`.
        present: of a backward call, which results have a cotangent.
        weights: of a backward call, whether it gives the parameters' gradients.
    """

    call: Call
    which: str
    present: tuple[bool, ...] = ()
    weights: bool = True

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(f"{self.call.key} {self.which} {self.present} {self.weights}".encode()).hexdigest()


_sites: dict[str, Site] = {}
"""Those that programs of this process have been made with, which need them as long as they live: one for each kind of call."""


def reserve_bytes(call: Call, x: Any) -> int:
    """What a training call keeps, of an input like `x`; with resets each step may begin a segment. Raises: UnsupportedError when
    a budget is too small.
    """
    native, (steps, rows) = backends.native(), call.sides(x.shape)
    given, total = (call.of_kernels, np.dtype(x.dtype).name), steps * rows
    native.windows(*given, native.Extent(steps, rows), call.budget)
    bytes: int = native.kept_by_parts(*given, total, total if call.resets else rows, call.budget)
    return bytes


def run(site: Site, results: Sequence[jax.ShapeDtypeStruct], *arrays: Array) -> Sequence[Array]:
    """A call, in a program that is being made for a CPU."""
    _sites[site.key] = site
    ffi.register(f"anyrnn_{site.which}", _run)
    made: Sequence[Array] = jax.ffi.ffi_call(f"anyrnn_{site.which}", list(results))(*arrays, call=site.key)
    return made


def _run(key: str, sizes: Shape, bytes: int, arguments: Sequence[int], results: Sequence[int]) -> None:
    """A call that XLA makes."""
    _kernels(key, sizes, bytes).run(arguments, results)


@lru_cache(maxsize=1024)
def _kernels(key: str, sizes: Shape, bytes: int) -> Kernels:
    site = _sites.get(key)
    if site is None:
        raise RuntimeError("a program that another process compiled: make the layer here and trace the call again")
    keep_what_is_freed()
    kind = ByLayer if site.call.is_uneven or site.call.budget is not None else Dense
    return kind(site, sizes, DTYPES[bytes])


def _array(address: int, shape: Shape, dtype: Any) -> NumPyArray:
    """Of XLA's memory."""
    bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not bytes:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * bytes).from_address(address), dtype).reshape(shape)


_packed: dict[tuple[Network, str, int], Packs] = {}


def _packs_of(network: Network, dtype: str, first: int) -> Packs:
    """Where the weights of a layer stay packed, the first of which stands there. That others come to stand there is seen."""
    key = network, dtype, first
    found = _packed.get(key)
    if found is None:
        while _packed and sum(packs.bytes for packs in list(_packed.values())) > MOST_PACKED:
            _packed.pop(list(_packed)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)
        found = _packed.setdefault(key, Packs())
    return found


def _seed(address: int) -> int:
    low, high = _array(address, (2,), np.uint32).tolist()
    return int(low | high << 32)


class Kernels:
    """Calls of a site with arrays of certain sizes."""

    def __init__(self, site: Site, sizes: Shape, dtype: np.dtype[Any]) -> None:
        self.site, self.call, self.dtype = site, site.call, dtype
        self.operands, self.results = self.call.operand_shapes(sizes), self.call.results(sizes)
        self.reserve = 0 if site.which == "inference" else reserve_bytes(self.call, jax.ShapeDtypeStruct(sizes, dtype))
        made = self.operands if site.which == "backward" else self.results
        bytes = [math.prod(shape) * dtype.itemsize for shape in made] + [self.reserve] * (site.which == "training")
        self._large = [(k, n) for k, n in enumerate(bytes) if n >= LARGE]

    def run(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Fill the results; of each argument and result the address."""
        for k, bytes in self._large:
            if k < len(results):
                in_large_pages(results[k], bytes)
        self.fill(arguments, results)

    @abstractmethod
    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None: ...

    def views(self, addresses: Sequence[int], shapes: Sequence[Shape]) -> list[NumPyArray]:
        return [_array(at, shape, self.dtype) for at, shape in zip(addresses, shapes, strict=True)]

    def put(self, addresses: Sequence[int], arrays: Sequence[NumPyArray]) -> None:
        for at, array in zip(addresses, arrays, strict=True):
            _array(at, array.shape, self.dtype)[...] = array

    def kept(self, address: int) -> NumPyArray:
        """A reserve; a copy where it was moved to another place within a line of cache."""
        memory = _array(address, (self.reserve,), np.uint8)
        if not address % ALIGNMENT:
            return memory
        moved = aligned(self.reserve)
        moved[...] = memory
        return moved


class Dense(Kernels):
    """Where all samples have all steps: the kernels work on XLA's buffers."""

    def __init__(self, site: Site, sizes: Shape, dtype: np.dtype[Any]) -> None:
        super().__init__(site, sizes, dtype)
        network, native, backward = self.call.of_kernels, backends.native(), site.which == "backward"
        self.network, self.has_phase = network, bool(network.plan.phase.computed)
        names = list(network.parameter_names)
        of_units = [(unit, source) for unit in network.units for source in network.sources]
        self.direct = [] if self.has_phase else [names.index(source + network.suffix(*unit)) for unit, source in of_units]
        """for each source, which parameter it is, where all are"""
        summed = {k for k, (_, source) in zip(self.direct, of_units, strict=False) if source in network.plan.summed}
        self.zeroed = [k for k in range(len(names)) if k in summed or k not in self.direct]
        """parameters to whose gradients kernels add, and those that no step reads"""
        inputs, states = self.call.counts[:2]
        x = tuple(map(self.of_sequence, self.operands[:inputs]))
        y: Strides | None = self.of_sequence(self.results[0])
        nothing: States = (None,) * len(network.state_sizes)
        first: States = tuple(map(self.of_states, self.operands[inputs : inputs + states])) or nothing
        last: States = nothing if self.call.all_states else tuple(map(self.of_states, self.results[1:]))
        more = tuple(map(self.of_all_states, self.results[1:])) if self.call.all_states else ()
        further: dict[str, Any] = {}
        if backward:
            y, first, last = y if site.present[0] else None, last if any(site.present[1:]) else nothing, first
            further = {"output_steps": (0, self.call.sides(sizes)[0]), "d_inputs": x, "gradients": site.weights}
            further["no_first"] = not states
        self.shape = native.CallShape(
            which=site.which,
            dtype=dtype.name,
            extent=native.Extent(*self.call.sides(sizes)),
            inputs=x,
            output=y,
            first=first,
            last=last,
            more=more,
            ends=self.call.ends,
            **further,
        )
        self.place = "jax", site.key, sizes, dtype.name

    def of_sequence(self, shape: Shape) -> Strides:
        """From step to step and from row to row; of an output of ends from row to row, twice."""
        row = shape[-1] * self.dtype.itemsize
        if len(shape) == 2:
            return row, row
        further = shape[1] * row
        return (row, further) if self.call.batch_first else (further, row)

    def of_states(self, shape: Shape) -> Strides:
        """From unit to unit and from row to row."""
        return math.prod(shape[1:]) * self.dtype.itemsize, shape[-1] * self.dtype.itemsize

    def of_all_states(self, shape: Shape) -> tuple[int, int, int]:
        """From unit to unit, from step to step and from row to row."""
        return self.of_states(shape)[0], *self.of_sequence(shape[1:])

    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        call, native, (inputs, states, _) = self.call, backends.native(), self.call.counts
        x, first, parameters = (
            arguments[:inputs], arguments[inputs : inputs + states], arguments[inputs + states : call.floats]
        )  # fmt: skip
        randomness = self.network.randomness(_seed(arguments[call.floats]) if call.draws else 0, None, native.draw)
        read: list[NumPyArray] = []
        named: Mapping[str, NumPyArray] = {}
        if self.has_phase:
            named = call.named(self.views(parameters, self.operands[inputs + states :]))
            read = sources(self.network, named, self.dtype, randomness)
        at = addresses(read) if self.has_phase else [parameters[k] for k in self.direct]
        pool = native.POOLS.get(self.place) or native.POOLS.add(self.place, self.network, self.shape)
        if self.site.which != "backward":
            y, *last = results[: len(self.results)]
            packs = None
            if self.site.which == "inference" and at and self.shape.extent.steps > 1:  # those of a single step mostly stand
                packs = _packs_of(self.network, self.shape.dtype, parameters[0]).of(self.network, self.shape.dtype)
            pool.call([*x, y, *first, *last, *at, *results[len(self.results) :]], randomness, packs=packs)
            return
        reserve, *cotangents = arguments[call.operands :]
        memory = self.kept(reserve)
        d_x, d_first, d_parameters = results[:inputs], results[inputs : inputs + states], results[inputs + states :]
        d_read = new_gradients(self.network, read) if self.has_phase and self.site.weights else []
        into = addresses(d_read)
        if self.site.weights and not self.has_phase:
            for k in self.zeroed:
                ctypes.memset(d_parameters[k], 0, math.prod(self.operands[inputs + states + k]) * self.dtype.itemsize)
            into = [d_parameters[k] for k in self.direct]
        of_output = self.site.present[0]
        d_more = cotangents[of_output:] if call.all_states else []
        d_ends = cotangents[: len(cotangents) - len(d_more)]
        pool.call([*x, *d_ends, *d_first, *d_more, *d_x, *at, *into, *addresses([memory])], randomness)
        if d_read:
            made = gradients_by_name(self.network, named, d_read, self.dtype, randomness)
            self.put(d_parameters, [made[name] for name in named])


class ByLayer(Kernels):
    """Where samples have different steps, or not everything is kept: by a layer on NumPy arrays, which packs them."""

    def __init__(self, site: Site, sizes: Shape, dtype: np.dtype[Any]) -> None:
        super().__init__(site, sizes, dtype)
        network = self.call.network
        shapes = self.operands[sum(self.call.counts[:2]) :]
        nothing = {name: np.zeros(s, dtype) for name, s in zip(network.parameter_names, shapes, strict=True)}
        self.layer = anyrnn.numpy.Recurrent.of_network(network, nothing, batch_first=self.call.batch_first)
        self.layer.memory_budget = self.call.budget

    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        call, site, (inputs, states, _) = self.call, self.site, self.call.counts
        rest = iter(arguments[call.floats : call.operands])
        floats = self.views(arguments[: call.floats], self.operands)
        (x, *further), first, parameters = floats[:inputs], floats[inputs : inputs + states], floats[inputs + states :]
        seed = _seed(next(rest)) if call.draws else 0
        mask, reset = (_array(next(rest), x.shape[:2], np.bool_) if there else None for there in (call.masked, call.resets))
        layer = copy(self.layer)
        layer.parameters = dict(call.named(parameters))
        if parameters:
            layer._packs = _packs_of(call.network, self.dtype.name, addresses(parameters[:1])[0])
        steps = {name: a for (name, _), a in zip(call.network.further_inputs, further, strict=True)}
        which = steps_given(None, None, mask, None, reset, 0.0)
        wanted = "last" if call.ends else "all", "all" if call.all_states else "last"
        if site.which != "backward":
            keep = site.which == "training"
            memory = _array(results[-1], (self.reserve,), np.uint8) if keep else None
            (y,) = self.views(results[:1], self.results[:1])
            _, last, _ = layer._forward(x, steps, first or None, y, which, *wanted, keep, memory, seed)
            self.put(results[1 : len(self.results)], _several(last))
            return
        reserve, *_ = layer._begun(x, steps, first or None, which, *wanted, True, seed)
        reserve.memory = self.kept(arguments[call.operands])
        shapes = [shape for shape, there in zip(self.results, site.present, strict=True) if there]
        cotangents = self.views(arguments[call.operands + 1 :], shapes)
        d_y = cotangents.pop(0) if site.present[0] else None
        if site.weights or call.budget is not None:
            d_x, d_first, gradients = layer.backward(reserve, d_y, cotangents or None)
        else:
            d_x, d_first, _ = layer.backward_data(reserve, d_y, cotangents or None)
        made = [*_several(d_x), *(_several(d_first) if first else [])]
        made += [gradients[name] for name in call.network.parameter_names] if site.weights else []
        self.put(results, made)


def _several(found: Any) -> list[NumPyArray]:
    return list(found) if isinstance(found, tuple) else [found]
