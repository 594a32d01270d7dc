"""Operators and dtypes in, SPIR-V instructions out: scalar arithmetic, casts, elementary functions.

Signed and unsigned integers and floats differ in the instruction, not in the operands. What GLSL's
set lacks (erf, log1p, sigmoid, ...) is composed here, to float32 accuracy.
"""

from __future__ import annotations

from collections.abc import Callable

from aotrain.targets.spirv.module import BITS, Module
from aotrain.targets.spirv.opcodes import Glsl, Op

#: TIR node -> instruction for floats, signed and unsigned integers.
BINARY: dict[str, tuple[Op, Op, Op]] = {
    "Add": (Op.F_ADD, Op.I_ADD, Op.I_ADD),
    "Sub": (Op.F_SUB, Op.I_SUB, Op.I_SUB),
    "Mul": (Op.F_MUL, Op.I_MUL, Op.I_MUL),
    "Div": (Op.F_DIV, Op.S_DIV, Op.U_DIV),
    "Mod": (Op.F_REM, Op.S_REM, Op.U_MOD),
}
COMPARE: dict[str, tuple[Op, Op, Op]] = {
    "EQ": (Op.F_ORD_EQUAL, Op.I_EQUAL, Op.I_EQUAL),
    "NE": (Op.F_UNORD_NOT_EQUAL, Op.I_NOT_EQUAL, Op.I_NOT_EQUAL),
    "LT": (Op.F_ORD_LESS_THAN, Op.S_LESS_THAN, Op.U_LESS_THAN),
    "LE": (Op.F_ORD_LESS_THAN_EQUAL, Op.S_LESS_THAN_EQUAL, Op.U_LESS_THAN_EQUAL),
    "GT": (Op.F_ORD_GREATER_THAN, Op.S_GREATER_THAN, Op.U_GREATER_THAN),
    "GE": (Op.F_ORD_GREATER_THAN_EQUAL, Op.S_GREATER_THAN_EQUAL, Op.U_GREATER_THAN_EQUAL),
}
BOOLEAN = {"EQ": Op.LOGICAL_EQUAL, "NE": Op.LOGICAL_NOT_EQUAL}
BITWISE: dict[str, tuple[Op, Op]] = {  # signed, unsigned
    "bitwise_and": (Op.BITWISE_AND, Op.BITWISE_AND),
    "bitwise_or": (Op.BITWISE_OR, Op.BITWISE_OR),
    "bitwise_xor": (Op.BITWISE_XOR, Op.BITWISE_XOR),
    "shift_left": (Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_LEFT_LOGICAL),
    "shift_right": (Op.SHIFT_RIGHT_ARITHMETIC, Op.SHIFT_RIGHT_LOGICAL),
}
UNARY: dict[str, Glsl] = {
    "exp": Glsl.EXP, "exp2": Glsl.EXP2, "log": Glsl.LOG, "log2": Glsl.LOG2, "sqrt": Glsl.SQRT,
    "rsqrt": Glsl.INVERSE_SQRT, "sin": Glsl.SIN, "cos": Glsl.COS, "tan": Glsl.TAN,
    "asin": Glsl.ASIN, "acos": Glsl.ACOS, "atan": Glsl.ATAN, "sinh": Glsl.SINH,
    "cosh": Glsl.COSH, "asinh": Glsl.ASINH, "acosh": Glsl.ACOSH, "atanh": Glsl.ATANH,
    "floor": Glsl.FLOOR, "ceil": Glsl.CEIL, "trunc": Glsl.TRUNC, "round": Glsl.ROUND_EVEN,
    "nearbyint": Glsl.ROUND_EVEN,
}  # fmt: skip

#: erf(x) = x p(x^2) / q(x^2) on [-4, 4], beyond which float32 has 1 (Eigen's coefficients).
ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def family(dtype: str) -> int:
    """0 float, 1 signed, 2 unsigned: the column of the tables."""
    return 0 if dtype.startswith("float") else 2 if dtype.startswith("uint") else 1


