"""Emits what moves numbers between the caller's arrays and our panels: packing weights, states in and out, gradients out."""

from __future__ import annotations

from anyrnn.backends.llvm import int8
from anyrnn.backends.llvm.builder import I64, NULL, Function, Module, Value, const, i64, vector
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.factors import load_weights, no_weights, packed_steps, paired, steps_of, times_zeros
from anyrnn.backends.llvm.heads import pack_blocks, pack_int8_blocks
from anyrnn.backends.llvm.lanes import first_lanes, lanes_left, load_lanes

HASHED = 12
"""Vectors of a matrix that are hashed side by side, so that none waits for another."""
HASHED_AHEAD = 8192
"""So many bytes ahead a matrix is fetched that is hashed."""
ROWS_AHEAD = 8
"""So many rows of a matrix ahead are fetched where a part of each is packed, as no processor guesses them."""
MIXER = 0x9E3779B97F4A7C15 - 2**64
"""An odd number without pattern."""
TURN = 15
"""Bits by which a word is turned before the next is mixed in: products carry differences upwards only, and those of the highest
bits, as of signs and exponents, would cancel each other.
"""


class Copies:
    """Emits each function once, on demand."""

    def __init__(self, module: Module, element: Element, keeps: bool) -> None:
        """`keeps`: packed weights are left for the next call."""
        self.module, self.element, self.keeps = module, element, keeps
        self.made: set[str] = set()

    def function(self, name: str, parameters: list[tuple[str, str]]) -> Function | None:
        if name in self.made:
            return None
        self.made.add(name)
        return self.module.function(name, parameters)

    def pack_matrix(self, transposed: bool) -> str:
        """`void(ptr pack, ptr matrix, i64 row bytes, i64 size, i64 depth, i64 k bytes, i64 width, i64 group0, i64 group1,
        ptr prints)`.

        Packs a weight for the products that give `size` features from `depth` features; `k bytes` is the distance in the pack
        from one k to the next, or to the next of those that are multiplied together. A transposed weight has its rows along k.
        """
        name = "pack_transposed" if transposed else "pack_matrix"
        checks = self.keeps and not transposed  # a transposed weight is always packed anew
        parameters = [
            ("ptr noalias", "pack"),
            ("ptr noalias readonly", "matrix"),
            *[("i64", n) for n in ("row_bytes", "size", "depth", "k_bytes", "width", "group0", "group1")],
            ("ptr", "prints"),
        ]
        b = self.function(name, parameters)
        if b is None:
            return name
        pack, matrix, row_bytes, size, depth, k_bytes, width, group0, group1, prints = b.arguments
        e = self.element
        group = b.loop("group", group0, group1)
        pack_it, packed = b.label("pack"), b.label("packed")
        if checks:
            features = b.mul(width, e.lanes)
            first = b.mul(group.index, features, "first")
            rows_at = b.at(matrix, b.mul(first, depth), e.type, "rows_at")
            numbers = b.mul(b.minimum(b.sub(size, first), features), depth, "numbers")
            found = self._unless_packed(b, rows_at, numbers, group.index, prints, pack_it, packed)
        target = b.at(pack, b.mul(b.mul(group.index, packed_steps(b, e, depth)), k_bytes), "i8", "target")
        first = b.mul(b.mul(group.index, width), e.lanes, "first")
        if e.int8:
            self._pack_int8(b, target, matrix, row_bytes, first, size, depth, k_bytes, width, transposed)
        elif transposed:
            source = b.at(matrix, first, e.type, "source")
            self._pack_rows(b, target, source, row_bytes, b.sub(size, first), depth, k_bytes, width)
        else:
            column = b.loop("column", 0, width)
            feature = b.add(first, b.mul(column.index, e.lanes), "feature")
            rows = self._rows_of(b, matrix, feature, e.lanes, b.sub(size, 1, "last"), row_bytes)
            mask = first_lanes(b, b.sub(size, feature, "left"), e.lanes)
            self._pack_columns(b, b.at(target, b.mul(column.index, e.panel_row), "i8", "target"), rows, mask, depth, k_bytes)
            b.end(column)
        if checks:
            note = b.label("note")
            b.branch_if(b.compare("eq", prints, NULL, "unchecked"), packed, note)
            b.place(note)
            # another thread may have written to them meanwhile; what it takes back before this is not seen
            again = self._hash(b, rows_at, numbers)
            sure = b.select(b.compare("eq", again, found, "same"), found, i64(0), "sure")
            place = b.at(prints, group.index, "i64", "print")  # another call may read it: only now is it true
            b.line(f"store atomic {sure.typed}, ptr {place} release, align 8")
            b.branch(packed)
            b.place(packed)
        b.end(group)
        b.ret()
        return name

    def pack_zeros(self) -> str:
        """`void(ptr pack, ptr matrix, i64 row bytes, i64 size, i64 depth, i64 k bytes, i64 width, i64 group0, i64 group1)`: of
        what `pack_matrix` packs only the products with zeros.
        """
        name, e = "pack_zeros", self.element
        sizes = ("row_bytes", "size", "depth", "k_bytes", "width", "group0", "group1")
        parameters = [("ptr noalias", "pack"), ("ptr noalias readonly", "matrix"), *[("i64", n) for n in sizes]]
        b = self.function(name, parameters)
        if b is None:
            return name
        pack, matrix, row_bytes, size, depth, k_bytes, width, group0, group1 = b.arguments
        whole, at_once = b.mul(b.binary("sdiv", depth, i64(e.lanes)), e.lanes, "whole"), min(4, e.lanes)
        rest = first_lanes(b, b.sub(depth, whole, "left"), e.lanes)
        group = b.loop("group", group0, group1)
        target = b.at(pack, b.mul(b.add(b.mul(group.index, packed_steps(b, e, depth)), steps_of(b, e, depth)), k_bytes), "i8")
        first = b.mul(b.mul(group.index, width), e.lanes, "first")
        lane = b.loop("lane", 0, b.mul(width, e.lanes), at_once)
        feature = b.add(first, lane.index, "feature")
        rows = self._rows_of(b, matrix, feature, at_once, b.sub(size, 1, "last"), row_bytes)
        k = b.loop("k", 0, whole, e.lanes, [(f"of_zeros.{i}", const(e.vector, 0.0)) for i in range(at_once)])
        sums = [
            times_zeros(b, e, b.load(e.vector, b.at(row, k.index, e.type), "weights", e.bytes), of_zeros)
            for row, of_zeros in zip(rows, k.values, strict=True)
        ]
        for i, (row, total) in enumerate(zip(rows, b.end(k, sums), strict=True)):
            total = times_zeros(b, e, b.masked_load(e.vector, b.at(row, whole, e.type), rest, "weights"), total)
            is_nan = b.compare("uno", total, total, "is_nan")
            b.module.declare(f"llvm.vector.reduce.or.v{e.lanes}i1", "i1", [is_nan.type])
            some = b.value("i1", f"call i1 @llvm.vector.reduce.or.v{e.lanes}i1({is_nan.typed})", "some")
            there = b.compare("slt", b.add(feature, i), size, "there")
            some = b.binary("and", some, there, "some")
            found = b.select(some, const(e.type, float("nan")), const(e.type, 0.0), "of_zeros")
            b.store(found, b.at(target, b.add(lane.index, i), e.type))
        b.end(lane)
        b.end(group)
        b.ret()
        return name

    def _rows_of(self, b: Function, matrix: Value, feature: Value, count: int, last: Value, row_bytes: Value) -> list[Value]:
        """So many rows of a matrix, of a feature and those behind it; none beyond the last."""
        numbers = [b.minimum(b.add(feature, i), last) for i in range(count)]
        return [b.at(matrix, b.mul(number, row_bytes), "i8", f"row.{i}") for i, number in enumerate(numbers)]

    def pack_blocks(self, transposed: bool, heads: int) -> str:
        """`void(ptr pack, ptr matrix, i64 row bytes, i64 size, i64 depth, i64 k bytes, i64 width, i64 group0, i64 group1)`: the
        same for a block-diagonal weight, of which the matrix has the blocks one below the other. Packed anew by every call.
        """
        name = f"pack_{heads}_blocks{'_transposed' * transposed}"
        sizes = ("row_bytes", "size", "depth", "k_bytes", "width", "group0", "group1")
        parameters = [("ptr noalias", "pack"), ("ptr noalias readonly", "matrix"), *[("i64", n) for n in sizes]]
        b = self.function(name, parameters)
        if b is None:
            return name
        pack = pack_int8_blocks if self.element.int8 else pack_blocks
        pack(b, self.element, transposed, heads)
        return name

    def _unless_packed(
        self,
        b: Function,
        rows_at: Value,
        numbers: Value,
        group: Value,
        prints: Value,
        go: str,
        skip: str,
    ) -> Value:
        """Branch to `skip` when a group's rows are those that were packed last, else go on at `go`; what tells of these rows."""
        look, origin = b.label("look"), b.current
        b.branch_if(b.compare("eq", prints, NULL, "unchecked"), go, look)
        b.place(look)
        found = self._hash(b, rows_at, numbers)
        place = b.at(prints, group, "i64", "print")
        before = b.value("i64", f"load atomic i64, ptr {place} acquire, align 8", "before")
        end = b.current
        b.branch_if(b.compare("eq", found, before, "same"), skip, go)
        b.place(go)
        return b.phi("i64", [(i64(0), origin), (found, end)], "print")

    def _hash(self, b: Function, address: Value, numbers: Value) -> Value:
        """A word, not zero, made of all bits of numbers that follow each other."""
        lanes = self.element.panel_row // 4
        words = vector("i32", lanes)
        mixer, left, right = (const(words, k) for k in (MIXER % 2**32, TURN, 32 - TURN))

        def mixed(hash: Value, at: Value) -> Value:
            """With another vector of bits."""
            mixed = b.add(b.mul(hash, mixer), b.load(words, at, "bits", 4), "mixed")
            return b.binary("or", b.binary("shl", mixed, left), b.binary("lshr", mixed, right), "hash")

        count = b.mul(numbers, self.element.bytes // 4, "count")
        whole, vectors = (b.mul(b.binary("sdiv", count, i64(n)), n, "whole") for n in (HASHED * lanes, lanes))
        loop = b.loop("hashed", 0, whole, HASHED * lanes, [(f"hash.{k}", const(words, k + 1)) for k in range(HASHED)])
        following = []
        for k, value in enumerate(loop.values):
            at = b.at(b.at(address, loop.index, "i32"), k * lanes, "i32", "hashed_at")
            b.prefetch(b.at(at, HASHED_AHEAD, "i8", "ahead"))
            following.append(mixed(value, at))
        hashes = b.end(loop, following)
        power = MIXER
        while len(hashes) > 1:  # in pairs, so that few wait for each other; each is multiplied by another power in all
            pairs, factor = zip(hashes[::2], hashes[1::2], strict=False), const(words, power % 2**32)
            hashes = [b.add(b.mul(one, factor), other, "hash") for one, other in pairs] + hashes[len(hashes) // 2 * 2 :]
            power = power * power % 2**32
        loop = b.loop("further", whole, vectors, lanes, [("hash", hashes[0])])
        (hash,) = b.end(loop, [mixed(loop.values[0], b.at(address, loop.index, "i32"))])
        wide = vector(I64, lanes)
        weights = Value("<" + ", ".join(f"i64 {pow(MIXER, lane + 1, 2**64)}" for lane in range(lanes)) + ">", wide)
        weighed = b.mul(b.cast("zext", hash, wide, "wide"), weights)
        b.module.declare(f"llvm.vector.reduce.add.v{lanes}i64", I64, [wide])
        total = b.value(I64, f"call i64 @llvm.vector.reduce.add.v{lanes}i64({weighed.typed})", "print")
        rest = b.loop("rest", vectors, count, 1, [("print", total)])
        word = b.load("i32", b.at(address, rest.index, "i32"), "word", 4)
        (total,) = b.end(rest, [b.add(b.mul(rest.values[0], MIXER), b.cast("zext", word, "i64", "word"), "print")])
        return b.select(b.compare("eq", total, i64(0)), i64(1), total, "print")  # zero is of nothing that is packed

    def _pack_rows(
        self, b: Function, target: Value, source: Value, row_bytes: Value, left: Value, depth: Value, k_bytes: Value, width: Value
    ) -> None:
        """Some vectors of each row of a matrix, which has `left` features there."""
        e = self.element
        k = b.loop("k", 0, steps_of(b, e, depth))
        row = b.mul(k.index, e.together, "row")
        line, to = b.at(source, b.mul(row, row_bytes), "i8", "line"), b.at(target, b.mul(k.index, k_bytes), "i8", "to")
        column = b.loop("column", 0, width)
        feature = b.mul(column.index, e.lanes, "feature")
        here = b.at(line, feature, e.type, "here")
        b.prefetch(b.at(here, b.mul(row_bytes, ROWS_AHEAD), "i8", "ahead"))
        lanes = lanes_left(b, b.sub(left, feature), e.lanes)
        value = load_lanes(b, e, here, lanes, "weights")
        if e.pairs:
            has_second = b.compare("slt", b.add(row, 1), depth, "has_second")
            second = b.at(here, b.select(has_second, row_bytes, i64(0)), "i8", "second")
            second = b.select(has_second, load_lanes(b, e, second, lanes, "second"), const(e.vector, 0.0), "second")
            value = paired(b, e, value, second)
        b.store(value, b.at(to, b.mul(column.index, e.panel_row), "i8"), e.panel_row)
        b.end(column)
        b.end(k)

    def _pack_int8(
        self, b: Function, target: Value, matrix: Value, row_bytes: Value, first: Value, size: Value, depth: Value,
        k_bytes: Value, width: Value, transposed: bool,
    ) -> None:  # fmt: skip
        """All vectors of a group from a first feature on, of so many features in all, see `int8`."""
        e = self.element
        column = b.loop("column", 0, width)
        feature = b.add(first, b.mul(column.index, e.lanes), "feature")
        mask, last = first_lanes(b, b.sub(size, feature, "left"), e.lanes), b.sub(size, 1, "last")
        rows = [] if transposed else self._rows_of(b, matrix, feature, e.lanes, last, row_bytes)

        def numbers(k: Value) -> Value:
            if transposed:
                return b.masked_load(e.vector, b.at(b.at(matrix, b.mul(k, row_bytes), "i8"), feature, e.type), mask, "weights")
            return b.select(mask, self._column(b, rows, k), const(e.vector, 0.0), "weights")

        int8.pack(b, e, numbers, b.at(target, b.mul(column.index, e.panel_row), "i8", "target"), depth, k_bytes)
        b.end(column)

    def _pack_columns(self, b: Function, target: Value, rows: list[Value], mask: Value, depth: Value, k_bytes: Value) -> None:
        """One vector of a number of each row (zero where the mask is not set) for each k, square after square; then their
        product with zeros.
        """
        e = self.element
        zero, none = const(e.vector, 0.0), no_weights(e)
        features = e.lanes * e.together
        whole = b.mul(b.binary("sdiv", depth, i64(features)), features, "whole")
        square = b.loop("square", 0, whole, features, [("of_zeros", zero)])
        (of_zeros,) = square.values
        loaded = [load_weights(b, e, b.at(row, square.index, e.type)) for row in rows]
        to = b.at(target, b.mul(steps_of(b, e, square.index), k_bytes), "i8", "to")
        for number, value in enumerate(transposed_square(b, loaded)):
            value = b.select(mask, value, none)
            of_zeros = times_zeros(b, e, value, of_zeros)
            b.store(value, b.at(to, b.mul(k_bytes, number), "i8"), e.panel_row)
        k = b.loop("k", whole, depth, e.together, [("of_zeros", b.end(square, [of_zeros])[0])])
        value = self._column(b, rows, k.index)
        if e.pairs:
            second = b.minimum(b.add(k.index, 1), b.sub(depth, 1), "second")
            is_there = b.compare("ne", second, k.index, "is_there")
            value = paired(b, e, value, b.select(is_there, self._column(b, rows, second), zero))
        value = b.select(mask, value, none)
        b.store(value, b.at(target, b.mul(steps_of(b, e, k.index), k_bytes), "i8"), e.panel_row)
        (of_zeros,) = b.end(k, [times_zeros(b, e, value, k.values[0])])
        of_zeros = paired(b, e, of_zeros, zero) if e.pairs else of_zeros
        b.store(of_zeros, b.at(target, b.mul(steps_of(b, e, depth), k_bytes), "i8"), e.panel_row)

    def _column(self, b: Function, rows: list[Value], k: Value) -> Value:
        """A vector of the number at k of each row."""
        e = self.element
        value = Value("poison", e.vector)
        for lane, row in enumerate(rows):
            one = b.load(e.type, b.at(row, k, e.type), "weight")
            value = b.value(e.vector, f"insertelement {value.typed}, {one.typed}, i64 {lane}", "weights")
        return value

    def add_bias(self) -> str:
        """`void(ptr pack, ptr bias, i64 size, i64 panels, i64 first)`: pack = bias, or += bias unless `first`; zero beyond
        `size`.
        """
        name = "pack_bias"
        b = self.function(
            name,
            [("ptr noalias", "pack"), ("ptr noalias readonly", "bias"), ("i64", "size"), ("i64", "panels"), ("i64", "first")],
        )
        if b is None:
            return name
        pack, bias, size, panels, first = b.arguments
        e = self.element
        begins = b.compare("ne", first, i64(0), "begins")
        panel = b.loop("panel", 0, panels)
        feature = b.mul(panel.index, e.lanes, "feature")
        mask = first_lanes(b, b.sub(size, feature, "left"), e.lanes)
        place = b.at(pack, feature, e.type, "place")
        before = b.select(begins, const(e.vector, 0.0), b.load(e.vector, place, "before", e.panel_row), "before")
        value = b.masked_load(e.vector, b.at(bias, feature, e.type), mask, "bias")
        b.store(b.fadd(before, value), place, e.panel_row)
        b.end(panel)
        b.ret()
        return name

    def state_in(self) -> str:
        """`void(ptr panels, i64 panel bytes, ptr rows or null, i64 row bytes, i64 size, i64 row0, i64 row1, element value)`:
        the caller's rows into panels, or a value for every feature when there are none.
        """
        name = "state_in"
        e = self.element
        parameters = [
            ("ptr noalias", "panels"),
            ("i64", "panel_bytes"),
            ("ptr noalias readonly", "source"),
            *[("i64", n) for n in ("row_bytes", "size", "row0", "row1")],
        ]
        b = self.function(name, [*parameters, (e.type, "value")])
        if b is None:
            return name
        panels, panel_bytes, source, row_bytes, size, row0, row1, value = b.arguments
        given = b.compare("ne", source, NULL, "given")
        spread = b.splat(value, e.lanes, "value")
        row = b.loop("row", row0, row1)
        line = b.at(source, b.mul(row.index, row_bytes), "i8", "line")
        feature = b.loop("feature", 0, size, e.lanes)
        mask = first_lanes(b, b.select(given, b.sub(size, feature.index), i64(0), "left"), e.lanes)
        loaded = b.masked_load(e.vector, b.at(line, feature.index, e.type), mask, "loaded")
        panel = b.at(panels, b.mul(b.binary("sdiv", feature.index, i64(e.lanes)), panel_bytes), "i8", "panel")
        b.store(b.select(given, loaded, spread), b.at(panel, b.mul(row.index, e.panel_row), "i8"), e.panel_row)
        b.end(feature)
        b.end(row)
        b.ret()
        return name

    def state_out(self) -> str:
        """`void(ptr panels, i64 panel bytes, ptr rows or null, i64 row bytes, i64 size, i64 row0, i64 row1)`: panels into the
        caller's rows.
        """
        name = "state_out"
        e = self.element
        parameters = [
            ("ptr noalias readonly", "panels"),
            ("i64", "panel_bytes"),
            ("ptr noalias", "target"),
            *[("i64", n) for n in ("row_bytes", "size", "row0", "row1")],
        ]
        b = self.function(name, parameters)
        if b is None:
            return name
        panels, panel_bytes, target, row_bytes, size, row0, row1 = b.arguments
        stop = b.select(b.compare("ne", target, NULL, "wanted"), row1, row0, "stop")
        row = b.loop("row", row0, stop)
        line = b.at(target, b.mul(row.index, row_bytes), "i8", "line")
        feature = b.loop("feature", 0, size, e.lanes)
        mask = first_lanes(b, b.sub(size, feature.index), e.lanes)
        panel = b.at(panels, b.mul(b.binary("sdiv", feature.index, i64(e.lanes)), panel_bytes), "i8", "panel")
        value = b.load(e.vector, b.at(panel, b.mul(row.index, e.panel_row), "i8"), "value", e.panel_row)
        b.masked_store(value, b.at(line, feature.index, e.type), mask)
        b.end(feature)
        b.end(row)
        b.ret()
        return name

    def scalars(self, outward: bool) -> str:
        """The same for one number a row: `void(ptr ours, ptr theirs or null, i64 row bytes, i64 row0, i64 row1, element
        value)`.
        """
        name = "scalar_state_out" if outward else "scalar_state_in"
        e = self.element
        b = self.function(
            name, [("ptr", "ours"), ("ptr", "theirs"), ("i64", "row_bytes"), ("i64", "row0"), ("i64", "row1"), (e.type, "value")]
        )
        if b is None:
            return name
        ours, theirs, row_bytes, row0, row1, value = b.arguments
        given = b.compare("ne", theirs, NULL, "given")
        if outward:
            row = b.loop("row", row0, b.select(given, row1, row0, "stop"))
            b.store(b.load(e.type, b.at(ours, row.index, e.type)), b.at(theirs, b.mul(row.index, row_bytes), "i8"))
        else:
            fallback = b.at(ours, row0, e.type, "fallback")
            row = b.loop("row", row0, row1)
            at = b.select(given, b.at(theirs, b.mul(row.index, row_bytes), "i8"), fallback, "at")
            b.store(b.select(given, b.load(e.type, at), value), b.at(ours, row.index, e.type))
        b.end(row)
        b.ret()
        return name

    def sum_out(self, adds: bool) -> str:
        """`void(ptr sums, ptr gradient, i64 feature0, i64 feature1)`, for sums of vectors and of numbers."""
        name = "sum_add" if adds else "sum_out"
        e = self.element
        b = self.function(
            name,
            [
                ("ptr noalias readonly", "sums"),
                ("ptr noalias", "gradient"),
                ("i64", "feature0"),
                ("i64", "feature1"),
            ],
        )
        if b is None:
            return name
        sums, gradient, feature0, feature1 = b.arguments
        feature = b.loop("feature", feature0, feature1)
        value = b.load(e.type, b.at(sums, feature.index, e.type), "value")
        place = b.at(gradient, feature.index, e.type, "place")
        b.store(b.fadd(b.load(e.type, place, "before"), value) if adds else value, place)
        b.end(feature)
        b.ret()
        return name


def transposed_square(b: Function, rows: list[Value]) -> list[Value]:
    """As many vectors as they have lanes, transposed: squares of 1, 2, 4, ... lanes change places."""
    lanes, apart = len(rows), 1
    while apart < lanes:
        low = ", ".join(f"i32 {lane + lanes - apart if lane & apart else lane}" for lane in range(lanes))
        high = ", ".join(f"i32 {lane + lanes if lane & apart else lane + apart}" for lane in range(lanes))
        for first in (k for k in range(lanes) if not k & apart):
            pair = rows[first], rows[first + apart]
            rows[first], rows[first + apart] = (
                b.value(pair[0].type, f"shufflevector {pair[0].typed}, {pair[1].typed}, <{lanes} x i32> <{order}>", "transposed")
                for order in (low, high)
            )
        apart *= 2
    return rows
