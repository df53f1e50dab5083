"""The primitives that JAX's programs have for a call, and what its transformations make of them.

`forward` gives the output and the states. Differentiated it becomes `training`, which gives a reserve besides, and `tangent`,
which is linear; transposed, that is `backward`. On the CPU all but `tangent` are calls of kernels; elsewhere, and wherever those
are differentiated again, the interpreter on JAX's own operators stands in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from anyrnn import backends
from anyrnn.errors import UnsupportedError
from anyrnn.jax import interpreted, native
from anyrnn.jax.call import Call

forward_p, training_p, tangent_p, backward_p = map(
    Primitive, ("anyrnn_forward", "anyrnn_training", "anyrnn_tangent", "anyrnn_backward")
)


def why_no_kernels(call: Call, dtype: Any) -> str | None:
    """Why kernels cannot run a call on a CPU, or None."""
    if call.backend == "reference":
        return "backend='reference' was asked for"
    return backends.why_not_native(call.of_kernels, np.dtype(dtype).name)


def why_interpreted(call: Call, dtype: Any) -> str | None:
    """Why a call is made by JAX's operators from the first, or None; so it is, too, where programs are for another device than a
    CPU, unless kernels were asked for.
    """
    device: Any = getattr(jax.config, "jax_default_device", None)
    platform = jax.default_backend() if device is None else device if isinstance(device, str) else device.platform
    if platform != "cpu" and call.backend == "auto":
        return f"device {platform} has no kernels (cpu has)"
    return why_no_kernels(call, dtype)


# What they give


def _array(like: Any, shape: tuple[int, ...], dtype: Any) -> ShapedArray:
    """Of a shape and dtype; within `shard_map` one that varies over the devices as another does."""
    if not varying(like):
        return ShapedArray(shape, dtype)
    whole = NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec(*[None] * len(shape)))
    over: dict[str, Any] = {"manual_axis_type": like.mat} if hasattr(like, "mat") else {"vma": like.vma}
    return ShapedArray(shape, dtype, sharding=whole, **over)


def varying(like: Any) -> frozenset[str]:
    """The axes of devices over which an array varies within `shard_map`."""
    found: frozenset[str] = like.mat.varying if hasattr(like, "mat") else like.vma  # JAX 0.8
    return found


def alike(operands: Sequence[Any]) -> list[Any]:
    """Within `shard_map`, operands that all vary over the devices that any of them does: the gradients of those that did not are
    added up.
    """
    over = [varying(jax.typeof(a)) for a in operands]
    every = frozenset().union(*over)
    if not every:
        return list(operands)
    return [_made_varying(a, tuple(every - own)) for a, own in zip(operands, over, strict=True)]


def _made_varying(array: Any, axes: tuple[str, ...]) -> Any:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)  # type: ignore[attr-defined]  # JAX 0.8


def _results(call: Call, x: Any) -> list[ShapedArray]:
    return [_array(x, shape, x.dtype) for shape in call.results(x.shape)]


def _reserve(call: Call, x: Any) -> jax.ShapeDtypeStruct:
    bytes = 0 if why_no_kernels(call, x.dtype) else native.reserve_bytes(call, x)
    return jax.ShapeDtypeStruct((bytes,), np.uint8)


@forward_p.def_abstract_eval
def _forward_results(x: Any, *others: Any, call: Call) -> list[ShapedArray]:
    return _results(call, x)


@training_p.def_abstract_eval
def _training_results(x: Any, *others: Any, call: Call) -> list[ShapedArray]:
    reserve = _reserve(call, x)
    return [*_results(call, x), _array(x, reserve.shape, reserve.dtype)]


@tangent_p.def_abstract_eval
def _tangent_results(x: Any, *others: Any, call: Call, active: tuple[bool, ...]) -> list[ShapedArray]:
    return _results(call, x)


@backward_p.def_abstract_eval
def _backward_results(x: Any, *others: Any, call: Call, present: tuple[bool, ...], weights: bool) -> list[ShapedArray]:
    of = (x, *others)[: call.floats if weights else sum(call.counts[:2])]
    return [_array(x, a.shape, a.dtype) for a in of]


# How they run


def _made(call: Call, x: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, x.dtype) for shape in call.results(x.shape)]


def _forward(*operands: Array, call: Call) -> Sequence[Array]:
    if why_no_kernels(call, operands[0].dtype):
        return interpreted.forward(*operands, call=call)
    return native.run(native.Site(call, "inference"), _made(call, operands[0]), *operands)


def _training(*operands: Array, call: Call) -> Sequence[Array]:
    x = operands[0]
    if why_no_kernels(call, x.dtype):
        return _interpreted_training(*operands, call=call)
    return native.run(native.Site(call, "training"), [*_made(call, x), _reserve(call, x)], *operands)


def _interpreted_training(*operands: Array, call: Call) -> Sequence[Array]:
    reserve = _reserve(call, operands[0])
    return [*interpreted.forward(*operands, call=call), jnp.zeros(reserve.shape, reserve.dtype)]


def _backward(*arrays: Array, call: Call, present: tuple[bool, ...], weights: bool) -> Sequence[Array]:
    if why_no_kernels(call, arrays[0].dtype):
        return interpreted.backward(*arrays, call=call, present=present, weights=weights)
    of = arrays[: call.floats if weights else sum(call.counts[:2])]
    results = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in of]
    return native.run(native.Site(call, "backward", present, weights), results, *arrays)


def _elsewhere(run: Callable[..., Sequence[Array]]) -> Callable[..., Sequence[Array]]:
    """On devices other than CPUs."""

    def checked(*arrays: Array, call: Call, **more: Any) -> Sequence[Array]:
        if call.backend == "llvm":
            raise UnsupportedError(
                "backend 'llvm' cannot run this: its kernels are for CPUs, and the program is for another device"
            )
        return run(*arrays, call=call, **more)

    return checked


for _p, _here, _there in (
    (forward_p, _forward, interpreted.forward),
    (training_p, _training, _interpreted_training),
    (tangent_p, interpreted.tangent, interpreted.tangent),
    (backward_p, _backward, interpreted.backward),
):
    _p.multiple_results = True
    mlir.register_lowering(_p, mlir.lower_fun(_here, multiple_results=True), platform="cpu")
    mlir.register_lowering(_p, mlir.lower_fun(_elsewhere(_there), multiple_results=True))


@lru_cache(maxsize=1024)
def _alone(primitive: Primitive, **parameters: Any) -> Callable[..., Sequence[Array]]:
    """A program of one call."""
    return jax.jit(partial(primitive.bind, **parameters))


def _run_alone(primitive: Primitive, *arrays: Array, **parameters: Any) -> Sequence[Array]:
    # what would run the program operator by operator would come here again
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        results = _alone(primitive, **parameters)(*arrays)
    for name, is_wrong in (("jax_debug_nans", jnp.isnan), ("jax_debug_infs", jnp.isinf)):
        if getattr(jax.config, name, False):
            with jax.debug_nans(False), jax.debug_infs(False):
                found = any(bool(is_wrong(a).any()) for a in results if jnp.issubdtype(a.dtype, jnp.floating))
            if found:
                raise FloatingPointError(f"{name}: {primitive.name} of {parameters['call']} gave such numbers")
    return results


for _p in (forward_p, training_p, tangent_p, backward_p):
    _p.def_impl(partial(_run_alone, _p))


# Derivatives


def _tangents(primals: Sequence[Any], tangents: Sequence[Any], reserve: Any, call: Call) -> list[Any]:
    active = tuple(not isinstance(t, ad.Zero) for t in tangents[: call.floats])
    given = [t for t, is_active in zip(tangents, active, strict=False) if is_active]
    return list(tangent_p.bind(*primals, reserve, *given, call=call, active=active))


def _forward_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
    *results, reserve = training_p.bind(*primals, call=call)
    return results, _tangents(primals, tangents, reserve, call)


def _training_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
    *results, reserve = training_p.bind(*primals, call=call)
    return [*results, reserve], [
        *_tangents(primals, tangents, reserve, call),
        ad.Zero(ShapedArray(reserve.shape, jax.dtypes.float0)),
    ]


def _again(primitive: Primitive, by_interpreter: Callable[..., Sequence[Array]]) -> Callable[..., Any]:
    """The derivative of a derivative: that of what the interpreter makes."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        changing = [k for k, t in enumerate(tangents) if not isinstance(t, ad.Zero)]

        def of(*some: Any) -> Sequence[Any]:
            return by_interpreter(*interpreted.replaced(primals, changing, some), **parameters)

        _, found = jax.jvp(of, [primals[k] for k in changing], [tangents[k] for k in changing])
        return primitive.bind(*primals, **parameters), found

    return jvp


