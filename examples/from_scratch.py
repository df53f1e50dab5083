"""A compiler for recurrent cells, from scratch, in seven parts to be read in order.

A cell is a Python function of one step. Run once on symbols it leaves a graph, and the rest is done to that graph: it is
interpreted, differentiated, split into what waits for the state and what does not, cut into stages, and written out as code,
first in Python, then in LLVM's language. anyrnn does the same with more cells, options and care; here only the last part imports
it. Each part is checked against the one before, or against differences. `python from_scratch.py` runs them all.

Shapes: T steps, N samples, D features of the input, H of the state. A vector of the cell is an array [N, features].
"""

import ctypes
import inspect
import timeit
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

# 1. Tracing
#
# A value of a step is an expression: an op, the expressions that it is made of, and for leaves a label. `make` is the only way
# to get one, and it never makes the same one twice: it looks into a table first. This is called hash-consing. What a cell
# writes down twice is computed once, and two expressions are equal when they are one object. Numbers go up, so operands always
# come before what is made of them.


@dataclass(frozen=True, eq=False)
class Expression:
    """One value of a step."""

    op: str
    inputs: tuple["Expression", ...]
    label: Any
    number: int

    def __add__(self, other):
        return make("add", self, lifted(other))

    def __sub__(self, other):
        return make("subtract", self, lifted(other))

    def __rsub__(self, other):
        return make("subtract", lifted(other), self)

    def __mul__(self, other):
        return make("multiply", self, lifted(other))


KNOWN = {}


def make(op, *inputs, label=None):
    key = op, inputs, label
    if key not in KNOWN:
        KNOWN[key] = Expression(op, inputs, label, len(KNOWN))
    return KNOWN[key]


def lifted(value):
    return value if isinstance(value, Expression) else make("constant", label=float(value))


def sigmoid(a):
    return make("sigmoid", a)


def tanh(a):
    return make("tanh", a)


def affine(gate, **operands):
    """The sum of one matrix product and one bias for each operand. Gate and operand name the parameters: W_rx, b_rx."""
    terms = []
    for name, operand in operands.items():
        terms += [make("product", make("matrix", label=f"W_{gate}{name}"), operand), make("vector", label=f"b_{gate}{name}")]
    return sum(terms[1:], terms[0])


# That is the whole language. Three cells; each takes the input and its states, and gives its new states by name, the first of
# which is its output. The two GRUs differ in one place, which will matter in part 5.


def gru(x, h):
    r = sigmoid(affine("r", x=x, h=h))
    z = sigmoid(affine("z", x=x, h=h))
    n = tanh(affine("n", x=x) + r * affine("n", h=h))
    return {"h": (1 - z) * n + z * h}


def gru_before(x, h):
    r = sigmoid(affine("r", x=x, h=h))
    z = sigmoid(affine("z", x=x, h=h))
    n = tanh(affine("n", x=x, h=r * h))
    return {"h": (1 - z) * n + z * h}


def lstm(x, h, c):
    i = sigmoid(affine("i", x=x, h=h))
    f = sigmoid(affine("f", x=x, h=h))
    g = tanh(affine("g", x=x, h=h))
    o = sigmoid(affine("o", x=x, h=h))
    c = f * c + i * g
    return {"h": o * tanh(c), "c": c}


X = make("input", label="x")


def trace(cell):
    """The new states as expressions, by name. The function runs here, once, and never again."""
    _, *states = inspect.signature(cell).parameters
    return cell(X, *[make("state", label=name) for name in states])


CELLS = {cell.__name__: trace(cell) for cell in (gru, gru_before, lstm)}
assert trace(gru) == CELLS["gru"]  # traced again it is not only alike: it is the same object

# 2. An interpreter, which is the definition
#
# One row for each op says what it means on arrays. To run a graph is to go through its expressions in order. Nothing later may
# change a result of this, whatever it does for speed.

COMPUTE = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "tanh": np.tanh,
    "product": lambda w, v: v @ w.T,  # [H, K] and [N, K] -> [N, H]
    "product_transposed": lambda w, d: d @ w,  # of part 3: [H, K] and [N, H] -> [N, K]
}


