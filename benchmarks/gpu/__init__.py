"""Checks and measures on a CUDA device: `python -m benchmarks.gpu`, or `make gpu`. Needs torch and Triton, and nothing of LLVM.

    plan      what there is to do, by name, in an order that begins with what matters most
    together  the checks, and what is to be timed once without a clock, by several processes: nearly all of it is compiling
    alone     what is timed, one after the other, from kernels that are compiled by then

Each item is done in a process that does many (`worker.py`). One that breaks its process, or does not come to an end, costs that
process, and another goes on with what is left. The file is written after every item, and names what was not done.
"""
