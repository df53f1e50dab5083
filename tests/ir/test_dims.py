"""Linear forms of sizes, and ranges of them."""

from __future__ import annotations

import pytest

from anyrnn.ir.dims import Dim, cover_once

H = Dim.of("hidden")


@pytest.mark.parametrize(
    ("ranges", "covers"),
    [
        ([(Dim(), H)], True),
        ([(H / 2, H / 2), (Dim(), H / 2)], True),
        ([(Dim(), H / 2)], False),
        ([(Dim(), H), (H / 2, H / 2)], False),
        ([(H / 2, H / 2), (Dim(), H)], False),
        ([(Dim(), H), (Dim(), H)], False),
        ([(Dim(), H / 3), (H / 3, H / 3), (H / 3 * 2, H / 3), (H / 2, H / 2)], False),
    ],
)
def test_ranges_that_cover_a_whole_once(ranges: list[tuple[Dim, Dim]], covers: bool) -> None:
    assert cover_once(ranges, H) is covers