def order(wanted, given=()):
    """What there is to compute for the wanted expressions, operands first, where some others are given."""
    found, pending = set(), list(wanted)
    while pending:
        e = pending.pop()
        if e not in found and e not in given and e.inputs:
            found.add(e)
            pending += e.inputs
    return sorted(found, key=lambda e: e.number)


def run(nodes, values):
    """Add the value of each node to those that are given."""
    for e in nodes:
        values[e] = COMPUTE[e.op](*[s.label if s.op == "constant" else values[s] for s in e.inputs])
    return values


def leaves(new, *ops):
    """Those of some kinds that new states are made of, in the order in which the cell names them."""
    nodes = order(new.values())
    return sorted({s for e in nodes for s in e.inputs if s.op in ops}, key=lambda e: e.number)


def first_parameters(new, features, hidden, random):
    shapes = {"matrix": lambda e: (hidden, features if e.label.endswith("x") else hidden), "vector": lambda e: (hidden,)}
    return {e: random.uniform(-1, 1, shapes[e.op](e)) / hidden**0.5 for e in leaves(new, "matrix", "vector")}


def histories(new, x, hidden):
    """Each state before the first step and after every step, [T + 1, N, H]; all are zero."""
    return {name: np.zeros((len(x) + 1, x.shape[1], hidden)) for name in new}


def at(states, t):
    return {make("state", label=name): every[t] for name, every in states.items()}


def forward(new, parameters, x, hidden):
    """[T, N, D] -> the states, [T + 1, N, H] each."""
    nodes, states = order(new.values()), histories(new, x, hidden)
    for t in range(len(x)):
        values = run(nodes, {**parameters, X: x[t], **at(states, t)})
        for name, e in new.items():
            states[name][t + 1] = values[e]
    return states


T, N, D, H = 7, 3, 5, 6
RANDOM = np.random.default_rng(0)
INPUT = RANDOM.normal(size=(T, N, D))
PARAMETERS = {name: first_parameters(new, D, H, RANDOM) for name, new in CELLS.items()}


def gru_by_hand(w, x, h):
    def s(a):
        return 1 / (1 + np.exp(-a))

    r = s(x @ w["W_rx"].T + w["b_rx"] + h @ w["W_rh"].T + w["b_rh"])
    z = s(x @ w["W_zx"].T + w["b_zx"] + h @ w["W_zh"].T + w["b_zh"])
    n = np.tanh(x @ w["W_nx"].T + w["b_nx"] + r * (h @ w["W_nh"].T + w["b_nh"]))
    return (1 - z) * n + z * h


BY_HAND = np.zeros((N, H))
for row in INPUT:
    BY_HAND = gru_by_hand({e.label: array for e, array in PARAMETERS["gru"].items()}, row, BY_HAND)
np.testing.assert_allclose(forward(CELLS["gru"], PARAMETERS["gru"], INPUT, H)["h"][-1], BY_HAND, rtol=1e-12)

# 3. The gradient
#
# Reverse mode goes through the graph from the new states to the leaves. The cotangent of a value is the derivative of the loss
# with respect to it; each op turns the cotangent d of its result y into those of its operands. These are expressions too, made
# by the same `make`: what the forward step has computed is found in the table and shared, and everything that can be done to a
# graph can be done to the gradient's.

PULL = {
    "add": lambda d, y, a, b: (d, d),
    "subtract": lambda d, y, a, b: (d, 0 - d),
    "multiply": lambda d, y, a, b: (d * b, d * a),
    "sigmoid": lambda d, y, a: (d * (y * (1 - y)),),
    "tanh": lambda d, y, a: (d * (1 - y * y),),
}


def adjoint(new):
    """The cotangents of all leaves but matrices; and for each product its matrix, its cotangent and its operand.

    The gradient of a matrix over a sequence is a sum of outer products over all steps and samples. Added up step by step it would
    be T small products; from these pairs, kept in two arrays, it is one large product after the last step.
    """
    found, pairs = {}, []

    def add(e, part):
        found[e] = found[e] + part if e in found else part

    for name, e in new.items():
        add(e, make("cotangent", label=name))
    for e in reversed(order(new.values())):
        if e not in found:
            continue
        if e.op == "product":
            matrix, operand = e.inputs
            pairs.append((matrix, found[e], operand))
            add(operand, make("product_transposed", matrix, found[e]))
        else:
            for operand, part in zip(e.inputs, PULL[e.op](found[e], e, *e.inputs), strict=True):
                add(operand, part)
    return {e: d for e, d in found.items() if not e.inputs and e.op != "constant"}, pairs


