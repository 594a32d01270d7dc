"""TIR statements in, structured SPIR-V control flow out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import ClassVar

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from aotrain.targets.spirv.expressions import Expressions, Place, dtype_of, unsupported
from aotrain.targets.spirv.module import BITS, Module
from aotrain.targets.spirv.opcodes import Op, Storage

WORKGROUP_SCOPE = 2
ACQUIRE_RELEASE_WORKGROUP = 0x8 | 0x100
UNROLL = 1  # loop control
REDUCE = 2  # IterVar::kCommReduce


class Statements:
    """Appends statements to `module`'s function."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.expressions = Expressions(module)
        self.math = self.expressions.math

    def run(self, statement: tirx.Stmt) -> None:
        """Append `statement`."""
        name = type(statement).__name__
        handler = self._HANDLERS.get(name)
        if handler is None:
            raise unsupported(name, statement)
        handler(self, statement)

    def scoped(self, body: Callable[[], None]) -> None:
        """Run `body` as a block whose values are not known outside."""
        self.math.enter()
        body()
        self.math.leave()

    def _sequence(self, statement: tirx.SeqStmt) -> None:
        for part in statement.seq:
            self.run(part)

    def _bind(self, statement: tirx.Bind) -> None:
        self.expressions.values[statement.var] = self.expressions.value(statement.value)

    def _store(self, statement: tirx.BufferStore) -> None:
        value = self.expressions.value(statement.value)
        place, pointer = self.expressions.address(statement.buffer, statement.indices)
        if place.dtype == "uint8":
            wide = self.math.cast(value, dtype_of(statement.value), "uint32")
            value = self.math.pure(Op.U_CONVERT, "uint8", wide)
        self.module.emit(Op.STORE, pointer, value)

    def _evaluate(self, statement: tirx.Evaluate) -> None:
        call = statement.value
        if isinstance(call, tirx.IntImm):
            return
        if str(getattr(call.op, "name", "")).endswith("tvm_storage_sync"):
            scope = self.math.constant(WORKGROUP_SCOPE, "uint32")
            semantics = self.math.constant(ACQUIRE_RELEASE_WORKGROUP, "uint32")
            self.module.emit(Op.CONTROL_BARRIER, scope, scope, semantics)
            return
        self.expressions.value(call)

    def _allocate(self, statement: tirx.AllocBuffer) -> None:
        self.allocate(statement.buffer)

    def allocate(self, buffer: tirx.Buffer) -> None:
        """A variable for `buffer`: of the workgroup for scope "shared", else of the thread."""
        storage = Storage.WORKGROUP if buffer.scope() == "shared" else Storage.FUNCTION
        dtype = str(buffer.dtype)
        array = self.module.array(dtype, prod(int(n) for n in buffer.shape))
        variable = self.module.variable(storage, array)
        self.expressions.places[buffer] = Place(variable, storage, dtype)

    def _condition(self, statement: tirx.IfThenElse) -> None:
        condition = self.expressions.value(statement.condition)
        merge, yes = self.module.id(), self.module.id()
        no = merge if statement.else_case is None else self.module.id()
        self.module.emit(Op.SELECTION_MERGE, merge, 0)
        self.module.emit(Op.BRANCH_CONDITIONAL, condition, yes, no)
        for label, case in ((yes, statement.then_case), (no, statement.else_case)):
            if case is not None:
                self.expressions.open(label)
                self.scoped(partial(self.run, case))
                self.module.emit(Op.BRANCH, merge)
        self.expressions.open(merge)

    def _loop(self, statement: tirx.For) -> None:
        """A counted loop over int32; parallel kinds run in order, which is always right."""
        index = self.expressions.index
        start, extent = index(statement.min), index(statement.extent)
        end = self.math.binary("Add", "int32", start, extent)
        control = UNROLL if statement.kind == tirx.ForKind.UNROLLED else 0
        before = self.expressions.label
        head, test, body, more, merge = (self.module.id() for _ in range(5))
        counter, following = self.module.id(), self.module.id()
        int32 = self.module.type("int32")
        self.module.emit(Op.BRANCH, head)
        self.expressions.open(head)
        self.module.emit(Op.PHI, int32, counter, start, before, following, more)
        self.module.emit(Op.LOOP_MERGE, merge, more, control)
        self.module.emit(Op.BRANCH, test)
        self.expressions.open(test)
        inside = self.module.result(Op.S_LESS_THAN, self.module.type("bool"), counter, end)
        self.module.emit(Op.BRANCH_CONDITIONAL, inside, body, merge)
        self.expressions.open(body)
        self.expressions.indices[statement.loop_var] = counter
        self.scoped(lambda: self.run(statement.body))
        self.module.emit(Op.BRANCH, more)
        self.expressions.open(more)
        one = self.math.constant(1, "int32")
        self.module.emit(Op.I_ADD, int32, following, counter, one)
        self.module.emit(Op.BRANCH, head)
        self.expressions.open(merge)

    def _attribute(self, statement: tirx.AttrStmt) -> None:
        self.run(statement.body)

    def _realize(self, statement: SBlockRealize) -> None:
        """A block at one point of its iterators: initialised at the first step of a reduction."""
        block: SBlock = statement.block
        for buffer in block.alloc_buffers:
            if buffer not in self.expressions.places:
                self.allocate(buffer)
        first: tirx.Expr | None = None
        for var, value in zip(block.iter_vars, statement.iter_values, strict=True):
            self.expressions.indices[var.var] = self.expressions.index(value)
            if var.iter_type == REDUCE:
                begins = tirx.EQ(var.var, var.dom.min.astype(str(var.var.ty.dtype)))
                first = begins if first is None else tirx.And(first, begins)
        body: tirx.Stmt = block.body
        if block.init is not None:
            init = block.init if first is None else tirx.IfThenElse(first, block.init, None)
            body = tirx.SeqStmt([init, body])
        predicate = statement.predicate
        if not (isinstance(predicate, tirx.IntImm) and predicate.value):
            body = tirx.IfThenElse(predicate, body, None)
        self.run(body)

    _HANDLERS: ClassVar[dict[str, Callable[..., None]]] = {
        "SeqStmt": _sequence,
        "Bind": _bind,
        "BufferStore": _store,
        "Evaluate": _evaluate,
        "AllocBuffer": _allocate,
        "IfThenElse": _condition,
        "For": _loop,
        "AttrStmt": _attribute,
        "SBlockRealize": _realize,
    }


def storable(dtype: str) -> bool:
    """Whether tensors of `dtype` can be read and written on the device."""
    return dtype == "bool" or dtype in BITS
