"""Writes the Triton function of a kernel of numbers, one a sample: arithmetic, and sums over features, or the largest of them."""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.triton.kernel import KernelText
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import reachable

MOST_TOGETHER = 4
"""Sums over features that threads tell each other at once."""
LEAST = 'float("-inf")'


class ScalarText(KernelText):
    """Writes one such function."""

    def body(self) -> None:
        self.say_wait()
        nodes, made = self.nodes, set[int]()
        waiting = [i for i in self.needed if nodes[i].shape == ()]
        while waiting:
            ready = [i for i in waiting if nodes[i].row.kind != "reduction" and made.issuperset(nodes[i].inputs)]
            for i in ready:
                self.say_value(i)
            made |= set(ready)
            sums = [i for i in waiting if nodes[i].row.kind == "reduction" and made.issuperset(self.kernel.numbers_in[i])]
            assert ready or sums, "a scalar kernel cannot be ordered"
            for dim in dict.fromkeys(nodes[nodes[i].inputs[0]].shape[0] for i in sums):
                self.say_reductions([i for i in sums if nodes[nodes[i].inputs[0]].shape[0] == dim], dim)
            made |= set(sums)
            waiting = [i for i in waiting if i not in made]
        for i, buffer, later in self.kernel.stores:
            self.say_store(self.value_text(i), buffer, later, "there", "")

    def say_reductions(self, reductions: Sequence[int], dim: Dim) -> None:
        """Several sums over features, or the largest ones, in one loop."""
        features = self.use(self.writer.size(dim))
        parts_of = {i: self.local(("parts", i), f"{self.label(i)}_parts") for i in reductions}
        largest = [i for i in reductions if self.nodes[i].op == "largest"]
        for i, name in parts_of.items():
            made = f"tl.full((BLOCK_S, BLOCK_R), {LEAST}, COMPUTE)" if i in largest else "tl.zeros((BLOCK_S, BLOCK_R), COMPUTE)"
            self.say(f"{name} = {made}")
        self.say(f"for block in range(0, tl.cdiv({features}, BLOCK_R)):")
        self.depth += 1
        self.say("feature = (block * BLOCK_R + tl.arange(0, BLOCK_R))[None, :]")
        self.say(f"inside = there & (feature < {features})")
        arguments = [self.nodes[i].inputs[0] for i in reductions]
        for j in sorted(j for j in reachable(self.nodes, arguments) if self.nodes[j].shape):
            self.say_value(j)
        for i, argument in zip(reductions, arguments, strict=True):
            name, value = parts_of[i], self.value_text(argument)
            more = f"{name} = functions.maximum({name}, tl.where(feature < {features}, {value}, {LEAST}))"
            self.say(more if i in largest else f"{name} += tl.where(inside, {value}, 0.0)")
        self.depth -= 1
        for i in largest:
            self.say(f"{self.label(i)} = tl.reduce({parts_of[i]}, 1, functions.maximum)[:, None]")
        sums = [i for i in reductions if i not in largest]
        for place in range(0, len(sums), MOST_TOGETHER):
            together = sums[place : place + MOST_TOGETHER]
            labels, parts = [self.label(i) for i in together], [parts_of[i] for i in together]
            if len(labels) == 1:
                self.say(f"{labels[0]} = tl.sum({parts[0]}, axis=1)")
            else:
                self.say(f"{', '.join(labels)} = tl.reduce(({', '.join(parts)}), 1, functions.added_{len(labels)})")
            for label in labels:
                self.say(f"{label} = {label}[:, None]")