def backward(new, parameters, x, states, d_output):
    """The gradients of the input and of all parameters, given that of the output, [T, N, H].

    Only the states were kept: the backward step computes the gates again. Which values to keep and which to make again is a
    choice with a price on both sides, and a pass of its own in anyrnn.
    """
    found, pairs = adjoint(new)
    wanted = [*found.values(), *[e for _, d, operand in pairs for e in (d, operand)]]
    nodes = order(wanted)
    carried = dict.fromkeys(new, 0.0)
    output, kept = next(iter(new)), [None] * len(x)
    for t in reversed(range(len(x))):
        values = {**parameters, X: x[t], **at(states, t)}
        for name in new:
            values[make("cotangent", label=name)] = carried[name] + (d_output[t] if name == output else 0.0)
        kept[t] = run(nodes, values)
        carried = {name: values[found[make("state", label=name)]] for name in new}

    def all_steps(e):
        return np.concatenate([values[e] for values in kept])  # [T * N, features]

    gradients = {e: all_steps(d).sum(0) for e, d in found.items() if e.op == "vector"}
    for matrix, d, operand in pairs:
        gradients[matrix] = gradients.get(matrix, 0) + all_steps(d).T @ all_steps(operand)
    return all_steps(found[X]).reshape(x.shape), gradients


# The check: along some direction, the loss must change as the gradient says.

WEIGHTS = RANDOM.normal(size=(T, N, H))  # the loss is the sum of the outputs, times these


def loss(new, parameters, x):
    return (forward(new, parameters, x, H)["h"][1:] * WEIGHTS).sum()


for name, new in CELLS.items():
    given = {X: INPUT, **PARAMETERS[name]}
    d_input, gradients = backward(new, PARAMETERS[name], INPUT, forward(new, PARAMETERS[name], INPUT, H), WEIGHTS)
    direction = {e: RANDOM.normal(size=array.shape) for e, array in given.items()}
    said = sum((d * direction[e]).sum() for e, d in {X: d_input, **gradients}.items())
    ahead, behind = ({e: array + step * direction[e] for e, array in given.items()} for step in (1e-6, -1e-6))
    seen = (loss(new, ahead, ahead[X]) - loss(new, behind, behind[X])) / 2e-6
    assert abs(said - seen) < 1e-6 * abs(seen), (name, said, seen)

# 4. What need not wait
#
# A recurrent network is slow because each step waits for the one before. But what is made of the input alone is known for all
# steps at the start: the products W_rx x, W_zx x and W_nx x, with their biases. One product of [T * N, D] does the work of T
# products of [N, D], and a large product comes nearer to the processor's peak than a small one. The border is easy to
# find: an expression moves with the state if a state is among what it is made of.


def early(new):
    """The values that no state reaches, where one that moves with the state reads them."""
    nodes, moving = order(new.values()), set()
    for e in nodes:
        if any(s.op == "state" or s in moving for s in e.inputs):
            moving.add(e)
    return list(dict.fromkeys(s for e in nodes if e in moving for s in e.inputs if s.inputs and s not in moving))


def all_at_once(wanted, parameters, x):
    """Their values for all steps, [T, N, H]. The interpreter does not mind that there are T * N samples now."""
    values = run(order(wanted), {**parameters, X: x.reshape(-1, x.shape[-1])})
    return {e: values[e].reshape(*x.shape[:2], -1) for e in wanted}


def forward_hoisted(new, parameters, x, hidden):
    known = all_at_once(early(new), parameters, x)
    nodes, states = order(new.values(), given=known), histories(new, x, hidden)
    for t in range(len(x)):
        values = run(nodes, {**parameters, **{e: every[t] for e, every in known.items()}, **at(states, t)})
        for name, e in new.items():
            states[name][t + 1] = values[e]
    return states


def check_states(found, expected):
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10, atol=1e-12)