def _transpose(cotangents: Sequence[Any], *arrays: Any, call: Call, active: tuple[bool, ...]) -> list[Any]:
    known = arrays[: call.operands + 1]
    nothing = [None] * len(known)
    has = [not isinstance(c, ad.Zero) for c in cotangents]
    present = (has[0], *([True] * (len(has) - 1) if call.all_states or any(has[1:]) else has[1:]))
    if not any(has):
        return [*nothing, *(None for _ in arrays[len(known) :])]
    given = [ad.instantiate_zeros(c) for c, there in zip(cotangents, present, strict=True) if there]
    data = sum(call.counts[:2])
    weights = any(active[data:])
    gradients = backward_p.bind(*known, *given, call=call, present=present, weights=weights)
    wanted = [gradients[k] for k, is_active in enumerate(active) if is_active]
    linear = map(ad.is_undefined_primal, arrays[len(known) :])
    return [*nothing, *(d if is_linear else None for d, is_linear in zip(wanted, linear, strict=True))]


ad.primitive_jvps[forward_p] = _forward_jvp
ad.primitive_jvps[training_p] = _training_jvp
ad.primitive_jvps[tangent_p] = _again(tangent_p, interpreted.tangent)
ad.primitive_jvps[backward_p] = _again(backward_p, interpreted.backward)
ad.primitive_transposes[tangent_p] = _transpose


