"""The definition: the interpreter, step by step. On NumPy it is the reference backend; on torch, the differentiable path."""
