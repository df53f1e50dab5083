"""The error budgets: one table, and the ways of comparing with it.

A fast result is not held to a tolerance but to what a plain implementation of the same precision (its peer) achieves:
`err(fast) <= k * err(peer) + ulps * spacing of the largest reference magnitude`, errors being distances from float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

RMS = 1.5
"""k for the root mean square of the errors."""
MAXIMUM = 3.0
"""k for the largest error."""
ULPS = 2.0
"""Units in the last place, of the largest reference magnitude, that any result may be off."""
MOVED = 10.0
"""How many times the movement of a result two implementations may differ by: they round thousands of times, and `movement` tries
three roundings of what a result is of.
"""

ROUNDED, TURNED = 0.5, 1e-4
"""Of products of bfloat16: how far from products of rounded numbers in float64, as part of what rounding changes and of the
norm: a number next to the middle of two others may be rounded to either.
"""

IN_INT8 = 0.03
"""Of networks with products of int8: how far results may be from those of float32, as part of their norm."""

RELATIVE = {
    "llvm float64 against the reference backend": 1e-12,
    "reference backend against torch autograd, float64": 1e-12,
    "float64 against torch.nn": 1e-10,
    "loss curve in float64 against torch.nn": 1e-10,
    "loss curve in float32 against torch.nn": 1e-3,
    "16 bits against torch.nn": 2e-2,
    "random cells, float64": 1e-10,
    "sums of float32 in another order": 1e-6,
    "float32 kernels against a scan, through JAX's transformations": 2e-5,
}
"""Largest difference allowed between two results that both are nearly exact, as part of the largest magnitude."""

Array = np.ndarray[Any, np.dtype[Any]]


def as_array(value: Any) -> Array:
    """A NumPy array of an array or a tensor."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def assert_within_budget(fast: Any, peer: Any, reference: Any, what: str) -> None:
    """`fast` and `peer` have one precision, `reference` is float64.

    Each may be a list: then the errors of its arrays, as parts of the largest magnitude of each reference, are judged together.
    A few numbers alone say little, since rounding errors of one good implementation are now and then many times those of another.
    """
    if not isinstance(reference, list):
        fast, peer, reference = [fast], [peer], [reference]
    fast_errors, peer_errors = [], []
    precisions = []
    for f, p, r in zip(map(as_array, fast), map(as_array, peer), map(as_array, reference), strict=True):
        assert r.dtype == np.float64, f"{what}: the reference is {r.dtype}"
        assert f.dtype == p.dtype, f"{what}: {f.dtype} cannot be compared with a peer of {p.dtype}"
        assert f.shape == p.shape == r.shape, f"{what}: shapes {f.shape}, {p.shape}, {r.shape}"
        assert np.isfinite(r).all(), f"{what}: the reference is not finite"
        assert np.isfinite(p).all(), f"{what}: the peer is not finite"
        assert np.isfinite(f).all(), f"{what}: {np.count_nonzero(~np.isfinite(f))} of {f.size} numbers are not finite"
        scale = np.abs(r).max() if r.size else 1.0
        fast_errors.append(np.abs(f - r).ravel() / (scale or 1.0))
        peer_errors.append(np.abs(p - r).ravel() / (scale or 1.0))
        if scale:
            precisions.append(float(np.spacing(scale.astype(f.dtype)) / scale))
    error, allowed = np.concatenate(fast_errors), np.concatenate(peer_errors)
    if not error.size:
        return
    slack = ULPS * min(precisions, default=0.0)
    rms, rms_budget = np.sqrt(np.mean(error**2)), RMS * np.sqrt(np.mean(allowed**2)) + slack
    maximum, maximum_budget = error.max(), MAXIMUM * allowed.max() + slack
    assert rms <= rms_budget, f"{what}: RMS error {rms:.3g} is over the budget of {rms_budget:.3g}"
    assert maximum <= maximum_budget, f"{what}: error {maximum:.3g} is over the budget of {maximum_budget:.3g}"


def assert_relative(actual: Any, expected: Any, kind: str, what: str, least: float = 0.0, moved: float = 0.0) -> None:
    """Two results that both are nearly exact: `kind` is a row of RELATIVE. `least` is the least magnitude that counts, for what
    may be zero but for rounding; `moved` is the `movement` of what is expected.
    """
    actual, expected = as_array(actual), as_array(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert np.array_equal(np.isfinite(actual), np.isfinite(expected)), f"{what}: not finite in other places than expected"
    if not expected.size:
        return
    scale, difference = max(least, float(np.abs(expected).max())), float(np.abs(actual - expected).max())
    allowed = RELATIVE[kind] * scale + MOVED * moved
    assert difference <= allowed, f"{what}: differs by {difference:.3g} of {scale:.3g}; {allowed:.3g} is allowed"


def assert_agree(
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    kind: str,
    who: str,
    least: float,
    run: Callable[[np.random.Generator], Mapping[str, Any]] | None,
) -> None:
    """Every result by name. Where one differs by more than the row of RELATIVE allows, and there is a `run` (see `movement`), it
    may differ by MOVED times its movement too.
    """
    assert found.keys() == expected.keys()
    moved = dict.fromkeys(expected, 0.0)
    if run is not None and not all(agrees(found[name], value, kind, least) for name, value in expected.items()):
        moved = movement(expected, run)
    for name, value in expected.items():
        assert_relative(found[name], value, kind, f"{who}: {name}", least, moved[name])


def agrees(actual: Any, expected: Any, kind: str, least: float) -> bool:
    """Whether `assert_relative` holds."""
    actual, expected = as_array(actual), as_array(expected)
    scale = max(least, float(np.abs(expected).max(initial=0.0)))
    return actual.shape == expected.shape and bool((np.abs(actual - expected) <= RELATIVE[kind] * scale).all())


def rounded(array: Array, random: np.random.Generator) -> Array:
    """Each number's neighbour, above it or below."""
    return np.nextafter(array, random.choice([-np.inf, np.inf], array.shape))


def movement(expected: Mapping[str, Any], run: Callable[[np.random.Generator], Mapping[str, Any]]) -> dict[str, float]:
    """How far each result moves when the numbers that it is of are `rounded`, as `run` does: at the most of three times.

    Where rounding is magnified (a normalisation magnifies that of equal features 300 times, and once more in every step before),
    no two implementations agree to more digits than that; nor where angles of thousands are rounded. Only to be asked of networks
    that normalise or compare nothing: at the border of a comparison a rounding moves results too, and there implementations
    have to agree.
    """
    moved = dict.fromkeys(expected, 0.0)
    for seed in range(3):
        for name, value in run(np.random.default_rng(seed)).items():
            distance = float(np.abs(as_array(value) - as_array(expected[name])).max(initial=0.0))
            assert np.isfinite(distance), f"{name} is not finite when what it is of is rounded"
            moved[name] = max(moved[name], distance)
    return moved
