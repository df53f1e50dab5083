"""Networks as object files for C, ahead of time: for machines without Python, and for other ones than this.

The layers become a list of operations (`lowering`), whose kernels are those of the llvm backend (`anyrnn.backends.llvm.static`);
a module calls one after the other (`module`), and a header tells compilers of C and C++ what is in the file (`header`).
"""

from __future__ import annotations

from anyrnn.aot.writing import SUFFIXES as SUFFIXES
from anyrnn.aot.writing import export as export

__all__ = ["SUFFIXES", "export"]
