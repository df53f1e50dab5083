"""A backend as the package onnx tests backends: it reads models as `reading` does, and runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyrnn.onnx.reading import read, weight_inputs
from anyrnn.onnx.reading_file import library

onnx = library()

from onnx.backend.base import Backend as Base  # noqa: E402
from onnx.backend.base import BackendRep  # noqa: E402


class Prepared(BackendRep):
    """A model; inputs that are weights are read with each call."""

    def __init__(self, model: Any) -> None:
        self._model, self._weights = model, weight_inputs(model)
        there = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value.name for value in model.graph.input if value.name not in there]
        self._outputs = [value.name for value in model.graph.output]
        self._imported = None if self._weights else read(model)

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order, for inputs in the model's order, or by name. Raises: as `Imported.run`."""
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(self._inputs, inputs, strict=True))
        weights = {name: given.pop(name) for name in self._weights}
        imported = self._imported or read(self._model, weights)
        found = imported.run(given)
        return tuple([found[name] for name in self._outputs])


class Backend(Base):
    """For `onnx.backend.test.BackendTest`."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether a model can be read."""
        try:
            cls.prepare(model, device)
        except ValueError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Raises: ValueError for models that cannot be read, and other devices."""
        if not cls.supports_device(device):
            raise ValueError(f"device should be CPU, got {device!r}")
        return Prepared(model)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a single node, by the current version of its operator. Raises: as `prepare`."""
        names = [name for name in node.input if name]
        arrays = dict(zip(names, map(np.asarray, inputs), strict=True))
        tensor = onnx.helper.make_tensor_value_info
        given = [tensor(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in arrays.items()]
        made = [tensor(name, onnx.TensorProto.UNDEFINED, None) for name in node.output if name]
        return cls.prepare(onnx.helper.make_model(onnx.helper.make_graph([node], "node", given, made)), device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The CPU alone."""
        return device.partition(":")[0] == "CPU"
