"""Every function, both types: error against float64 or mpmath, special values, and the same bits in every lane and width."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest

from anyrnn.backends.llvm.builder import Module, Value, const, vector
from anyrnn.backends.llvm.math import FUNCTIONS

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = {"float": np.float32, "double": np.float64}
LANES = (16, 8, 4, 1)
X86 = platform.machine().lower() in ("x86_64", "amd64")

# Largest error in ulp for float and double, and the ranges over which it holds. The module's docstring has what was found.
ACCURACY: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "exp": ((2.0, 1.0), (-86.98, 88.72), (-708.0, 709.7)),
    "log": ((1.0, 1.5), (1.2e-38, 3.4e38), (2.3e-308, 1.7e308)),
    "tanh": ((3.0, 3.0), (-3.4e38, 3.4e38), (-1.7e308, 1.7e308)),
    "sigmoid": ((3.0, 3.0), (-87.3, 3.4e38), (-708.3, 1.7e308)),
    "softplus": ((3.0, 3.0), (-86.98, 3.4e38), (-708.0, 1.7e308)),
    "sin": ((2.0, 2.0), (-1e4, 1e4), (-1e9, 1e9)),
    "cos": ((2.0, 2.0), (-1e4, 1e4), (-1e9, 1e9)),
}

EXACT: dict[str, Callable[..., Array]] = {
    "sqrt": np.sqrt,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "floor": np.floor,
    "sign": np.sign,
}

NUMPY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "sin": np.sin,
    "cos": np.cos,
}

MPMATH: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: max(x, mpmath.mpf(0)) + mpmath.log1p(mpmath.exp(-abs(x))),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}

avx512 = pytest.mark.skipif(not (X86 and llvm.get_host_cpu_features().get("avx512f")), reason="counts AVX-512 instructions")

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


def host_features() -> str:
    return llvm.get_host_cpu_features().flatten() + (",-prefer-256-bit" if X86 else "")


def machine(features: str) -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(features=features, opt=1)


def optimised(text: str, features: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    passes = llvm.create_pass_builder(machine(features), llvm.create_pipeline_tuning_options(speed_level=1))
    passes.getModulePassManager().run(module, passes)
    return module


def operands(name: str) -> int:
    return 2 if name in ("minimum", "maximum") else 1


def add_loop(module: Module, symbol: str, emit: Callable[..., Value], count: int, element: str, lanes: int) -> None:
    """`symbol(out, in..., n)`: out[i] = emit(in[i]...)."""
    pointers = [("ptr", f"in{i}") for i in range(count)]
    b = module.function(symbol, [("ptr", "out"), *pointers, ("i64", "n")], internal=False)
    out, *inputs, n = b.arguments
    loop = b.loop("i", 0, n, lanes)
    type = vector(element, lanes) if lanes > 1 else element
    values = [b.load(type, b.at(pointer, loop.index, element)) for pointer in inputs]
    result = emit(b, *values, "result")
    assert result == "%result"
    b.store(result, b.at(out, loop.index, element))
    b.end(loop)
    b.ret()


class Kernels:
    """All the functions of one element type, compiled in the given widths."""

    def __init__(self, element: str, lanes: tuple[int, ...], features: str, fused: bool) -> None:
        self.dtype = DTYPES[element]
        module = Module(fused=fused)
        for name, emit in FUNCTIONS.items():
            for width in lanes:
                add_loop(module, f"{name}_{width}", emit, operands(name), element, width)
        self.engine = llvm.create_mcjit_compiler(optimised(str(module), features), machine(features))
        self.engine.finalize_object()

    def __call__(self, name: str, lanes: int, *inputs: Array) -> Array:
        n = len(inputs[0])
        padded = [np.resize(x.astype(self.dtype), -(-n // 16) * 16) for x in inputs]
        out = np.full_like(padded[0], np.nan)
        address = self.engine.get_function_address(f"{name}_{lanes}")
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(padded)), ctypes.c_int64)(address)
        call(out.ctypes.data, *[x.ctypes.data for x in padded], len(out))
        return out[:n]


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernels]:
    fused = not X86 or bool(llvm.get_host_cpu_features().get("fma"))
    return {element: Kernels(element, LANES, host_features(), fused) for element in DTYPES}


def random_bits(dtype: type, count: int) -> Array:
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    return np.random.default_rng(7).integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype)


def samples(dtype: type, low: float, high: float, count: int) -> Array:
    """Even grids over the range and its middle, magnitudes of every order, random bit patterns, and the two ends."""
    grids = [np.linspace(max(low, -reach), min(high, reach), count) for reach in (1.0, 6.0, 25.0, 1000.0)]
    orders = np.geomspace(np.finfo(dtype).tiny, high, count)
    near = np.geomspace(1e-9, 100, count)
    x = np.concatenate([*grids, orders, -orders, near, -near, [low, high]]).astype(dtype)
    x = np.concatenate([x, random_bits(dtype, 2 * count)])
    with np.errstate(invalid="ignore"):
        return x[(x >= low) & (x <= high)]


def float32_errors(name: str, x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        exact = NUMPY[name](x.astype(np.float64))
        spacing = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32))
        error = np.abs(y - exact) / spacing
    return np.where(y == exact, 0.0, error)


def float64_errors(name: str, x: Array, y: Array) -> Array:
    def error(a: float, b: float) -> float:
        exact = MPMATH[name](mpmath.mpf(a))
        if math.isinf(b) or mpmath.isinf(exact):
            return 0.0 if b == exact else math.inf
        return float(abs(b - exact) / np.spacing(max(abs(float(exact)), np.finfo(np.float64).tiny)))

    with mpmath.workprec(160):
        return np.array([error(float(a), float(b)) for a, b in zip(x, y, strict=True)])


def test_every_function_is_tested() -> None:
    assert set(FUNCTIONS) == set(ACCURACY) | set(EXACT)


@pytest.mark.parametrize("name", ACCURACY)
def test_float32_error(kernels: dict[str, Kernels], name: str) -> None:
    (bound, _), (low, high), _ = ACCURACY[name]
    x = samples(np.float32, low, high, 100_000)
    assert float32_errors(name, x, kernels["float"](name, 16, x)).max() <= bound


@pytest.mark.parametrize("name", ACCURACY)
def test_float64_error(kernels: dict[str, Kernels], name: str) -> None:
    (_, bound), _, (low, high) = ACCURACY[name]
    x = samples(np.float64, low, high, 250)
    assert float64_errors(name, x, kernels["double"](name, 8, x)).max() <= bound


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5])


def specials(dtype: type) -> Array:
    limits = np.finfo(dtype)
    extremes = np.array([limits.smallest_subnormal, limits.tiny, limits.tiny * 0.99, limits.max, 1e-30, 1e30], dtype)
    return np.concatenate([SPECIAL.astype(dtype), extremes, -extremes])


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", ACCURACY)
def test_special_values(kernels: dict[str, Kernels], name: str, element: str) -> None:
    x = specials(DTYPES[element])
    if name in ("sin", "cos"):
        x = x[~(np.abs(x) > 1e6)]  # their infinities and huge arguments have a test of their own
    y = kernels[element](name, 8, x)
    with np.errstate(all="ignore"):
        expected = NUMPY[name](x.astype(np.longdouble)).astype(x.dtype)
    if name == "log":
        expected[(np.abs(x) < np.finfo(x.dtype).tiny) & (x > 0)] = -np.inf
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(y[~finite], expected[~finite])
    few = ACCURACY[name][0][list(DTYPES).index(element)] + 1
    spacing = np.spacing(np.clip(np.abs(expected[finite]), np.finfo(x.dtype).tiny, np.finfo(x.dtype).max / 2))
    assert (np.abs(y[finite] - expected[finite]) <= few * spacing).all()


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_exact_functions(kernels: dict[str, Kernels], name: str, element: str) -> None:
    x = np.concatenate([specials(DTYPES[element]), samples(DTYPES[element], -1e30, 1e30, 1000)])
    arguments = [x, np.random.default_rng(1).permutation(x)][: operands(name)]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kernels[element](name, 8, *arguments), EXACT[name](*arguments))


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_nan_in_either_operand(kernels: dict[str, Kernels], name: str) -> None:
    x = np.array([np.nan, 1.0, np.nan, -np.inf, np.inf, 0.0])
    y = np.array([1.0, np.nan, np.nan, 2.0, 2.0, np.nan])
    np.testing.assert_array_equal(kernels["float"](name, 4, x, y), EXACT[name](x, y))


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_in_every_lane_and_width(kernels: dict[str, Kernels], name: str, element: str) -> None:
    dtype = DTYPES[element]
    x = np.concatenate([specials(dtype), samples(dtype, -100.0, 100.0, 300), random_bits(dtype, 1000)])
    arguments = [x, np.roll(x, 31)][: operands(name)]
    expected = kernels[element](name, LANES[0], *arguments)
    for lanes in LANES:
        for shift in range(5):
            shifted = kernels[element](name, lanes, *[np.roll(a, shift) for a in arguments])
            y = np.roll(shifted, -shift)
            assert (np.isnan(y) == np.isnan(expected)).all()
            number = ~np.isnan(y)
            assert y[number].tobytes() == expected[number].tobytes()


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "softplus"])
def test_limits_are_reached(kernels: dict[str, Kernels], name: str, element: str) -> None:
    """The values at infinity are exact, and so are those of arguments that are merely large."""
    x = np.array([-np.inf, -1e30, -1e4, 1e4, 1e30, np.inf])
    low, high = {"exp": (0, np.inf), "tanh": (-1, 1), "sigmoid": (0, 1), "softplus": (0, None)}[name]
    y = kernels[element](name, 8, x)
    np.testing.assert_array_equal(y[:3], np.full(3, low))
    np.testing.assert_array_equal(y[3:], x[3:].astype(y.dtype) if high is None else np.full(3, high))


@pytest.mark.parametrize("element", DTYPES)
def test_no_rise_is_lost_at_the_ends(kernels: dict[str, Kernels], element: str) -> None:
    """Where exp, sigmoid and softplus are flushed to zero, and where exp overflows, they still never decrease."""
    scale = 1.0 if element == "float" else 8.0
    for name in ("exp", "sigmoid", "softplus"):
        for centre in (-88.0, 88.7):
            y = kernels[element](name, 8, np.linspace(centre - 2, centre + 2, 20_001) * scale)
            assert (y[1:] >= y[:-1] * (1 - 1e-6)).all()  # false for NaN


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_angles(kernels: dict[str, Kernels], name: str, element: str) -> None:
    dtype = DTYPES[element]
    near, bound = (2.0**21, 3e-6) if element == "float" else (2.0**50, 5e-15)
    x = np.random.default_rng(0).uniform(-near, near, 500).astype(dtype)
    with mpmath.workprec(200):
        exact = np.array([float(MPMATH[name](mpmath.mpf(float(a)))) for a in x])
    assert np.abs(kernels[element](name, 8, x) - exact).max() < bound
    huge = np.geomspace(near, np.finfo(dtype).max / 2, 50)
    assert np.isnan(kernels[element](name, 8, np.array([*huge, *-huge, np.inf, -np.inf, np.nan]))).all()


@pytest.mark.parametrize("element", DTYPES)
def test_gradual_near_zero(kernels: dict[str, Kernels], element: str) -> None:
    """Odd functions are their argument near 0, down to the smallest normal number."""
    x = np.geomspace(np.finfo(DTYPES[element]).tiny * 4, 1e-9, 1000).astype(DTYPES[element])
    x = np.concatenate([x, -x])
    for name in ("tanh", "sin"):
        np.testing.assert_allclose(kernels[element](name, 16, x), x, rtol=3e-9)


@pytest.mark.skipif(not X86, reason="asks for a machine without fused multiply-add")
@pytest.mark.parametrize("element", DTYPES)
def test_without_fused_multiply_add(element: str) -> None:
    """Twice the error at most, but for the zeros of sin and cos."""
    plain = Kernels(element, (4,), "+sse4.1", fused=False)
    errors = float32_errors if element == "float" else float64_errors
    which = list(DTYPES).index(element)
    for name, (bounds, *ranges) in ACCURACY.items():
        x = samples(DTYPES[element], *ranges[which], 3000 if element == "float" else 60)
        if name in ("sin", "cos"):
            x = x[np.abs(x) < 1e3]
        assert errors(name, x, plain(name, 4, x)).max() <= 2 * bounds[which], name


def assembly(emit: Callable[..., Value], count: int, element: str, lanes: int) -> str:
    module = Module()
    add_loop(module, "kernel", emit, count, element, lanes)
    return str(machine(host_features()).emit_assembly(optimised(str(module), host_features())))


@avx512
@pytest.mark.parametrize(
    ("name", "least", "most", "compares"),
    [("tanh", 1, 1, 0), ("sigmoid", 1, 1, 0), ("exp", 1, 1, 0), ("softplus", 1, 1, 0), ("relu", 0, 1, 0), ("minimum", 1, 0, 1)],
)
def test_a_bound_is_one_instruction(name: str, least: int, most: int, compares: int) -> None:
    text = assembly(FUNCTIONS[name], operands(name), "float", 16)
    assert (text.count("\tvminps"), text.count("\tvmaxps"), text.count("\tvcmp")) == (least, most, compares)


@avx512
@pytest.mark.parametrize("first", [True, False])
def test_a_constant_bound_needs_no_test_for_nan(first: bool) -> None:
    def bounded(b: Any, x: Value, name: str) -> Value:
        six = const(x.type, 6.0)
        return FUNCTIONS["minimum"](b, *((six, x) if first else (x, six)), name)

    text = assembly(bounded, 1, "float", 16)
    assert text.count("\tvminps") == 1
    assert "\tvcmp" not in text


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_calls(name: str, element: str) -> None:
    text = assembly(FUNCTIONS[name], operands(name), element, 4)
    assert "\tcall" not in text
    assert "\tbl\t" not in text
