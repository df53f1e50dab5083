"""Writes the Triton function of a kernel of features, in blocks of BLOCK_F: first what its sums begin from, then products, then
pointwise work and stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyrnn.backends.triton.kernel import KernelText
from anyrnn.backends.triton.lower import Scatter, Sum, Term
from anyrnn.backends.triton.names import SLICED, identifier, in_turn, power_of_two
from anyrnn.passes.plan import MOVES


class ColumnText(KernelText):
    """Writes one such function."""

    def body(self) -> None:
        features = self._features()
        affines = [i for i in self.kernel.affines if i in self.needed]
        if self.writer.holds:
            self.say("block = column")
        else:
            self.say_wait()
            self.say(f"for block in range(column, tl.cdiv({features}, BLOCK_F), COLUMN_PROGRAMS):")
            self.depth += 1
        self.say("feature = (block * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]")
        self.say(f"inside = there & (feature < {features})")
        for i in affines:
            self.say_first(i, self.writer.lowered.sum_of(self.kernel, i))
        read = self.kernel.read_in_place(self.needed)
        values = [i for i in self.needed if i in read and self.nodes[i].op != "affine"]
        own = self.own_values()
        for i in filter(own.__contains__, values):
            self.say_value(i)
        if self.writer.holds:
            self.say_wait()
        whole = [i for i in affines if self.scatter_of(i) is None]
        self.say_products([(i, t) for i in whole for t in self.writer.lowered.sum_of(self.kernel, i).terms], features)
        for i in affines:
            self.say_reduced(i)
        for i in values:
            if i not in own:
                self.say_value(i)
        for scatter in self.scatters:
            self.say_scatter(scatter)
        for i, buffer, later in self.kernel.stores:
            self.say_store(self.value_text(i), buffer, later, "inside", " + feature")

    def own_values(self) -> set[int]:
        """Those that follow from nothing but what is known before the steps, and this program's own features."""
        found = set[int]()
        for i in self.needed:
            node = self.nodes[i]
            others = node.op == "load" and node.attributes[0] in self.writer.numbers_made
            if node.op not in ("affine", *MOVES) and not others and found.issuperset(node.inputs):
                found.add(i)
        return found

    def say_first(self, i: int, of: Sum) -> None:
        """What a sum of products begins from."""
        name = self.label(i)
        if of.early is not None:
            self.say(f"{name} = {self.load(of.early.name, of.later)}")
            return
        self.say(f"{name} = tl.zeros((BLOCK_N, BLOCK_F), COMPUTE)")
        for bias in of.biases:
            address = self.use(self.writer.weight(bias))
            self.say(f"{name} += tl.load({address} + feature, mask=feature < {self._features()}, other=0.0).to(COMPUTE)")

    def _features(self) -> str:
        assert self.kernel.dim is not None
        return self.use(self.writer.size(self.kernel.dim))

    def say_products(self, terms: Sequence[tuple[int, Term]], features: str) -> None:
        """Products of one operand share a loop over its features; with weights that are held they are one product."""
        loops: dict[tuple[str, int, str, str], list[tuple[int, Term]]] = {}
        for i, term in terms:
            loops.setdefault((term.operand, term.later, *self._range(term, features)), []).append((i, term))
        if self.writer.holds:
            self.say_held({(operand, later): together for (operand, later, _, _), together in loops.items()})
            return
        for (operand, later, begin, end), together in loops.items():
            self.say(f"for k0 in range({begin}, {end}, BLOCK_K):")
            self.depth += 1
            self.say("k = k0 + tl.arange(0, BLOCK_K)")
            value = f"functions.parts({self.say_operand(operand, later)}, OPERAND, PRECISION)"
            for i, term in together:
                tile, total = self.local(("tile", term.weight, i), f"{identifier(term.weight)}_tile"), self.label(i)
                self.say(f"{tile} = functions.parts({self.writer.load_of(term, self.use)}, OPERAND, PRECISION)")
                self.say(f"{total} = functions.product({value}, {tile}, {total}, PRECISION, COMPUTE)")
            self.depth -= 1

    def say_operand(self, operand: str, later: int, block: int | None = None) -> str:
        """The features `k` of an operand; of a block of held weights those of SLICES in its first side."""
        dim = self.dim(operand)
        assert dim is not None
        value = self.local(("operand", operand, later, block), f"{identifier(operand)}_k" + (f"_{block}" if block else ""))
        rows, k = ("", "[None, :]") if block is None else ("[None, :, :]", "[:, None, :]")
        mask = f"there{rows} & (k < {self.use(self.writer.size(dim))}){k}"
        self.say(f"{value} = tl.load({self.places[operand, later]}{rows} + k{k}, mask={mask}, other=0.0{self.way_to(operand)})")
        return value

    def say_held(self, groups: Mapping[tuple[str, int], Sequence[tuple[int, Term]]]) -> None:
        """With weights that are held. Slices of the features are multiplied side by side and added up; the columns of several
        results stand in turn.
        """
        by_results: dict[tuple[int, ...], list[tuple[str, int]]] = {}
        for of, together in groups.items():
            by_results.setdefault(tuple(i for i, _ in together), []).append(of)
        for results, operands in by_results.items():
            columns = power_of_two(len(results))
            total = self.local(("products", results), f"products_of_{identifier(operands[0][0])}")
            self.say(f"{total} = tl.zeros((SLICES, BLOCK_N, {columns} * BLOCK_F), COMPUTE)")
            for of in operands:
                values = []
                for block in range(self.writer.holds):  # all loads are on their way before anything waits for one
                    self.say(f"k = {block} * BLOCK_K + {SLICED}")
                    values.append(self.say_operand(*of, block))
                for block, value in enumerate(values):
                    tiles = self.use(self.writer.tiles([term for _, term in groups[of]], block))
                    parts = f"functions.parts({value}, OPERAND, PRECISION)"
                    self.say(f"{total} = functions.product({parts}, {tiles}, {total}, PRECISION, COMPUTE)")
            self.say(f"{total} = {self.spread(f'tl.sum({total}, axis=0)')}")
            self._say_apart(total, [self.label(i) for i in results], columns)

    def spread(self, total: str) -> str:
        """Sums of products, laid out as the kernel's other values are; as they are where it stores outputs alone, which calls may
        not want.
        """
        places = [self.places[buffer, later] for _, buffer, later in self.kernel.stores if self.role(buffer) != "output"]
        return f"functions.spread({total}, {places[0]} + feature, inside & (row < 0))" if places else total

    def _of_scatter(self, scatter: Scatter, later: int) -> str:
        """Where programs of the same rows put the products of a step that they make for each other."""
        address, step = self.use(self.writer.scatter(scatter)), self._later(later)
        return f"{address} + (row_block * 2 + ({step} & 1)) * (COLUMN_PROGRAMS * COLUMN_PROGRAMS * BLOCK_N * BLOCK_F)"

    def say_reduced(self, i: int) -> None:
        """Add to a sum of products what all programs have made of it."""
        scatter = self.scatter_of(i)
        if scatter is not None:
            [later] = {term.later for term in self.writer.lowered.sum_of(self.kernel, i).terms}
            how = "column, BLOCK_N, BLOCK_F, COLUMN_PROGRAMS, COMPUTE"
            reduced = self.spread(f"functions.reduced({self._of_scatter(scatter, later)}, {how})")
            self.say(f"{self.label(i)} += {reduced}")

    def say_scatter(self, scatter: Scatter) -> None:
        """Multiply operands by weights that are held, for all features of their sum. Those that kernels before have made are
        loaded.
        """
        made = {buffer: f"tl.where(inside, {self.value_text(i)}, 0.0)" for i, buffer, _ in self.kernel.stores}
        tiles = [made.get(term.operand) or self.load(term.operand, 0) for term in scatter.terms]
        stacked = in_turn([f"{tile}[None, :, :]" for tile in tiles], "tl.zeros((1, BLOCK_N, BLOCK_F), COMPUTE)")
        operands, total = (self.local((of, scatter), f"{of}{identifier(scatter.name)}") for of in ("operands_of_", ""))
        slices = f"(SLICES, BLOCK_N, {power_of_two(len(tiles))} * BLOCK_F)"
        self.say(f"{operands} = tl.broadcast_to({stacked}, {slices})")
        self.say(f"{operands} = functions.parts({operands}, OPERAND, PRECISION)")
        for block in range(self.writer.holds):
            held = self.use(self.writer.tiles(scatter.terms, block, scattered=True))
            self.say(f"{total} = tl.zeros((SLICES, BLOCK_N, BLOCK_K // SLICES), COMPUTE)")
            self.say(f"{total} = functions.product({operands}, {held}, {total}, PRECISION, COMPUTE)")
            how = f"{block}, column, BLOCK_N, BLOCK_F, BLOCK_K, COLUMN_PROGRAMS"
            self.say(f"functions.scatter({total}, {self._of_scatter(scatter, 0)}, {how})")

    def _say_apart(self, value: str, results: Sequence[str], columns: int) -> None:
        """Add to each result its columns of a value that has those of so many in turn."""
        if columns == 1:
            self.say(f"{results[0]} += {value}")
            return
        half = columns // 2
        halves = [results[:half], results[half:]] if len(results) > half else [results]
        names = [self.local(("part", value, k), f"{'_'.join(half)}_products") for k, half in enumerate(halves)]
        self.say(f"{', '.join((*names, '_')[:2])} = functions.apart({value})")
        for name, half_of_results in zip(names, halves, strict=True):
            self._say_apart(name, half_of_results, half)

    def _range(self, term: Term, features: str) -> tuple[str, str]:
        """The features of the operand that a block of features of the result needs."""
        dim = self.dim(term.operand)
        assert dim is not None
        depth = self.use(self.writer.size(dim))
        if term.heads == 1:
            return "0", depth
        of_result, of_operand = self.writer.blocks_of(term, self.use)
        begin = f"(block * BLOCK_F) // {of_result} * {of_operand} // BLOCK_K * BLOCK_K"
        last = f"tl.minimum(block * BLOCK_F + BLOCK_F, {features}) - 1"
        return begin, f"({last}) // {of_result} * {of_operand} + {of_operand}"
