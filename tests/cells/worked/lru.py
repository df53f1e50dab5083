"""The linear recurrent unit, in complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("lru")
def lru(w: Any, x: Array, re: Array, im: Array) -> Any:
    eigenvalues = np.exp(-np.exp(w.nu_log) + 1j * np.exp(w.theta_log))
    b = w.weight_ih["re"] + 1j * w.weight_ih["im"]
    h = eigenvalues * (re + 1j * im) + np.exp(w.gamma_log) * (b @ x)
    y = ((w.C_re + 1j * w.C_im) @ h).real + w.weight_ih["y"] @ x
    return y, (h.real, h.imag)