EXPECTED = {name: forward(new, PARAMETERS[name], INPUT, H) for name, new in CELLS.items()}
for name, new in CELLS.items():
    check_states(forward_hoisted(new, PARAMETERS[name], INPUT, H), EXPECTED[name])

# 5. Stages
#
# What is left in the loop is of two kinds. Sums, gates and the like go feature by feature: whoever has feature 7 of the operands
# can make feature 7 of the result. A product needs all features of its operand. So a step falls into stages. Each begins with
# products of what is complete by then, and goes on feature by feature, in one loop that writes nothing down in between. At its
# end whoever shares the work has to wait for all others.
#
# The GRU's three products need h, which is complete before the step: one stage. With the reset before the product, one of them
# needs all of r * h, and r comes out of another: two stages, and twice the waiting. The LSTM, with more gates and another state,
# needs one.


class Stage(NamedTuple):
    """A part of a step between two waits."""

    products: dict
    """by operand, the products that need all of it"""
    nodes: list
    """what is made after them, feature by feature"""
    results: list
    """those of the nodes that later stages need, and new states"""


def stages(new):
    nodes = order(new.values(), given=early(new))
    level = {}
    for e in nodes:
        level[e] = max(level.get(s, 0) for s in e.inputs) + (e.op == "product")
    later = {s for e in nodes for s in e.inputs if s in level and level[s] < level[e]}
    found = []
    for k in sorted(set(level.values())):
        products = {}
        for e in nodes:
            if level[e] == k and e.op == "product":
                products.setdefault(e.inputs[1], []).append(e)
        made = [e for e in nodes if level[e] == k and e.op != "product"]
        found.append(Stage(products, made, [e for e in made if e in later or e in new.values()]))
    return found


COUNTS = {name: len(stages(new)) for name, new in CELLS.items()}
print(f"stages: {COUNTS}")
assert COUNTS == {"gru": 1, "gru_before": 2, "lstm": 1}

# 6. Code, first in Python
#
# An interpreter looks each op up at each step. A compiler looks once, and writes down what it found. The products of one operand
# become one call: their matrices lie side by side in an array [products, K, H], and NumPy multiplies by all of them. The rest is
# written as formulas; what is used once needs no name.

TEXT = {"add": "({} + {})", "subtract": "({} - {})", "multiply": "({} * {})", "sigmoid": "sigmoid({})", "tanh": "tanh({})"}


def python_text(new):
    """The source of a function that does all steps."""
    known = early(new)
    uses = Counter(s for e in order(new.values(), given=known) for s in e.inputs)
    names = {X: "x[t]", **{e: f"early{k}[t]" for k, e in enumerate(known)}}
    lines = [f"def steps({', '.join(new)}):", "    for t in range(T):"]

    def text(e):
        if e.op == "constant":
            return str(e.label)
        if not e.inputs:
            return e.label
        return names[e] if e in names else TEXT[e.op].format(*map(text, e.inputs))

    number = 0
    for k, stage in enumerate(stages(new)):
        lines.append(f"        # stage {k + 1}")
        for operand, products in stage.products.items():
            names |= {e: f"product_{e.inputs[0].label[2:]}" for e in products}
            lines.append(f"        [{', '.join(names[e] for e in products)}] = {text(operand)} @ weights{number}")
            number += 1
        for e in stage.nodes:
            if e in stage.results or uses[e] > 1:
                lines.append(f"        value{e.number} = {text(e)}")
                names[e] = f"value{e.number}"
    for name, e in new.items():
        lines.append(f"        {name} = states_{name}[t + 1] = {names[e]}")
    return "\n".join(lines)


def side_by_side(products, parameters):
    return np.stack([parameters[e.inputs[0]].T for e in products])  # [products, K, H]


def forward_python(new, code, parameters, x, hidden):
    known, states = all_at_once(early(new), parameters, x), histories(new, x, hidden)
    names = {"x": x, "T": len(x), "sigmoid": COMPUTE["sigmoid"], "tanh": np.tanh}
    names |= {e.label: array for e, array in parameters.items()}
    names |= {f"early{k}": every for k, every in enumerate(known.values())}
    names |= {f"states_{name}": every for name, every in states.items()}
    groups = [products for stage in stages(new) for products in stage.products.values()]
    names |= {f"weights{k}": side_by_side(products, parameters) for k, products in enumerate(groups)}
    exec(code, names)
    names["steps"](*[every[0] for every in states.values()])
    return states


