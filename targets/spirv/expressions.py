"""TIR expressions in, ids of SPIR-V values out.

Indices are int64 in TIR, which small devices compute slowly or not at all: what is made of loop
variables and constants alone is computed in int32. Tensors are smaller than 2^31 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import tvm_ffi
from tvm import ir, sym, tirx

from aotrain.errors import Diagnostic, UnsupportedModelError
from aotrain.targets.spirv.arithmetic import BINARY, COMPARE, Arithmetic
from aotrain.targets.spirv.module import BITS, Module
from aotrain.targets.spirv.opcodes import Op, Storage

_LOGIC = {"And": Op.LOGICAL_AND, "Or": Op.LOGICAL_OR}
_INDEX_NODES = (
    tirx.Var, tirx.IntImm, tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min,
    tirx.Max, tirx.Cast, tirx.Div, tirx.Mod,
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a buffer lives: in the block from element `base` on, or in a variable of its own."""

    variable: int
    storage: Storage
    dtype: str
    base: int | None = None


def dtype_of(expr: tirx.Expr) -> str:
    """The dtype of a scalar expression."""
    return str(expr.ty.dtype)


def unsupported(what: str, node: object) -> UnsupportedModelError:
    """The refusal of a construct that has no translation."""
    first = str(node).splitlines()[0][:100]
    return UnsupportedModelError(Diagnostic("AOT-K002", f"no SPIR-V for {what}", first))


