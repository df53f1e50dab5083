"""Calls of the native kernels in XLA's programs, on its own buffers: nothing is copied where all samples have all steps."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

import anyrnn.numpy
from anyrnn import backends
from anyrnn._memory import ALIGNMENT, LARGE, aligned, in_large_pages, keep_what_is_freed
from anyrnn.jax import ffi
from anyrnn.jax.call import Call
from anyrnn.numpy.parameters import gradients_by_name, new_gradients, sources

NumPyArray = npt.NDArray[Any]
DTYPES = {4: np.dtype(np.float32), 8: np.dtype(np.float64)}


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
        own = f"{self.call.key} {self.which} {self.present} {self.weights}"
        return hashlib.sha256(own.encode()).hexdigest()


_sites: dict[str, Site] = {}
"""Those that programs of this process have been made with."""


def reserve_bytes(call: Call, x: Any) -> int:
    """What a training call keeps, of an input like `x`; with resets each step may begin a segment. Raises: UnsupportedError when
    a budget is too small.
    """
    native, (steps, rows) = backends.native(), call.sides(x)
    given, total = (call.of_kernels, np.dtype(x.dtype).name), steps * rows
    native.windows(*given, native.Extent(steps, rows), call.budget)
    bytes: int = native.kept_by_parts(*given, total, total if call.resets else rows, call.budget)
    return bytes


def run(site: Site, results: Sequence[jax.ShapeDtypeStruct], *arrays: Array) -> Sequence[Array]:
    """A call, in a program that is being made for a CPU."""
    key = site.key
    _sites[key] = site
    ffi.register(f"anyrnn_{site.which}", _run)
    made: Sequence[Array] = jax.ffi.ffi_call(f"anyrnn_{site.which}", list(results))(*arrays, call=key)
    return made


def _run(key: str, sizes: tuple[int, ...], bytes: int, arguments: Sequence[int], results: Sequence[int]) -> None:
    _kernels(key, sizes, bytes).run(arguments, results)


def _array(address: int, shape: tuple[int, ...], dtype: Any) -> NumPyArray:
    """Of XLA's memory."""
    count = math.prod(shape) * np.dtype(dtype).itemsize
    if not count:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(shape)