print(f"\nthe gru as Python:\n{python_text(CELLS['gru'])}\n")
PYTHON = {name: compile(python_text(new), name, "exec") for name, new in CELLS.items()}
for name, new in CELLS.items():
    check_states(forward_python(new, PYTHON[name], PARAMETERS[name], INPUT, H), EXPECTED[name])

# The same for the processor
#
# The formulas above still make an array for every operation, by one call of NumPy each. So the loop over samples and features
# shall be ours: for each element, load what is needed, compute in registers, store the results. That is one small function for
# each stage, in the language of LLVM, which turns it into machine code here and now. In that language each value is assigned once
# and has a name (%v21), as our expressions have numbers: it is the graph once more, as text. The products stay with NumPy.

LLVM = {
    "add": "fadd double {}, {}",
    "subtract": "fsub double {}, {}",
    "multiply": "fmul double {}, {}",
    "sigmoid": "call double @sigmoid(double {})",
    "tanh": "call double @tanh(double {})",
}
PRELUDE = """
declare double @exp(double)
declare double @tanh(double)

define internal double @sigmoid(double %a) {
  %minus = fneg double %a
  %power = call double @exp(double %minus)
  %sum = fadd double 1.0, %power
  %result = fdiv double 1.0, %sum
  ret double %result
}
"""


def llvm_text(name, stage, moving):
    """A function of the step, how many elements it has, how many features, and the address of each array; and those arrays.

    Element i of a step is element t * elements + i of an array that moves from step to step, [T, N, H]; of a product's result,
    [N, H], it is element i, and of a vector, [H], i % features.
    """

    def place(e):
        return "%moved" if e in moving else "%feature" if e.op == "vector" else "%i"

    def computed(e):
        return LLVM[e.op].format(*[str(s.label) if s.op == "constant" else f"%v{s.number}" for s in e.inputs])

    sources = dict.fromkeys(s for e in stage.nodes for s in e.inputs if s not in stage.nodes and s.op != "constant")
    arrays = [*sources, *stage.results]
    lines = [f"%p{e.number} = getelementptr double, ptr %a{e.number}, i64 {place(e)}" for e in arrays]
    lines += [f"%v{e.number} = load double, ptr %p{e.number}" for e in sources]
    lines += [f"%v{e.number} = {computed(e)}" for e in stage.nodes]
    lines += [f"store double %v{e.number}, ptr %p{e.number}" for e in stage.results]
    body = "\n  ".join(lines)
    text = f"""
define void @{name}(i64 %t, i64 %elements, i64 %features, {", ".join(f"ptr %a{e.number}" for e in arrays)}) {{
before:
  %before_t = mul i64 %t, %elements
  br label %each
each:
  %i = phi i64 [0, %before], [%next, %each]
  %moved = add i64 %before_t, %i
  %feature = urem i64 %i, %features
  {body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %elements
  br i1 %more, label %each, label %after
after:
  ret void
}}
"""
    return text, arrays


def machine_code(text):
    """Compile a module for this processor. Its functions live as long as what is returned."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    # Features are asked for and not the processor's name, which virtual machines get wrong. The engine owns the machine: each
    # needs its own.
    flags = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(features=flags, opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


class Native(NamedTuple):
    """The code of a cell's stages. It knows no sizes: others compile nothing."""

    engine: Any
    kernels: list
    """by stage, the function's address and the arrays that it takes"""


def native(new):
    cut = stages(new)
    moving = {X, *early(new), *[e for stage in cut for e in stage.results], *leaves(new, "state")}
    written = [llvm_text(f"stage{k}", stage, moving) for k, stage in enumerate(cut)]
    engine = machine_code(PRELUDE + "".join(text for text, _ in written))
    return Native(engine, [(engine.get_function_address(f"stage{k}"), taken) for k, (_, taken) in enumerate(written)])