class Expressions:
    """Evaluates expressions where `module`'s code stands now."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.math = Arithmetic(module)
        self.values: dict[tirx.Var, int] = {}  # in the variable's dtype
        self.indices: dict[tirx.Var, int] = {}  # loop variables, as int32
        self.places: dict[tirx.Buffer, Place] = {}
        self.label = 0  # of the block that code is appended to
        self._simplify = sym.Analyzer().simplify

    # Values

    def value(self, expr: tirx.Expr) -> int:
        """The id of `expr`'s value, in its own dtype."""
        if self._is_index(expr):
            return self.math.cast(self.index(expr), "int32", dtype_of(expr))
        name = type(expr).__name__
        if name in BINARY:
            return self.math.binary(name, dtype_of(expr), self.value(expr.a), self.value(expr.b))
        if name in COMPARE:
            return self._compare(name, expr)
        handler = self._HANDLERS.get(name)
        if handler is None:
            raise unsupported(name, expr)
        return handler(self, expr)

    def _compare(self, name: str, expr: tirx.Expr) -> int:
        sides = (_before_widening(expr.a), _before_widening(expr.b))
        if all(isinstance(side, tirx.IntImm) or self._is_index(side) for side in sides):
            return self.math.compare(name, "int32", *(self.index(side) for side in sides))
        if all(dtype_of(side) == "int32" or _is_small(side) for side in sides):
            return self.math.compare(name, "int32", *(self.index(side) for side in sides))
        return self.math.compare(name, dtype_of(expr.a), self.value(expr.a), self.value(expr.b))

    def _variable(self, expr: tirx.Var) -> int:
        return self.values[expr]

    def _number(self, expr: tirx.IntImm | tirx.FloatImm) -> int:
        return self.math.constant(expr.value, dtype_of(expr))

    def _cast(self, expr: tirx.Cast) -> int:
        return self.math.cast(self.value(expr.value), dtype_of(expr.value), dtype_of(expr))

    def _floor_div(self, expr: tirx.FloorDiv) -> int:
        return self.math.floor_div(dtype_of(expr), self.value(expr.a), self.value(expr.b))

    def _floor_mod(self, expr: tirx.FloorMod) -> int:
        return self.math.floor_mod(dtype_of(expr), self.value(expr.a), self.value(expr.b))

    def _max(self, expr: tirx.Max) -> int:
        return self.math.larger(dtype_of(expr), self.value(expr.a), self.value(expr.b))

    def _min(self, expr: tirx.Min) -> int:
        return self.math.smaller(dtype_of(expr), self.value(expr.a), self.value(expr.b))

    def _not(self, expr: tirx.Not) -> int:
        return self.math.pure(Op.LOGICAL_NOT, "bool", self.value(expr.a))

    def _logic(self, expr: tirx.And | tirx.Or) -> int:
        """The second operand may load what the first one guards: then it is a branch."""
        both = isinstance(expr, tirx.And)
        first = self.value(expr.a)
        if not _loads(expr.b):
            return self.math.pure(_LOGIC[type(expr).__name__], "bool", first, self.value(expr.b))
        known = self.math.constant(not both, "bool")

        def second() -> int:
            return self.value(expr.b)

        def short() -> int:
            return known

        return self._branch("bool", first, *((second, short) if both else (short, second)))

    def _select(self, expr: tirx.Select) -> int:
        condition = self.value(expr.condition)
        a, b = self.value(expr.true_value), self.value(expr.false_value)
        return self.math.select(dtype_of(expr), condition, a, b)

    def _let(self, expr: tirx.Let) -> int:
        self.values[expr.var] = self.value(expr.value)
        return self.value(expr.body)

    def _load(self, expr: ir.TensorLoad) -> int:
        place, pointer = self.address(expr.source, expr.indices)
        raw = self.module.result(Op.LOAD, self.module.type(place.dtype), pointer)
        if place.dtype != "uint8":
            return raw
        wide = self.math.pure(Op.U_CONVERT, "uint32", raw)  # 8 bits can be moved and widened only
        return self.math.cast(wide, "uint32", dtype_of(expr))

    # Calls

    def _call(self, expr: ir.Call) -> int:
        name = str(getattr(expr.op, "name", expr.op)).rpartition(".")[2]
        dtype = dtype_of(expr)
        if name == "if_then_else":
            condition, a, b = expr.args
            return self._branch(
                dtype, self.value(condition), lambda: self.value(a), lambda: self.value(b)
            )
        operands = [self.value(arg) for arg in expr.args]
        if name == "reinterpret":
            return self.math.reinterpret(operands[0], dtype_of(expr.args[0]), dtype)
        if name in ("isnan", "isinf"):
            return self.math.pure(Op.IS_NAN if name == "isnan" else Op.IS_INF, "bool", *operands)
        if name == "bitwise_not":
            return self.math.pure(Op.NOT, dtype, *operands)
        if name in _SHIFTS_AND_MASKS:
            return self.math.bitwise(name, dtype, *operands)
        if self.math.has_function(name):
            return self.math.function(name, dtype, *operands)
        raise unsupported(f"the function {name}", expr)

    def _branch(
        self, dtype: str, condition: int, a: Callable[[], int], b: Callable[[], int]
    ) -> int:
        """condition ? a() : b(), of which only one runs."""
        yes, no, merge = (self.module.id() for _ in range(3))
        self.module.emit(Op.SELECTION_MERGE, merge, 0)
        self.module.emit(Op.BRANCH_CONDITIONAL, condition, yes, no)
        incoming: list[int] = []
        for start, side in ((yes, a), (no, b)):
            self.open(start)
            self.math.enter()
            value = side()
            self.math.leave()
            incoming += [value, self.label]
            self.module.emit(Op.BRANCH, merge)
        self.open(merge)
        return self.module.result(Op.PHI, self.module.type(dtype), *incoming)

    def open(self, label: int) -> None:
        """Begin the block `label`."""
        self.module.emit(Op.LABEL, label)
        self.label = label

    # Addresses

    def address(self, buffer: tirx.Buffer, indices: list[tirx.Expr]) -> tuple[Place, int]:
        """Where `buffer` lives, and a pointer to one of its elements."""
        place = self.places[buffer]
        element = self._element(buffer, indices)
        if place.base is not None:
            element = self.math.pure(Op.I_ADD, "uint32", place.base, element)
            path = [self.math.constant(0, "uint32"), element]
        else:
            path = [element]
        kind = self.module.pointer(place.storage, self.module.type(place.dtype))
        return place, self._pointer(kind, place.variable, path)

    def _pointer(self, kind: int, variable: int, path: list[int]) -> int:
        return self.module.result(Op.ACCESS_CHAIN, kind, variable, *path)

    def _element(self, buffer: tirx.Buffer, indices: list[tirx.Expr]) -> int:
        flat: tirx.Expr = tirx.IntImm("int64", 0)
        for index, extent in zip(indices, buffer.shape, strict=True):
            flat = flat * tirx.IntImm("int64", int(extent)) + index.astype("int64")
        return self.index(self._simplify(flat))

    def index(self, expr: tirx.Expr) -> int:
        """An integer expression as int32."""
        if isinstance(expr, tirx.Var) and expr in self.indices:
            return self.indices[expr]
        if isinstance(expr, tirx.IntImm):
            return self.math.constant(expr.value, "int32")
        if isinstance(expr, tirx.Cast) and _is_integer(dtype_of(expr.value)):
            return self.index(expr.value)
        name = type(expr).__name__
        if name in self._INDEX:
            return self._INDEX[name](self.math, "int32", self.index(expr.a), self.index(expr.b))
        return self.math.cast(self.value(expr), dtype_of(expr), "int32")

    def _is_index(self, expr: tirx.Expr) -> bool:
        """Whether int32 is enough: loop variables and constants only, and not too deep to say."""
        if dtype_of(expr) not in ("int64", "int32") or isinstance(expr, tirx.IntImm):
            return False
        plain: list[bool] = []

        def visit(node: object) -> None:
            if isinstance(node, tirx.Var):
                plain.append(node in self.indices)
            elif isinstance(node, (tirx.Expr, ir.Call)):
                plain.append(isinstance(node, _INDEX_NODES))

        tvm_ffi.structural_walk(expr, (object, visit))
        return all(plain)

    _INDEX: ClassVar[dict[str, Callable[..., int]]] = {
        "Add": lambda m, d, a, b: m.binary("Add", d, a, b),
        "Sub": lambda m, d, a, b: m.binary("Sub", d, a, b),
        "Mul": lambda m, d, a, b: m.binary("Mul", d, a, b),
        "Div": lambda m, d, a, b: m.binary("Div", d, a, b),
        "Mod": lambda m, d, a, b: m.binary("Mod", d, a, b),
        "FloorDiv": Arithmetic.floor_div,
        "FloorMod": Arithmetic.floor_mod,
        "Max": Arithmetic.larger,
        "Min": Arithmetic.smaller,
    }
    _HANDLERS: ClassVar[dict[str, Callable[..., int]]] = {
        "Var": _variable,
        "IntImm": _number,
        "FloatImm": _number,
        "Cast": _cast,
        "FloorDiv": _floor_div,
        "FloorMod": _floor_mod,
        "Max": _max,
        "Min": _min,
        "Not": _not,
        "And": _logic,
        "Or": _logic,
        "Select": _select,
        "Let": _let,
        "TensorLoad": _load,
        "Call": _call,
    }


_SHIFTS_AND_MASKS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")


def _before_widening(expr: tirx.Expr) -> tirx.Expr:
    """What a cast from int32 to int64 casts: Mesa 22.3 is wrong where it meets a constant."""
    widens = isinstance(expr, tirx.Cast) and dtype_of(expr) == "int64"
    return expr.value if widens and dtype_of(expr.value) == "int32" else expr


def _is_small(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.IntImm) and -(2**31) <= expr.value < 2**31


def _is_integer(dtype: str) -> bool:
    return dtype != "bool" and dtype in BITS and not dtype.startswith("float")


def _loads(expr: tirx.Expr) -> bool:
    found: list[bool] = []
    tvm_ffi.structural_walk(expr, (ir.TensorLoad, lambda _: found.append(True)))
    return bool(found)
