"""GPU kernels, generated as Triton text from the plans that the native kernels are made of."""
