"""Files as named arrays, without knowing what they mean; every file is read as untrusted input.

`load` reads a file of any kind, `kind` says which kind it is. Each kind has a module of its own with `read`, which takes a
path or the bytes of a file: `safetensors` and `mxnet`, which also write, `npz`, `npy`, `hdf5`, `keras`, `pt` and `flax`.

>>> import tempfile, pathlib
>>> import numpy as np
>>> from anyrnn import files
>>> path = pathlib.Path(tempfile.mkdtemp()) / "weights.npz"
>>> np.savez(path, weight=np.arange(3.0))
>>> files.load(path)
({'weight': array([0., 1., 2.])}, {}, 'npz')
"""

from anyrnn.files.kinds import SUFFIXES, kind, load

__all__ = ["SUFFIXES", "kind", "load"]
