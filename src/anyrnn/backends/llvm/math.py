"""Elementwise functions as straight-line LLVM code: float or double, scalar or vectors of any width.

No calls into a libm, no branches, no tables in memory, no fast-math: a lane's bits depend on its input alone, not on the
vector that it sits in. NaN in is NaN out. The sign of a zero result is not kept (`tanh(-0.0)` is `0.0`).

Largest error in units in the last place. Float was run over all its numbers, double over a quarter of a million; the second
column of each is what `tests/backends/llvm/test_math.py` demands. Float's ranges come first, double's in brackets.

    function    float        double       range, and what lies outside
    exp         1.99  2      0.83  1      0 below -86.99 (-708.05); infinite where the true value is
    log         0.95  1      1.22  1.5    numbers below the smallest normal one count as 0: -infinity; NaN below 0
    tanh        2.54  3      2.42  3
    sigmoid     2.56  3      2.26  3      0 below -88.03 (-709.1), where the true value is no normal number any more
    softplus    2.99  3      2.73  3      0 below -87.68 (-708.7)
    sin, cos    1.81  2      1.64  2      to abs(x) = 1e4 (1e9); to 2**21 (2**50) 3e-6 (5e-15) absolute; then NaN
    the others  exact

All exponentials are 2**n * e**r, n being read from the low bits of x/ln 2 + 1.5 * 2**mantissa. tanh, sigmoid and softplus take
e**r = (1 + tanh(r/2)) / (1 - tanh(r/2)), which puts the reduction and the function itself under one division. For three
sigmoids and two tanh of 16 lanes on Zen 4 (AVX-512) this takes 61 cycles; rational tanh (9/8 degrees) with a polynomial in
sigmoid takes 65 and has twice the error, and reciprocal estimates with a Newton step in place of the divisions 72: the divider
works beside the other units.

Coefficients: Remez exchange in mpmath at 50 digits on the reduced range, the coefficients rounded one after another to the
type, the first one first, and the remaining ones fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from anyrnn.backends.llvm.builder import Function, Value, const, element_of, lanes_of, vector

LN2 = Fraction("0.6931471805599453094172321214581765680755001343602552541206800094933936219696947156058633")
PI = Fraction("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348")


def _pieces(value: Fraction, *bits: int) -> tuple[float, ...]:
    """Numbers of so many bits each whose sum is `value`."""
    pieces = []
    for width in bits:
        scale = Fraction(2) ** (width - 1 - _exponent(value))
        pieces.append(round(value * scale) / scale)
        value -= pieces[-1]
    return tuple(float(piece) for piece in pieces)


def _exponent(value: Fraction) -> int:
    """Floor of the binary logarithm of a magnitude."""
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return exponent if abs(value) >= Fraction(2) ** exponent else exponent - 1


@dataclass(frozen=True)
class Format:
    """What the functions know about an element type. Polynomials are lowest degree first."""

    integer: str
    mantissa: int  # bits stored
    bias: int
    ln2: tuple[float, ...]  # n times the first is exact
    pi: tuple[float, ...]  # for machines with a fused multiply-add
    pi_short: tuple[float, ...]  # n times all but the last is exact
    tanh: tuple[float, ...]  # (tanh(y) - y) / y^3 in y^2, abs(y) <= ln2/4
    exp: tuple[float, ...]  # 2 exp(r) in r, abs(r) <= ln2/2
    log: tuple[float, ...]  # (2 atanh(s) - 2 s) / s^3 in s^2, abs(s) <= 0.1716
    atanh: tuple[float, ...]  # (atanh(w) - w) / w^3 in w^2, 0 <= w <= 1/3
    sin: tuple[float, ...]  # (sin(r) - r) / r^3 in r^2, abs(r) <= pi/2
    tanh_limit: float
    exp_limits: tuple[float, float]  # rounded quotients by ln2: the power of two just below the normal ones, and 2^(bias + 1)
    sigmoid_limits: tuple[float, float]  # of x; of -x the rounded quotients: 2^bias and the power just below the normal ones

    @property
    def most_turned(self) -> float:
        """From there on n has no bits left for what is near x."""
        return 2.0 ** (self.mantissa - 2)

    @property
    def magic(self) -> float:
        """x + magic rounds x to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa


FORMATS = {
    "float": Format(
        integer="i32",
        mantissa=23,
        bias=127,
        ln2=_pieces(LN2, 10, 24),
        pi=_pieces(PI, 24, 24, 24),
        pi_short=_pieces(PI, 11, 11, 11, 24),
        tanh=(-0.33331275, 0.13110718),
        exp=(2.0, 1.9999994, 0.99998295, 0.33335316, 0.08379622, 0.016577719),
        log=(0.66666776, 0.39977583, 0.29871064),
        atanh=(0.3333321, 0.20010719, 0.14001523, 0.14003293),
        sin=(-0.1666666, 0.008333069, -0.00019809777, 2.6060952e-06),
        tanh_limit=9.1,
        exp_limits=(-87.3, 89.0),
        sigmoid_limits=(-88.2, 88.0),
    ),
    "double": Format(
        integer="i64",
        mantissa=52,
        bias=1023,
        ln2=_pieces(LN2, 40, 53),
        pi=_pieces(PI, 53, 53, 53),
        pi_short=_pieces(PI, 33, 33, 33, 53),
        tanh=(
            *(-0.3333333333333249, 0.133333333327847, -0.05396825278311881),
            *(0.021869370768418512, -0.00885730984286525, 0.003444843952948488),
        ),
        exp=(
            *(2.0, 2.0, 1.0000000000000033, 0.3333333333333361, 0.08333333333295798, 0.016666666666410007, 0.002777777791438904),
            *(0.0003968254041442208, 4.960295796684661e-05, 5.511380451340035e-06, 5.527056739314758e-07, 5.0465825605817966e-08),
        ),
        log=(
            *(0.6666666666666734, 0.39999999999416813, 0.2857142874204209, 0.22222198596071333),
            *(0.181835637281323, 0.15314052216271545, 0.14796057105844382),
        ),
        atanh=(
            *(0.3333333333333885, 0.19999999998024132, 0.14285714529070354, 0.11111096449382347, 0.09091407091845273),
            *(0.07682147321096636, 0.06793157161890456, 0.049514287944088645, 0.08869807757265091),
        ),
        sin=(
            *(-0.16666666666666666, 0.008333333333333207, -0.00019841269841212463, 2.7557319211563633e-06),
            *(-2.5052106903624885e-08, 1.6058940950089625e-10, -7.643017720921865e-13, 2.721399275214686e-15),
        ),
        tanh_limit=19.1,
        exp_limits=(-708.3, 710.0),
        sigmoid_limits=(-709.2, 709.0),
    ),
}


def _format(x: Value) -> Format:
    return FORMATS[element_of(x.type)]


# pieces


def _at_least(b: Function, low: float, x: Value, name: str) -> Value:
    """max(low, x) in the operand order in which x86 hands a NaN through, so that it stays one instruction."""
    bound = const(x.type, low)
    return b.select(b.compare("ogt", bound, x, f"{name}.test"), bound, x, name)


def _at_most(b: Function, high: float, x: Value, name: str) -> Value:
    bound = const(x.type, high)
    return b.select(b.compare("olt", bound, x, f"{name}.test"), bound, x, name)


def _clamp(b: Function, x: Value, limits: tuple[float, float], name: str) -> Value:
    return _at_most(b, limits[1], _at_least(b, limits[0], x, f"{name}.above"), f"{name}.clamped")