class _Kernels:
    """Calls of a site with arrays of certain sizes."""

    def __init__(self, site: Site, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.site, self.call, self.dtype = site, site.call, dtype
        self.x = jax.ShapeDtypeStruct(sizes, dtype)
        self.steps, self.rows = self.call.sides(self.x)
        network = self.network = self.call.network
        inputs, first, _ = self.call.counts
        features = [network.input_size, *(size for _, size in network.further_inputs)]
        units, two = len(network.units), sizes[:2]
        self.inputs = [(*two, n) for n in features]
        self.states = [(units, self.rows, n) for n in network.state_sizes]
        self.first = self.states if first else []
        self.parameters = [shape for layer, _ in network.units for _, shape in network.parameters(layer)]
        self.results = self.call.results(self.x)
        self.reserve = reserve_bytes(self.call, self.x)
        made = self.floats if site.which == "backward" else self.results
        bytes = [math.prod(shape) * dtype.itemsize for shape in made] + [self.reserve] * (site.which == "training")
        self.large = [(k, n) for k, n in enumerate(bytes) if n >= LARGE]
        """results whose memory is asked for in large pages"""

    @property
    def floats(self) -> list[tuple[int, ...]]:
        return [*self.inputs, *self.first, *self.parameters]

    def run(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Fill the results; of each argument and result the address."""
        for k, bytes in self.large:
            if k < len(results):
                in_large_pages(results[k], bytes)
        self.fill(arguments, results)

    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        raise NotImplementedError

    def kept(self, address: int) -> NumPyArray:
        """A reserve; a copy where it was moved to another place within a line of cache."""
        memory = _array(address, (self.reserve,), np.uint8)
        if not address % ALIGNMENT:
            return memory
        copy = aligned(self.reserve)
        copy[...] = memory
        return copy

    def views(self, addresses: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[NumPyArray]:
        return [_array(at, shape, self.dtype) for at, shape in zip(addresses, shapes, strict=True)]


class _Dense(_Kernels):
    """Where all samples have all steps: the kernels work on XLA's buffers."""

    def __init__(self, site: Site, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(site, sizes, dtype)
        native, network, call = backends.native(), self.call.of_kernels, self.call
        self.phase = bool(network.plan.phase.computed)
        names = network.parameter_names
        self.direct = [names.index(s + network.suffix(*u)) for u in network.units for s in network.sources] if not self.phase else []
        summed = network.plan.summed
        added = {p for p, s in zip(self.direct, network.sources * len(network.units), strict=False) if s in summed}
        self.zeroed = [k for k in range(len(names)) if k in added or k not in self.direct]
        extent = native.Extent(self.steps, self.rows)
        inputs, y = tuple(map(self._strides, self.inputs)), self._strides(self.results[0])
        states = tuple(map(self._of_states, self.states))
        none = (None,) * len(self.states)
        given = states if self.first else none
        more = tuple(map(self._of_all, self.results[1:])) if call.all_states else ()
        if site.which == "backward":
            shape = native.CallShape(
                which="backward",
                dtype=dtype.name,
                extent=extent,
                inputs=inputs,
                output=y if site.present[0] else None,
                first=states if self.has_last else none,
                last=given,
                output_steps=(0, self.steps),
                d_inputs=inputs,
                gradients=site.weights,
                more=more,
                ends=call.ends,
                no_first=not self.first,
            )
        else:
            last = none if call.all_states else states
            shape = native.CallShape(
                which=site.which, dtype=dtype.name, extent=extent, inputs=inputs, output=y, first=given, last=last, more=more,
                ends=call.ends,
            )  # fmt: skip
        self.shape = shape
        self.place = "jax", site.key, sizes, dtype.name

    @property
    def has_last(self) -> bool:
        """Whether last states have cotangents: all of them, or none."""
        return any(self.site.present[1:]) and not self.call.all_states

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Of a sequence; of outputs of ends from row to row, twice."""
        row = shape[-1] * self.dtype.itemsize
        if len(shape) == 2:
            return row, row
        return (row, shape[1] * row) if self.call.batch_first else (shape[1] * row, row)

    def _of_states(self, shape: tuple[int, ...]) -> tuple[int, int]:
        row = shape[-1] * self.dtype.itemsize
        return shape[1] * row, row

    def _of_all(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        return (shape[1] * shape[2] * shape[3] * self.dtype.itemsize, *self._strides(shape[1:]))

    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        call, native = self.call, backends.native()
        inputs, first, count = call.counts
        parameters = arguments[inputs + first : call.floats]
        seed = _seed(arguments[call.floats]) if call.draws else 0
        randomness = call.of_kernels.randomness(seed, None, native.draw)
        read: list[NumPyArray] = []
        named: dict[str, NumPyArray] = {}
        if self.phase:
            named = dict(zip(self.network.parameter_names, self.views(parameters, self.parameters), strict=True))
            read = sources(call.of_kernels, named, self.dtype, randomness)
            at = [a.ctypes.data for a in read]
        else:
            at = [parameters[k] for k in self.direct]
        pool = native.POOLS.get(self.place) or native.POOLS.add(self.place, call.of_kernels, self.shape)
        if self.site.which != "backward":
            reserve = results[-1:] if self.site.which == "training" else ()
            made = results[: len(self.results)]
            pool.call([*arguments[:inputs], made[0], *arguments[inputs : inputs + first], *made[1:], *at, *reserve], randomness)
            return
        reserve_at, *cotangents = arguments[call.operands :]
        d_inputs, d_first, d_parameters = results[:inputs], results[inputs : inputs + first], results[inputs + first :]
        d_sources: list[NumPyArray] = []
        if not self.site.weights:
            into = []
        elif self.phase:
            d_sources = new_gradients(call.of_kernels, read)
            into = [d.ctypes.data for d in d_sources]
        else:
            for k in self.zeroed:
                ctypes.memset(d_parameters[k], 0, math.prod(self.parameters[k]) * self.dtype.itemsize)
            into = [d_parameters[k] for k in self.direct]
        if call.all_states:
            given, more = cotangents[: self.site.present[0]], cotangents[self.site.present[0] :]
        else:
            given, more = cotangents, []
        reserve = self.kept(reserve_at) if reserve_at % ALIGNMENT else None
        reserve_at = reserve_at if reserve is None else reserve.ctypes.data
        pool.call([*arguments[:inputs], *given, *d_first, *more, *d_inputs, *at, *into, reserve_at], randomness)
        if self.site.weights and self.phase:
            made_gradients = gradients_by_name(call.of_kernels, named, d_sources, self.dtype, randomness)
            for view, name in zip(self.views(d_parameters, self.parameters), named, strict=True):
                view[...] = made_gradients[name]


def _seed(address: int) -> int:
    low, high = _array(address, (2,), np.uint32).tolist()
    return int(low | high << 32)


class _Packed(_Kernels):
    """Where samples have different steps, or not everything is kept: by a layer on NumPy arrays, which packs them."""

    def fill(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        call, site = self.call, self.site
        floats = self.views(arguments[: call.floats], self.floats)
        rest = iter(arguments[call.floats : call.operands])
        inputs, first, _ = call.counts
        (x, *further), state = floats[:inputs], floats[inputs : inputs + first] or None
        seed = _seed(next(rest)) if call.draws else 0
        masks = [_array(next(rest), x.shape[:2], np.bool_) if there else None for there in (call.masked, call.resets)]
        layer = anyrnn.numpy.Recurrent.of_network(
            self.network, call.named(floats[inputs + first :]), batch_first=call.batch_first, checked=False
        )
        layer.memory_budget = call.budget
        steps = {name: a for (name, _), a in zip(self.network.further_inputs, further, strict=True)}
        given: dict[str, Any] = {"mask": masks[0], "reset": masks[1], **steps}
        given |= {"return_outputs": "last" if call.ends else "all", "return_states": "all" if call.all_states else "last"}
        if site.which == "backward":
            reserve = layer.reserve_in(self.kept(arguments[call.operands]), x, state, seed=seed, **given)
            shapes = [shape for shape, there in zip(self.results, site.present, strict=True) if there]
            cotangents = self.views(arguments[call.operands + 1 :], shapes)
            d_y = cotangents.pop(0) if site.present[0] else None
            d_x, d_state, gradients = layer.backward(reserve, d_y, cotangents or None)
            made = [*(d_x if further else [d_x]), *(_several(d_state) if first else [])]
            made += [gradients[name] for name in self.network.parameter_names] if site.weights else []
            shapes = self.floats[: len(made)]
        else:
            memory = _array(results[-1], (self.reserve,), np.uint8) if site.which == "training" else None
            y = self.views(results[:1], self.results[:1])[0]
            if site.which == "training" or call.draws:
                _, states, _ = layer.forward_training(x, state, out=y, memory=memory, seed=seed, **given)
            else:
                _, states = layer.forward_inference(x, state, out=y, **given)
            made, shapes, results = _several(states), self.results[1:], results[1 : len(self.results)]
        for view, array in zip(self.views(results, shapes), made, strict=True):
            view[...] = array


def _several(states: Any) -> list[NumPyArray]:
    return list(states) if isinstance(states, tuple) else [states]


@lru_cache(maxsize=1024)
def _kernels(key: str, sizes: tuple[int, ...], bytes: int) -> _Kernels:
    site = _sites.get(key)
    if site is None:
        raise RuntimeError("a program that another process compiled: make the layer here and trace the call again")
    keep_what_is_freed()
    return (_Packed if site.call.is_uneven or site.call.budget else _Dense)(site, sizes, DTYPES[bytes])