class Arithmetic:
    """Scalar operations on ids; equal ones in a scope are computed once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._known: list[dict[tuple, int]] = [{}]
        self._composed: dict[str, Callable[..., int]] = {
            "erf": self._erf, "tanh": self._tanh, "sigmoid": self._sigmoid, "log1p": self._log1p,
            "pow": self._pow, "fabs": self._abs, "fma": self._fma, "fmod": self._fmod,
            "log10": self._log10, "exp10": self._exp10,
        }  # fmt: skip

    def enter(self) -> None:
        """Begin a block whose values are not known outside."""
        self._known.append({})

    def leave(self) -> None:
        """End it."""
        self._known.pop()

    def pure(self, op: Op, dtype: str, *operands: int) -> int:
        """The result of an instruction without effects."""
        key = (op, dtype, *operands)
        for known in self._known:
            if key in known:
                return known[key]
        found = self.module.result(op, self.module.type(dtype), *operands)
        self._known[-1][key] = found
        return found

    def constant(self, value: float, dtype: str) -> int:
        """A constant."""
        return self.module.constant(value, dtype)

    def binary(self, name: str, dtype: str, a: int, b: int) -> int:
        """`name` of BINARY."""
        return self.pure(BINARY[name][family(dtype)], dtype, a, b)

    def compare(self, name: str, dtype: str, a: int, b: int) -> int:
        """`name` of COMPARE, on operands of `dtype`."""
        op = BOOLEAN[name] if dtype == "bool" else COMPARE[name][family(dtype)]
        return self.pure(op, "bool", a, b)

    def select(self, dtype: str, condition: int, a: int, b: int) -> int:
        """condition ? a : b."""
        return self.pure(Op.SELECT, dtype, condition, a, b)

    def larger(self, dtype: str, a: int, b: int) -> int:
        """a > b ? a : b, as TVM's CPU code has it: a NaN in `a` is lost, one in `b` stays."""
        return self.select(dtype, self.compare("GT", dtype, a, b), a, b)

    def smaller(self, dtype: str, a: int, b: int) -> int:
        """a < b ? a : b."""
        return self.select(dtype, self.compare("LT", dtype, a, b), a, b)

    def floor_div(self, dtype: str, a: int, b: int) -> int:
        """Rounds to minus infinity; `b` is above 0."""
        rest = self.floor_mod(dtype, a, b)
        return self.binary("Div", dtype, self.binary("Sub", dtype, a, rest), b)

    def floor_mod(self, dtype: str, a: int, b: int) -> int:
        """Has the sign of `b`."""
        return self.pure(Op.U_MOD if family(dtype) == 2 else Op.S_MOD, dtype, a, b)

    def bitwise(self, name: str, dtype: str, a: int, b: int) -> int:
        """`name` of BITWISE."""
        return self.pure(BITWISE[name][family(dtype) - 1], dtype, a, b)

    def cast(self, value: int, source: str, target: str) -> int:
        """`value` of dtype `source` as `target`."""
        if source == target:
            return value
        if target == "bool":
            return self.compare("NE", source, value, self.constant(0, source))
        if source == "bool":
            one, zero = self.constant(1, target), self.constant(0, target)
            return self.select(target, value, one, zero)
        if family(source) == 0 or family(target) == 0:
            return self.pure(_conversion(source, target), target, value)
        if BITS[source] == BITS[target]:
            return self.pure(Op.BITCAST, target, value)
        return self._resize(value, source, target)

    def _resize(self, value: int, source: str, target: str) -> int:
        """Between integers: the source's sign says how to extend."""
        signed = family(source) == 1
        same = ("int" if signed else "uint") + str(BITS[target])
        wide = self.pure(Op.S_CONVERT if signed else Op.U_CONVERT, same, value)
        return wide if same == target else self.pure(Op.BITCAST, target, wide)

    def reinterpret(self, value: int, source: str, target: str) -> int:
        """The same bits as another dtype of the same size."""
        return value if source == target else self.pure(Op.BITCAST, target, value)

    def has_function(self, name: str) -> bool:
        """Whether `function` knows `name`."""
        return name in UNARY or name in self._composed

    def function(self, name: str, dtype: str, *operands: int) -> int:
        """An elementary function; GLSL has them for float32, so float64 is computed through it."""
        if dtype == "float64" and name not in ("sqrt", "fabs", "floor", "ceil", "trunc"):
            narrow = [self.cast(v, dtype, "float32") for v in operands]
            return self.cast(self.function(name, "float32", *narrow), "float32", dtype)
        if name in UNARY:
            return self._glsl(UNARY[name], dtype, *operands)
        return self._composed[name](dtype, *operands)

    def _glsl(self, which: Glsl, dtype: str, *operands: int) -> int:
        return self.pure(Op.EXT_INST, dtype, self.module.glsl, which, *operands)

    def _clamp(self, dtype: str, x: int, bound: float) -> int:
        high, low = self.constant(bound, dtype), self.constant(-bound, dtype)
        return self.smaller(dtype, high, self.larger(dtype, low, x))

    def _polynomial(self, dtype: str, x: int, coefficients: tuple[float, ...]) -> int:
        value = self.constant(coefficients[0], dtype)
        for c in coefficients[1:]:
            value = self._glsl(Glsl.FMA, dtype, value, x, self.constant(c, dtype))
        return value

    def _erf(self, dtype: str, x: int) -> int:
        x = self._clamp(dtype, x, 4.0)
        square = self.binary("Mul", dtype, x, x)
        p = self._polynomial(dtype, square, ERF_P)
        q = self._polynomial(dtype, square, ERF_Q)
        return self.binary("Div", dtype, self.binary("Mul", dtype, x, p), q)

    def _tanh(self, dtype: str, x: int) -> int:
        # Some drivers compute it as a quotient of exponentials, which overflow.
        return self._glsl(Glsl.TANH, dtype, self._clamp(dtype, x, 15.0))

    def _sigmoid(self, dtype: str, x: int) -> int:
        one = self.constant(1, dtype)
        power = self._glsl(Glsl.EXP, dtype, self.pure(Op.F_NEGATE, dtype, x))
        return self.binary("Div", dtype, one, self.binary("Add", dtype, one, power))

    def _log1p(self, dtype: str, x: int) -> int:
        # log(u) x / (u - 1) with u = 1 + x: the rounding of u cancels (W. Kahan).
        one = self.constant(1, dtype)
        u = self.binary("Add", dtype, one, x)
        scaled = self.binary("Mul", dtype, self._glsl(Glsl.LOG, dtype, u), x)
        value = self.binary("Div", dtype, scaled, self.binary("Sub", dtype, u, one))
        return self.select(dtype, self.compare("EQ", dtype, u, one), x, value)

    def _pow(self, dtype: str, x: int, y: int) -> int:
        # GLSL's is undefined below 0: |x|^y, with x's sign where y is odd.
        size = self._glsl(Glsl.POW, dtype, self._glsl(Glsl.F_ABS, dtype, x), y)
        rest = self._glsl(Glsl.F_ABS, dtype, self._fmod(dtype, y, self.constant(2, dtype)))
        odd = self.compare("EQ", dtype, rest, self.constant(1, dtype))
        negative = self.compare("LT", dtype, x, self.constant(0, dtype))
        flip = self.pure(Op.LOGICAL_AND, "bool", negative, odd)
        value = self.select(dtype, flip, self.pure(Op.F_NEGATE, dtype, size), size)
        none = self.compare("EQ", dtype, y, self.constant(0, dtype))
        return self.select(dtype, none, self.constant(1, dtype), value)

    def _abs(self, dtype: str, x: int) -> int:
        return self._glsl(Glsl.S_ABS if family(dtype) else Glsl.F_ABS, dtype, x)

    def _fma(self, dtype: str, a: int, b: int, c: int) -> int:
        return self._glsl(Glsl.FMA, dtype, a, b, c)

    def _fmod(self, dtype: str, a: int, b: int) -> int:
        return self.pure(Op.F_REM, dtype, a, b)

    def _log10(self, dtype: str, x: int) -> int:
        scale = self.constant(0.30102999566398120, dtype)
        return self.binary("Mul", dtype, self._glsl(Glsl.LOG2, dtype, x), scale)

    def _exp10(self, dtype: str, x: int) -> int:
        scale = self.constant(3.3219280948873623, dtype)
        return self._glsl(Glsl.EXP2, dtype, self.binary("Mul", dtype, x, scale))


def _conversion(source: str, target: str) -> Op:
    if family(source) == family(target) == 0:
        return Op.F_CONVERT
    if family(target) == 0:
        return Op.CONVERT_S_TO_F if family(source) == 1 else Op.CONVERT_U_TO_F
    return Op.CONVERT_F_TO_S if family(target) == 1 else Op.CONVERT_F_TO_U