def forward_llvm(new, code, parameters, x, hidden):
    states, cut = histories(new, x, hidden), stages(new)
    arrays = {X: x, **parameters, **all_at_once(early(new), parameters, x)}
    arrays |= {e: np.empty((*x.shape[:2], hidden)) for stage in cut for e in stage.results}
    # A state's history is two arrays: the values before each step, and those after it, one step further on.
    arrays |= {make("state", label=name): every[:-1] for name, every in states.items()}
    arrays |= {e: states[name][1:] for name, e in new.items()}
    calls = []
    for stage, (address, taken) in zip(cut, code.kernels, strict=True):
        products = []
        for operand, group in stage.products.items():
            sums = np.empty((len(group), x.shape[1], hidden))
            arrays |= zip(group, sums, strict=True)
            products.append((arrays[operand], side_by_side(group, parameters), sums))
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * len(taken))(address)
        calls.append((products, function, [x.shape[1] * hidden, hidden, *[arrays[e].ctypes.data for e in taken]]))
    for t in range(len(x)):
        for products, function, fixed in calls:
            for operand, weights, sums in products:
                np.matmul(operand[t], weights, out=sums)
            function(t, *fixed)
    return states


NATIVE = {name: native(new) for name, new in CELLS.items()}
for name, new in CELLS.items():
    check_states(forward_llvm(new, NATIVE[name], PARAMETERS[name], INPUT, H), EXPECTED[name])

# What it was good for: the times of whole calls, the best of a few, as multiples of the interpreter's speed. For few samples and
# features what is spared is Python's own time. For more of them little or nothing is left of the gain: the C library's exp and
# tanh take one number at a time, and NumPy's several. anyrnn writes these as polynomials of whole vector registers, lets a team
# of threads share the features, and does the products itself, with weights that stay in the cache from step to step. And the
# gradient is a graph like any other: its steps are hoisted, staged and compiled in the same way.


def speeds(new, name, samples, hidden):
    x, parameters = RANDOM.normal(size=(200, samples, 16)), first_parameters(new, 16, hidden, RANDOM)
    ways = {
        "interpreter": lambda: forward(new, parameters, x, hidden),
        "hoisted": lambda: forward_hoisted(new, parameters, x, hidden),
        "Python": lambda: forward_python(new, PYTHON[name], parameters, x, hidden),
        "LLVM": lambda: forward_llvm(new, NATIVE[name], parameters, x, hidden),
    }
    rounds = [{way: timeit.timeit(call, number=1) for way, call in ways.items()} for _ in range(7)]
    best = {way: min(seconds[way] for seconds in rounds) for way in ways}
    ratios = ", ".join(f"{way} {best['interpreter'] / seconds:.1f}" for way, seconds in best.items())
    print(f"speed of the {name}, 200 steps of {samples} x {hidden}: {ratios}")


speeds(CELLS["gru"], "gru", samples=1, hidden=32)
speeds(CELLS["gru"], "gru", samples=16, hidden=64)

# 7. The same numbers
#
# The package has these cells too. Its parameters are ours, with the rows of all gates of an operand in one matrix, as torch.nn
# has them.


def stacked(new, arrays):
    """By the package's names."""
    names = {"W_x": "weight_ih_l0", "W_h": "weight_hh_l0", "b_x": "bias_ih_l0", "b_h": "bias_hh_l0"}
    found = {name: [] for name in names.values()}
    for e in leaves(new, "matrix", "vector"):
        found[names[e.label[:2] + e.label[-1]]].append(arrays[e])
    return {name: np.concatenate(blocks) for name, blocks in found.items()}


def check_package():
    import anyrnn

    for name, new in CELLS.items():
        layer = anyrnn.Recurrent(name, D, H, dtype="float64")
        layer.parameters.update(stacked(new, PARAMETERS[name]))
        output, _, reserve = layer.forward_training(INPUT)
        np.testing.assert_allclose(output, EXPECTED[name]["h"][1:], rtol=1e-10, atol=1e-12)
        d_input, _, gradients = layer.backward(reserve, WEIGHTS)
        ours, ours_by_parameter = backward(new, PARAMETERS[name], INPUT, EXPECTED[name], WEIGHTS)
        np.testing.assert_allclose(d_input, ours, rtol=1e-9, atol=1e-11)
        for key, array in stacked(new, ours_by_parameter).items():
            np.testing.assert_allclose(gradients[key], array, rtol=1e-9, atol=1e-11)
    print("anyrnn gives the same numbers")


check_package()
