"""`import anyrnn` is light: it brings NumPy and nothing else heavy."""

import subprocess
import sys

import pytest

HEAVY = ("jax", "keras", "torch", "llvmlite", "scipy", "sklearn", "matplotlib", "tqdm", "safetensors")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nothing_heavy_is_imported():
    loaded = run("import sys, anyrnn; print(*(m for m in sys.modules if '.' not in m))").split()
    assert "numpy" in loaded
    assert not set(HEAVY) & set(loaded)


def test_wrappers_need_no_docstrings():
    code = "import anyrnn; from anyrnn.cells.wrappers import residual; print(residual(anyrnn.cells.load('lstm')))"
    command = [sys.executable, "-OO", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "<cell residual(lstm)>\n"


def test_a_layer_on_numpy_needs_no_torch():
    code = (
        "import sys, numpy as np, anyrnn; anyrnn.Recurrent('gru', 2, 3)(np.zeros((2, 1, 2), 'f')); print('torch' in sys.modules)"
    )
    assert run(code).strip() == "False"


def test_the_built_in_cells_are_made_when_one_is_asked_for():
    code = "import sys, anyrnn.runtime; before = 'anyrnn.cells' in sys.modules; anyrnn.cells.lstm; print(before)"
    assert run(code).strip() == "False"


def test_the_torch_front_end_is_imported_when_it_is_asked_for():
    code = "import sys, anyrnn; before = 'torch' in sys.modules; anyrnn.torch.LSTM; print(before)"
    assert run(code).strip() == "False"


@pytest.mark.timing
def test_import_is_quick():
    """Other processes can only make it longer, so one quick import shows it."""
    code = "import time, numpy; start = time.perf_counter(); import anyrnn; print(time.perf_counter() - start)"
    run(code)
    assert any(float(run(code)) < 0.1 for _ in range(25))
