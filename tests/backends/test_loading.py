"""Whether a backend can be imported."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from anyrnn import backends


def test_a_backend_that_is_broken_is_no_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> ModuleType:
        if name == "anyrnn.backends.llvm.run":
            raise ImportError("cannot import name 'mistyped'")
        return importlib.import_module(name)

    monkeypatch.setattr(backends, "import_module", imported)
    with pytest.raises(ImportError, match=r"^cannot import name 'mistyped'$"):
        backends._llvm.__wrapped__()
