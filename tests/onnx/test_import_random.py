"""Models of nodes put together at random, against onnxruntime: what is read computes the same."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import anyrnn.backends
from anyrnn.onnx import reading
from tests.onnx.import_models import Node, model, onnxruntime_gives, weights

Shape = tuple[Any, ...]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")


class Maker:
    """Values by name with their shapes: steps are "T", samples "N"."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.shapes: dict[str, Shape] = {"x": ("T", "N", 3)}
        self.recurrent("x")

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def numbers(self, *shape: int) -> str:
        return self.constant(np.random.default_rng(self.r.randrange(10**6)).normal(size=shape).astype(np.float32))

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append((op, inputs, [name], attributes))
        self.shapes[name] = shape
        return name

    def recurrent(self, name: str) -> None:
        op, hidden = self.r.choice(["RNN", "GRU", "LSTM"]), self.r.choice([2, 3, 4])
        direction = self.r.choice(["forward", "reverse", "bidirectional"])
        directions = 2 if direction == "bidirectional" else 1
        arrays = weights(op, directions, self.shapes[name][2], hidden, self.r.randrange(10**6), bias=False)
        place = len(self.nodes)
        made = [f"all{place}", f"last{place}"]
        self.nodes.append(
            (op, [name, *map(self.constant, arrays.values())], made, {"direction": direction, "hidden_size": hidden})
        )
        self.shapes |= dict(zip(made, [("T", directions, "N", hidden), (directions, "N", hidden)], strict=True))

    def step(self) -> None:
        """One more node, if the one that is drawn can be."""
        name = self.r.choice(list(self.shapes)[-6:])
        shape = self.shapes[name]
        getattr(self, "_" + self.r.choice(self.KINDS))(name, shape)

    KINDS = (
        "function",
        "transpose",
        "transpose",
        "reshape",
        "squeeze",
        "unsqueeze",
        "slice",
        "concat",
        "product",
        "scaled",
        "sum",
        "recur",
        "last",
        "gather",
    )

    def _function(self, name: str, shape: Shape) -> None:
        self.add(self.r.choice(["Relu", "Tanh", "Sigmoid", "Abs"]), [name], shape)

    def _transpose(self, name: str, shape: Shape) -> None:
        order = self.r.sample(range(len(shape)), len(shape))
        self.add("Transpose", [name], tuple([shape[k] for k in order]), perm=order)

    def _reshape(self, name: str, shape: Shape) -> None:
        """Two features' axes as one, or one as two; with a 0 for those that stay before it, and a -1."""
        places = [k for k, n in enumerate(shape) if isinstance(n, int)]
        joins = [k for k in places if k + 1 in places]
        cuts = [k for k in places if shape[k] % 2 == 0]
        if joins and self.r.random() < 0.6:
            k = self.r.choice(joins)
            new: Shape = (*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :])
        elif cuts:
            k = self.r.choice(cuts)
            new = (*shape[:k], 2, shape[k] // 2, *shape[k + 1 :])
        else:
            return
        free = [j for j, n in enumerate(new) if isinstance(n, str) and not (j < len(shape) and shape[j] == n)]
        if len(free) <= 1:
            target = [-1 if j in free else 0 if isinstance(n, str) else n for j, n in enumerate(new)]
            self.add("Reshape", [name, self.constant(np.array(target))], new)

    def _squeeze(self, name: str, shape: Shape) -> None:
        if 1 in shape and len(shape) > 1:
            k = shape.index(1)
            self.add("Squeeze", [name, self.constant(np.array([k]))], (*shape[:k], *shape[k + 1 :]))

    def _unsqueeze(self, name: str, shape: Shape) -> None:
        if len(shape) < 5:
            k = self.r.randrange(len(shape) + 1)
            self.add("Unsqueeze", [name, self.constant(np.array([k]))], (*shape[:k], 1, *shape[k:]))

    def _features(self, shape: Shape) -> int | None:
        places = [k for k, n in enumerate(shape) if isinstance(n, int) and n > 1]
        return self.r.choice(places) if places else None

    def _slice(self, name: str, shape: Shape) -> None:
        k = self._features(shape)
        if k is not None:
            start = self.r.randrange(shape[k])
            stop = self.r.randrange(start + 1, shape[k] + 1)
            ends = [self.constant(np.array([n])) for n in (start, stop, k)]
            self.add("Slice", [name, *ends], (*shape[:k], stop - start, *shape[k + 1 :]))

    def _gather(self, name: str, shape: Shape) -> None:
        k = self._features(shape)
        if k is not None:
            chosen = [self.r.randrange(-shape[k], shape[k]) for _ in range(self.r.choice([1, 2, 3]))]
            self.add("Gather", [name, self.constant(np.array(chosen))], (*shape[:k], len(chosen), *shape[k + 1 :]), axis=k)

    def _concat(self, name: str, shape: Shape) -> None:
        k = self._features(shape)
        others = [
            o
            for o, s in self.shapes.items()
            if len(s) == len(shape) and k is not None and s[:k] + s[k + 1 :] == shape[:k] + shape[k + 1 :]
        ]
        if k is not None and isinstance(self.shapes[other := self.r.choice(others)][k], int):
            self.add("Concat", [name, other], (*shape[:k], shape[k] + self.shapes[other][k], *shape[k + 1 :]), axis=k)

    def _product(self, name: str, shape: Shape) -> None:
        if isinstance(shape[-1], int) and len(shape) > 1:
            size = self.r.choice([1, 2, 4])
            self.add("MatMul", [name, self.numbers(shape[-1], size)], (*shape[:-1], size))

    def _scaled(self, name: str, shape: Shape) -> None:
        sides = [n if isinstance(n, int) and self.r.random() < 0.7 else 1 for n in shape]
        inputs = [name, self.numbers(*sides[self.r.randrange(len(sides)) :])]
        self.r.shuffle(inputs)
        self.add(self.r.choice(["Add", "Mul", "Sub"]), inputs, shape)

    def _sum(self, name: str, shape: Shape) -> None:
        others = [o for o, s in self.shapes.items() if s == shape]
        self.add(self.r.choice(["Add", "Mul", "Sub"]), [name, self.r.choice(others)], shape)

    def _recur(self, name: str, shape: Shape) -> None:
        if shape[:2] == ("T", "N") and len(shape) == 3:
            self.recurrent(name)

    def _last(self, name: str, shape: Shape) -> None:
        if "T" in shape:
            k = shape.index("T")
            step = self.constant(np.array(self.r.choice([-1, -1, 0])))
            self.add("Gather", [name, step], (*shape[:k], *shape[k + 1 :]), axis=k)


@pytest.mark.parametrize(("first", "count"), [(0, 100), pytest.param(10_000, 3000, marks=pytest.mark.slow)])
def test_what_is_read_computes_what_onnxruntime_does(first: int, count: int) -> None:
    read = 0
    for seed in range(first, first + count):
        maker = Maker(seed)
        for _ in range(maker.r.choice([3, 6, 12])):
            maker.step()
        outputs = maker.r.sample(list(maker.shapes)[1:], 2)
        made = model(maker.nodes, {"x": ("float32", ["T", "N", 3])}, outputs, maker.constants, 17)
        try:
            found = reading.read(made)
        except ValueError:
            continue
        read += 1
        for steps, samples in ((4, 3), (1, 1)):
            given = {"x": np.random.default_rng(seed).normal(size=(steps, samples, 3)).astype(np.float32)}
            ours = found.run(given)
            for name, array in onnxruntime_gives(made, given).items():
                assert ours[name].shape == array.shape, (seed, name)
                scale = max(1.0, float(np.abs(array).max(initial=0)))
                assert math.isclose(float(np.abs(ours[name] - array).max(initial=0)), 0, abs_tol=1e-4 * scale), (seed, name)
    assert read > count // 3
