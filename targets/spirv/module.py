"""Instructions in, the words of a SPIR-V module out: types and constants are declared once."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from aotrain.targets.spirv.opcodes import (
    MAGIC,
    VERSION,
    BuiltIn,
    Capability,
    Decoration,
    Op,
    Storage,
)

#: dtype -> bits; "bool" is SPIR-V's own, without a size.
BITS = {
    "int8": 8, "uint8": 8, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64,
    "float32": 32, "float64": 64,
}  # fmt: skip
LOCAL_SIZE, GL_COMPUTE, GLSL450 = 17, 5, 1


def words(text: str) -> list[int]:
    """A literal string: its bytes, a NUL, zeros up to a whole word."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


class Module:
    """One compute entry point, "main", in the making.

    Types and constants are declared when they are first asked for; `code` is the body of the
    function, `locals` its variables, which SPIR-V wants at its start.
    """

    def __init__(self) -> None:
        self._bound = 1
        self._unique: dict[tuple, int] = {}
        self.capabilities = {Capability.SHADER}
        self._extensions: set[str] = set()
        self._decorations: list[list[int]] = []
        self._globals: list[list[int]] = []
        self._interface: list[int] = []
        self.locals: list[list[int]] = []
        self.code: list[list[int]] = []
        self.glsl = self.id()

    def id(self) -> int:
        """A fresh id."""
        self._bound += 1
        return self._bound - 1

    # Instructions of the function

    def emit(self, op: Op, *operands: int) -> None:
        """Append an instruction without a result."""
        self.code.append(_instruction(op, operands))

    def result(self, op: Op, kind: int, *operands: int) -> int:
        """Append an instruction; the id of its result, which has type `kind`."""
        name = self.id()
        self.emit(op, kind, name, *operands)
        return name

    # Types and constants

    def _once(self, key: tuple, op: Op, *operands: int, kind: int | None = None) -> int:
        """A declaration that a module must not repeat."""
        if key not in self._unique:
            name = self._unique[key] = self.id()
            head = [name] if kind is None else [kind, name]
            self._globals.append(_instruction(op, [*head, *operands]))
        return self._unique[key]

    def type(self, dtype: str) -> int:
        """The type of a scalar; "void" and "bool" too."""
        if dtype == "void":
            return self._once(("void",), Op.TYPE_VOID)
        if dtype == "bool":
            return self._once(("bool",), Op.TYPE_BOOL)
        bits = BITS[dtype]
        if dtype.startswith("float"):
            if bits == 64:
                self.capabilities.add(Capability.FLOAT64)
            return self._once((dtype,), Op.TYPE_FLOAT, bits)
        if bits == 64:
            self.capabilities.add(Capability.INT64)
        if bits == 8:
            self.capabilities.add(Capability.STORAGE_BUFFER_8BIT_ACCESS)
            self._extensions.add("SPV_KHR_8bit_storage")
        return self._once((dtype,), Op.TYPE_INT, bits, int(dtype.startswith("int")))

    def pointer(self, storage: Storage, pointee: int) -> int:
        """The type of pointers to a type."""
        return self._once(("pointer", storage, pointee), Op.TYPE_POINTER, storage, pointee)

    def array(self, dtype: str, count: int) -> int:
        """The type of an array of known length."""
        length = self.constant(count, "uint32")
        return self._once(("array", dtype, count), Op.TYPE_ARRAY, self.type(dtype), length)

    def constant(self, value: float, dtype: str) -> int:
        """A scalar constant; integers wrap."""
        kind = self.type(dtype)
        if dtype == "bool":
            op = Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE
            return self._once((op,), op, kind=kind)
        bits = BITS[dtype]
        if dtype.startswith("float"):
            raw = struct.pack("<f" if bits == 32 else "<d", value)
        else:
            raw = (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
        literal = struct.unpack(f"<{len(raw) // 4}I", raw)
        return self._once((dtype, *literal), Op.CONSTANT, *literal, kind=kind)

    # Variables

    def variable(self, storage: Storage, pointee: int) -> int:
        """A variable of the module, or of the function for `Storage.FUNCTION`."""
        name, kind = self.id(), self.pointer(storage, pointee)
        section = self.locals if storage is Storage.FUNCTION else self._globals
        section.append(_instruction(Op.VARIABLE, [kind, name, storage]))
        return name

    def view(self, dtype: str) -> int:
        """Binding 0 of set 0, seen as an array of `dtype`; one variable a dtype, all aliased."""
        key = ("view", dtype)
        if key not in self._unique:
            element = self.type(dtype)
            elements = self._once(("elements", dtype), Op.TYPE_RUNTIME_ARRAY, element)
            self.decorate(elements, Decoration.ARRAY_STRIDE, BITS[dtype] // 8)
            block = self._block([elements], [0], dtype)
            name = self._unique[key] = self.variable(Storage.STORAGE_BUFFER, block)
            self.decorate(name, Decoration.DESCRIPTOR_SET, 0)
            self.decorate(name, Decoration.BINDING, 0)
            self.decorate(name, Decoration.ALIASED)
        return self._unique[key]

    def push_constants(self, count: int) -> int:
        """The push constants: `count` uint32."""
        members = [self.type("uint32")] * count
        block = self._block(members, [4 * i for i in range(count)], "push")
        return self.variable(Storage.PUSH_CONSTANT, block)

    def _block(self, members: list[int], offsets: list[int], name: str) -> int:
        block = self._once(("block", name), Op.TYPE_STRUCT, *members)
        self.decorate(block, Decoration.BLOCK)
        for index, offset in enumerate(offsets):
            words = [block, index, Decoration.OFFSET, offset]
            self._decorations.append(_instruction(Op.MEMBER_DECORATE, words))
        return block

    def builtin(self, which: BuiltIn) -> int:
        """The variable of a built-in input, a vector of three uint32."""
        name = self.variable(Storage.INPUT, self.vector())
        self.decorate(name, Decoration.BUILT_IN, which)
        self._interface.append(name)
        return name

    def vector(self) -> int:
        """The type of three uint32."""
        return self._once(("vector",), Op.TYPE_VECTOR, self.type("uint32"), 3)

    def decorate(self, target: int, decoration: Decoration, *operands: int) -> None:
        """Decorate an id."""
        self._decorations.append(_instruction(Op.DECORATE, [target, decoration, *operands]))

    def assemble(self, threads: int) -> bytes:
        """The finished module, little-endian, for workgroups of `threads`."""
        void = self.type("void")
        signature = self._once(("main",), Op.TYPE_FUNCTION, void)
        function, first = self.id(), self.id()
        head = [[MAGIC, VERSION, 0, self._bound, 0]]
        head += [_instruction(Op.CAPABILITY, [c]) for c in sorted(self.capabilities)]
        head += [_instruction(Op.EXTENSION, words(name)) for name in sorted(self._extensions)]
        head += [
            _instruction(Op.EXT_INST_IMPORT, [self.glsl, *words("GLSL.std.450")]),
            _instruction(Op.MEMORY_MODEL, [0, GLSL450]),  # logical addressing
            _instruction(Op.ENTRY_POINT, [GL_COMPUTE, function, *words("main"), *self._interface]),
            _instruction(Op.EXECUTION_MODE, [function, LOCAL_SIZE, threads, 1, 1]),
        ]
        body = [
            _instruction(Op.FUNCTION, [void, function, 0, signature]),
            _instruction(Op.LABEL, [first]),
            *self.locals,
            *self.code,
            _instruction(Op.RETURN, []),
            _instruction(Op.FUNCTION_END, []),
        ]
        flat = [
            w for part in (head, self._decorations, self._globals, body) for i in part for w in i
        ]
        return struct.pack(f"<{len(flat)}I", *flat)


def _instruction(op: Op, operands: Iterable[int]) -> list[int]:
    given = [int(w) for w in operands]
    return [(len(given) + 1) << 16 | op, *given]
