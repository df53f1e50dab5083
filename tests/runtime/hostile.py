"""Files of networks whose equations were changed at random: what no trace would write."""

from __future__ import annotations

import json
import random
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from anyrnn import cells, runtime
from anyrnn.files import safetensors
from anyrnn.ir.ops import TABLE
from anyrnn.runtime.saved import FORMAT
from tests.runtime.test_networks import small

OTHERS = (None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, 10**30, 0.5, -1e300, "", "x", "hidden", "2*hidden", "-1*hidden",
          "hidden/2", "99999", "input", "add", "affine", "slice", "fill", "concat", "h", [], {}, [0], ["hidden"])  # fmt: skip


@lru_cache(maxsize=1)
def networks() -> tuple[bytes, ...]:
    """Files of networks, one for each cell."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in cells.names():
            path = Path(folder) / f"{name}.safetensors"
            small(name, "reference").save(path)
            found.append(path.read_bytes())
    return tuple(found)


@lru_cache(maxsize=1)
def _parsed() -> list[tuple[dict[str, Any], str]]:
    read = [safetensors.read(data) for data in networks()]
    return [(arrays, metadata[FORMAT]) for arrays, metadata in read]


def changed(draw: random.Random) -> bytes:
    """A network's file, with something in its description changed."""
    arrays, text = draw.choice(_parsed())
    data = json.loads(text)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.4:
            _rewire(draw, data)
            continue
        holder, key = _place(draw, data)
        kind = draw.randrange(5)
        if kind == 0:
            holder[key] = draw.choice(OTHERS)
        elif kind == 1:
            other, place = _place(draw, data)
            holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 2:
            other, place = _place(draw, data)
            holder[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(holder[key]))
        elif isinstance(holder, list) and kind == 3:
            holder.insert(key, json.loads(json.dumps(holder[key])))
        else:
            del holder[key]
    return written(arrays, json.dumps(data))


def _rewire(draw: random.Random, data: Any) -> None:
    """Another op, or other values for it, in a cell's equations."""
    try:
        nodes = next(layer for layer in data["layers"] if layer["kind"] == "recurrent")["cell"]["nodes"]
        _ = [(node[0] in TABLE, len(node[1])) for node in nodes]
    except (KeyError, IndexError, TypeError, StopIteration):  # what another change has left
        return
    place = draw.randrange(len(nodes))
    op, inputs = nodes[place][:2]
    if inputs and draw.random() < 0.7:
        inputs[draw.randrange(len(inputs))] = draw.randrange(place)
    else:
        nodes[place][0] = draw.choice([o.name for o in TABLE.values() if op not in TABLE or o.arity == TABLE[op].arity])


def written(arrays: dict[str, np.ndarray], text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        safetensors.write(path, arrays, {FORMAT: text})
        return path.read_bytes()


def _place(draw: random.Random, data: Any) -> tuple[Any, Any]:
    """Somewhere in lists and dicts: what holds it, and its index or key."""
    holder: Any = data
    key: Any = draw.choice(list(data))
    while isinstance(holder[key], (list, dict)) and holder[key] and draw.random() < 0.9:
        holder = holder[key]
        key = draw.randrange(len(holder)) if isinstance(holder, list) else draw.choice(list(holder))
    return holder, key


def read_and_run(data: bytes, backend: str = "reference") -> Any:
    """Load a network; what can be loaded can be run."""
    network = runtime.load(data, backend=backend)
    given = {
        i.name: np.zeros((2, 1), int) if i.size is None else np.full((2, 1, i.size), 0.5, network.dtype) for i in network.inputs
    }
    with np.errstate(all="ignore"):
        return network.run(given)