def _polynomial(b: Function, x: Value, coefficients: Sequence[float], name: str) -> Value:
    result = const(x.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = b.fma(result, x, const(x.type, coefficient), name)
    return result


def _odd(b: Function, x: Value, cubic: Sequence[float], name: str) -> Value:
    """x + x^3 P(x^2), the sum being the last rounding."""
    square = b.fmul(x, x, f"{name}.square")
    tail = _polynomial(b, square, cubic, f"{name}.tail")
    return b.fma(b.fmul(x, square, f"{name}.cube"), tail, x, name)


def _round(b: Function, x: Value, factor: Fraction, offset: int, name: str) -> tuple[Value, Value]:
    """n = round(x * factor), and a value whose low bits hold n + offset."""
    magic = _format(x).magic + offset
    shifted = b.fma(x, const(x.type, float(factor)), const(x.type, magic), f"{name}.shifted")
    return shifted, b.fsub(shifted, const(x.type, magic), f"{name}.n")


def _reduce(b: Function, x: Value, n: Value, parts: Sequence[float], name: str) -> Value:
    """x + n * sum(parts), largest part first."""
    for part in parts:
        x = b.fma(n, const(x.type, part), x, f"{name}.reduced")
    return x


def _integer(x: Value) -> str:
    element = _format(x).integer
    return vector(element, lanes_of(x.type)) if x.type.startswith("<") else element


def _bits(b: Function, x: Value, name: str) -> Value:
    return b.cast("bitcast", x, _integer(x), f"{name}.bits")


def _power(b: Function, shifted: Value, name: str) -> Value:
    """The number whose biased exponent stands in the low bits of `shifted`."""
    bits = _bits(b, shifted, f"{name}.shifted")
    field = b.binary("shl", bits, const(bits.type, _format(shifted).mantissa), f"{name}.field")
    return b.cast("bitcast", field, shifted.type, f"{name}.power")


# exponentials


def exp(b: Function, x: Value, name: str) -> Value:
    shifted, r, format = _exp_reduced(b, x, name)
    return b.fmul(_polynomial(b, r, format.exp, f"{name}.mantissa"), _power(b, shifted, name), name)


def _exp_reduced(b: Function, x: Value, name: str) -> tuple[Value, Value, Format]:
    """x = n ln2 + r, with n - 1 for a biased exponent: 2^n may be infinite, and is 0 one step before it ceases to be normal."""
    format = _format(x)
    x = _clamp(b, x, format.exp_limits, name)
    shifted, n = _round(b, x, 1 / LN2, format.bias - 1, name)
    return shifted, _reduce(b, x, n, [-part for part in format.ln2], name), format


def tanh(b: Function, x: Value, name: str) -> Value:
    """With 2x = n ln2 + 2y and t = tanh y: (2^n (1+t) - (1-t)) / (2^n (1+t) + (1-t)), which for n = 0 is t itself."""
    format = _format(x)
    one = const(x.type, 1.0)
    x = _clamp(b, x, (-format.tanh_limit, format.tanh_limit), name)
    shifted, n = _round(b, x, 2 / LN2, format.bias, name)
    y = _reduce(b, x, n, [-float(LN2 / 2)], name)
    t = _odd(b, y, format.tanh, f"{name}.t")
    power = _power(b, shifted, name)
    less, more = b.fsub(power, one, f"{name}.less"), b.fadd(power, one, f"{name}.more")
    return b.fdiv(b.fma(t, more, less, f"{name}.numerator"), b.fma(t, less, more, f"{name}.denominator"), name)


def sigmoid(b: Function, x: Value, name: str) -> Value:
    """1 / (1 + e^-x). The sum overflows, and the result is 0, where it would cease to be a normal number."""
    power, over, under = _negative_exp(b, _clamp(b, x, _format(x).sigmoid_limits, name), name)
    return b.fdiv(under, b.fma(power, over, under, f"{name}.denominator"), name)


def softplus(b: Function, x: Value, name: str) -> Value:
    """log(1 + e^x) = max(x, 0) + 2 atanh(w), w = e / (2 + e), e = e^-abs(x)."""
    format = _format(x)
    magnitude = _at_most(b, format.sigmoid_limits[1], absolute(b, x, f"{name}.abs"), f"{name}.clamped")
    power, over, under = _negative_exp(b, magnitude, name)
    two = const(x.type, 2.0)
    scaled = b.fmul(power, over, f"{name}.scaled")
    w = b.fdiv(scaled, b.fma(two, under, scaled, f"{name}.denominator"), f"{name}.w")
    return b.fma(two, _odd(b, w, format.atanh, f"{name}.atanh"), relu(b, x, f"{name}.relu"), name)


def _negative_exp(b: Function, x: Value, name: str) -> tuple[Value, Value, Value]:
    """e^-x as power * over / under, where under is about 2."""
    format = _format(x)
    shifted, n = _round(b, x, -1 / LN2, format.bias, name)
    r = _reduce(b, x, n, format.ln2, name)
    t = _odd(b, r, [c / 4 ** (k + 1) for k, c in enumerate(format.tanh)], f"{name}.t")  # 2 tanh(r/2)
    two = const(x.type, 2.0)
    return _power(b, shifted, name), b.fsub(two, t, f"{name}.over"), b.fadd(two, t, f"{name}.under")


# logarithms


def log(b: Function, x: Value, name: str) -> Value:
    mantissa = _format(x).mantissa
    field, base = _exponent_field(b, x, name)
    fraction = b.binary("and", field, const(field.type, (1 << mantissa) - 1), f"{name}.fraction")
    scaled = b.cast("bitcast", b.add(fraction, base, f"{name}.scaled"), x.type, f"{name}.scaled")
    f = b.fsub(scaled, const(x.type, 1.0), f"{name}.f")
    return _log_edges(b, x, _log_reduced(b, f, field, name), name)


def _exponent_field(b: Function, x: Value, name: str) -> tuple[Value, Value]:
    """x = 2^k m, m from sqrt(1/2) to sqrt(2): k + bias stands above the mantissa of the first value, m - sqrt(1/2) in it."""
    format = _format(x)
    one = format.bias << format.mantissa
    root = one - (1 << format.mantissa) + int((2**0.5 - 1) * (1 << format.mantissa))
    bits = _bits(b, x, name)
    return b.add(bits, one - root, f"{name}.field"), const(bits.type, root)


def _log_reduced(b: Function, f: Value, field: Value, name: str) -> Value:
    """k ln2 + log(1 + f), where log(1 + f) = 2 atanh(s) = 2s + s^3 P = f - s (f - s^2 P), s = f / (2 + f)."""
    format = _format(f)
    shift = const(field.type, format.mantissa)
    whole = b.binary("lshr", field, shift, f"{name}.whole")
    whole = b.binary("or", whole, const(field.type, (format.bias + format.mantissa) << format.mantissa), f"{name}.whole")
    k = b.fsub(b.cast("bitcast", whole, f.type, f"{name}.whole"), const(f.type, 2.0**format.mantissa + format.bias), f"{name}.k")
    s = b.fdiv(f, b.fadd(f, const(f.type, 2.0), f"{name}.denominator"), f"{name}.s")
    square = b.fmul(s, s, f"{name}.square")
    tail = b.fma(b.fneg(square, f"{name}.minus"), _polynomial(b, square, format.log, f"{name}.tail"), f, f"{name}.tail")
    reduced = b.fma(b.fneg(s, f"{name}.minus"), tail, f, f"{name}.reduced")
    return b.fma(k, const(f.type, float(LN2)), reduced, f"{name}.inner")


def _log_edges(b: Function, x: Value, inner: Value, name: str) -> Value:
    format = _format(x)
    infinite, zero = const(x.type, float("inf")), const(x.type, 0.0)
    least = const(x.type, 2.0 ** (1 - format.bias))
    inner = b.select(b.compare("olt", x, infinite, f"{name}.finite"), inner, x, f"{name}.inner")
    edge = b.select(
        b.compare("olt", x, zero, f"{name}.negative"), const(x.type, float("nan")), const(x.type, float("-inf")), f"{name}.edge"
    )
    return b.select(b.compare("olt", x, least, f"{name}.tiny"), edge, inner, name)


# circular functions


def sin(b: Function, x: Value, name: str) -> Value:
    """(-1)^n sin(x - n pi)."""
    shifted, n = _round(b, x, 1 / PI, 0, name)
    return _alternating(b, x, n, shifted, name)


def cos(b: Function, x: Value, name: str) -> Value:
    """(-1)^n sin(x - (n - 1/2) pi)."""
    magic = const(x.type, _format(x).magic)
    half = const(x.type, 0.5)
    turns = b.fma(x, const(x.type, float(1 / PI)), half, f"{name}.turns")
    shifted = b.fadd(turns, magic, f"{name}.shifted")
    n = b.fsub(b.fsub(shifted, magic, f"{name}.n"), half, f"{name}.n")
    return _alternating(b, x, n, shifted, name)


def _alternating(b: Function, x: Value, n: Value, shifted: Value, name: str) -> Value:
    format = _format(x)
    r = _reduce(b, x, n, [-part for part in (format.pi if b.module.fused else format.pi_short)], name)
    near = b.compare("olt", absolute(b, x, f"{name}.abs"), const(x.type, format.most_turned), f"{name}.near")
    r = b.select(near, r, const(x.type, float("nan")), f"{name}.known")
    result = _odd(b, r, format.sin, f"{name}.sine")
    bits = _bits(b, shifted, f"{name}.shifted")
    sign = b.binary("shl", bits, const(bits.type, {"i32": 31, "i64": 63}[format.integer]), f"{name}.sign")
    return b.cast("bitcast", b.binary("xor", _bits(b, result, name), sign, f"{name}.signed"), x.type, name)


# the rest


def sqrt(b: Function, x: Value, name: str) -> Value:
    return b.intrinsic("llvm.sqrt", x.type, [x], name)


def minimum(b: Function, x: Value, y: Value, name: str) -> Value:
    return _extreme(b, "olt", x, y, name)


def maximum(b: Function, x: Value, y: Value, name: str) -> Value:
    return _extreme(b, "ogt", x, y, name)


def _extreme(b: Function, predicate: str, x: Value, y: Value, name: str) -> Value:
    """x86's instruction gives y where either is NaN, so that y must take over a NaN of x first; a constant x has none."""
    if not y.startswith("%"):
        x, y = y, x
    if x.startswith("%"):
        y = b.select(b.compare("uno", x, x, f"{name}.nan"), x, y, f"{name}.other")
    return b.select(b.compare(predicate, x, y, f"{name}.test"), x, y, name)


def relu(b: Function, x: Value, name: str) -> Value:
    return _at_least(b, 0.0, x, name)


def absolute(b: Function, x: Value, name: str) -> Value:
    return b.intrinsic("llvm.fabs", x.type, [x], name)


def floor(b: Function, x: Value, name: str) -> Value:
    return b.intrinsic("llvm.floor", x.type, [x], name)


def sign(b: Function, x: Value, name: str) -> Value:
    """-1, 0, 1, or NaN, as in NumPy."""
    zero, one = const(x.type, 0.0), const(x.type, 1.0)
    signed = b.intrinsic("llvm.copysign", x.type, [one, x], f"{name}.signed")
    return b.select(b.compare("one", x, zero, f"{name}.test"), signed, x, name)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "sin": sin,
    "cos": cos,
    "sqrt": sqrt,
    "minimum": minimum,
    "maximum": maximum,
    "relu": relu,
    "abs": absolute,
    "floor": floor,
    "sign": sign,
}
