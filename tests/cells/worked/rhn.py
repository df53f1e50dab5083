"""The recurrent highway network, with a carry gate of c = 1 - t."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("rhn")
@worked("rhn", depth=1)
def rhn(w: Any, x: Array, s: Array, depth: int) -> Any:
    for level in map(str, range(1, depth + 1)):
        pre = {gate: w.weight_sh[gate + level] @ s + getattr(w, f"bias_{gate}{level}") for gate in "ht"}
        if level == "1":
            pre = {gate: value + w.weight_ih[gate + level] @ x for gate, value in pre.items()}
        h, t = np.tanh(pre["h"]), sigmoid(pre["t"])
        c = 1 - t
        s = h * t + s * c
    return s, (s,)