# Batches


def _one_by_one(primitive: Primitive) -> Callable[..., Any]:
    """A call for each."""

    def rule(arrays: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> tuple[Sequence[Any], Sequence[int]]:
        mapped = [k for k, d in enumerate(dims) if isinstance(d, int)]

        def one(some: Sequence[Any]) -> Sequence[Any]:
            results: Sequence[Any] = primitive.bind(*interpreted.replaced(arrays, mapped, some), **parameters)
            return results

        results = jax.lax.map(one, [jnp.moveaxis(arrays[k], dims[k], 0) for k in mapped])
        return results, [0] * len(results)

    return rule


def _forward_batched(arrays: Sequence[Any], dims: Sequence[Any], *, call: Call) -> tuple[Sequence[Any], Sequence[int]]:
    """One call, of all samples of all batches, where they have their parameters in common and draw nothing."""
    of_samples = [*range(sum(call.counts[:2])), *range(call.floats, call.operands)]
    if call.draws or any(isinstance(d, int) for k, d in enumerate(dims) if k not in of_samples):
        one_by_one: tuple[Sequence[Any], Sequence[int]] = _one_by_one(forward_p)(arrays, dims, call=call)
        return one_by_one
    count = next(a.shape[d] for a, d in zip(arrays, dims, strict=True) if isinstance(d, int))
    x = [n for k, n in enumerate(arrays[0].shape) if k != dims[0]]
    rows = call.sides((x[0], x[1]))[1]
    inputs, given = list(arrays), call.counts[0]
    for k in of_samples:
        axis = 1 if given <= k < call.floats else _samples_axis(call)
        inputs[k] = _joined(arrays[k], dims[k], axis, count)
    results = forward_p.bind(*inputs, call=call)
    axis = _samples_axis(call)
    axes = [0 if call.ends else axis, *([1 + axis if call.all_states else 1] * (len(results) - 1))]
    return [r.reshape(*r.shape[:axis], count, rows, *r.shape[axis + 1 :]) for r, axis in zip(results, axes, strict=True)], axes


def _samples_axis(call: Call) -> int:
    """Of a sequence."""
    return 0 if call.batch_first else 1


def _joined(array: Any, dim: Any, axis: int, count: int) -> Any:
    """With the samples of all batches in one axis, batch after batch."""
    if not isinstance(dim, int):
        moved = jnp.broadcast_to(jnp.expand_dims(array, axis), (*array.shape[:axis], count, *array.shape[axis:]))
    else:
        moved = jnp.moveaxis(array, dim, axis)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def _tangent_batched(arrays: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> tuple[Sequence[Any], Sequence[int]]:
    axes = [d if isinstance(d, int) else None for d in dims]
    results = jax.vmap(partial(interpreted.tangent, **parameters), in_axes=axes)(*arrays)
    return results, [0] * len(results)


batching.primitive_batchers[forward_p] = _forward_batched
batching.primitive_batchers[training_p] = _one_by_one(training_p)
batching.primitive_batchers[tangent_p] = _tangent_batched
batching.primitive_batchers[backward_p] = _one_by_one(backward_p)
