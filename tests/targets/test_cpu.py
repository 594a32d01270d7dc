"""PrimFuncs to machine code that a C caller runs: values, scratch, stack, parallel tasks."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tvm import relax, te, tirx
from tvm.script import tirx as T  # noqa: N812
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as B  # noqa: N812
from tvm.tirx.script.builder.utils import buffer_proxy

from aotrain.errors import UsageError
from aotrain.targets import c_abi, get
from aotrain.targets.cpu import CpuTarget

HOST = """\
#include <stdint.h>
#include "aot_kernel_abi.h"
static _Alignas(64) char scratch[1 << 20];
static uint64_t top, most, pushed;
static int parallel(int (*task)(int, void *, void *), void *closure, int tasks) {
  struct { void *unused; int32_t tasks; } env = {0, tasks ? tasks : 3};
  for (int i = 0; i < env.tasks; i++) {
    int rc = task(i, &env, closure);
    if (rc) return rc;
  }
  return 0;
}
static void *push(uint64_t bytes) {
  void *result = scratch + top;
  top += (bytes + 63) / 64 * 64;
  pushed++;
  if (top > most) most = top;
  return result;
}
static void pop(void *p) { top = (uint64_t)((char *)p - scratch); }
static const aot_host host = {parallel, push, pop};
int32_t call(const aot_kernel_library *library, uint32_t index, void **args) {
  library->bind(&host);
  return library->kernels[index](args);
}
uint64_t still_pushed(void) { return top; }
uint64_t pushed_at_most(void) { return most; }
uint64_t pushes(void) { return pushed; }
"""


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A stand-in for the loader that counts what kernels ask of it."""
    from aotrain import runtime, toolchain

    folder = tmp_path_factory.mktemp("host")
    source = folder / "host.c"
    source.write_text(HOST)
    include = Path(runtime.__file__).parent
    toolchain.compile_shared([source], folder / "host.so", flags=["-std=c11", f"-I{include}"])
    library = ctypes.CDLL(str(folder / "host.so"))
    for name in ("still_pushed", "pushed_at_most", "pushes"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


def build(
    tmp_path: Path, *kernels: tuple[tirx.PrimFunc, c_abi.Aliases]
) -> tuple[ctypes.CDLL, list[c_abi.CKernel]]:
    target = get("cpu")
    lowered = target.lower([(f"k{i}", f, a) for i, (f, a) in enumerate(kernels)])
    target.build(lowered, tmp_path / "kernels.so")
    return ctypes.CDLL(str(tmp_path / "kernels.so")), lowered


def run(host: ctypes.CDLL, library: ctypes.CDLL, index: int, *arrays: np.ndarray) -> None:
    table = ctypes.c_void_p.in_dll(library, "aot_kernels")
    args = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    assert host.call(ctypes.byref(table), index, args) == 0


def softmax(rows: int, columns: int) -> tirx.PrimFunc:
    x = relax.Var("x", relax.TensorType((rows, columns), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(relax.op.nn.softmax(x))
        bb.emit_func_output(y)
    return relax.transform.LegalizeOps()(bb.finalize())["softmax"]


def test_large_root_buffers_become_parameters(host: ctypes.CDLL, tmp_path: Path) -> None:
    library, (kernel,) = build(tmp_path, (softmax(40, 50), ()))
    assert kernel.scratch == (40 * 50 * 4,)  # the exponentials; 160 bytes of maxima stay on stack
    assert kernel.pointers == 3
    assert kernel.thread_scratch == 0
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    y, scratch = np.zeros_like(x), np.zeros_like(x)
    run(host, library, 0, x, y, scratch)
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, expected / expected.sum(1, keepdims=True), rtol=1e-6)


@T.prim_func(s_tir=True, private=True)
def tasks_with_large_buffers(a: T.Buffer((16, 64), "float32"), b: T.Buffer((16,), "float32")):
    for i in T.parallel(16):
        with T.sblock("task"):
            vi = T.axis.spatial(16, i)
            large = T.sblock_alloc_buffer((8192,), "float32")
            for j in range(8192):
                large[j] = a[vi, j % 64]
            b[vi] = large[0] + large[8191]


@T.prim_func(s_tir=True, private=True)
def tasks_with_small_buffers(a: T.Buffer((16, 64), "float32"), b: T.Buffer((16,), "float32")):
    for i in T.parallel(16):
        with T.sblock("task"):
            vi = T.axis.spatial(16, i)
            small = T.sblock_alloc_buffer((64,), "float32")
            for j in range(64):
                small[j] = a[vi, j] * T.float32(2)
            b[vi] = small[0] + small[63]


def test_large_buffers_of_tasks_are_pushed_and_popped(host: ctypes.CDLL, tmp_path: Path) -> None:
    library, (kernel,) = build(tmp_path, (tasks_with_large_buffers, ()))
    assert (kernel.scratch, kernel.thread_scratch) == ((), 8192 * 4)
    a = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    b = np.zeros(16, np.float32)
    before = host.pushes()
    run(host, library, 0, a, b)
    np.testing.assert_array_equal(b, a[:, 0] + a[:, 63])
    assert host.pushes() - before == 16
    assert host.still_pushed() == 0
    assert host.pushed_at_most() <= kernel.thread_scratch


def test_small_buffers_of_tasks_never_leave_the_stack(host: ctypes.CDLL, tmp_path: Path) -> None:
    library, (kernel,) = build(tmp_path, (tasks_with_small_buffers, ()))
    a = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    b = np.zeros(16, np.float32)
    before = host.pushes()
    run(host, library, 0, a, b)
    np.testing.assert_array_equal(b, 2 * (a[:, 0] + a[:, 63]))
    assert host.pushes() == before
    assert kernel.thread_scratch == 0


def test_an_aliased_output_is_written_over_its_input(host: ctypes.CDLL, tmp_path: Path) -> None:
    a, b = te.placeholder((33,), name="a"), te.placeholder((33,), name="b")
    func = te.create_prim_func([a, b, te.compute((33,), lambda i: a[i] - 2 * b[i], name="c")])
    library, (kernel,) = build(tmp_path, (func, ((2, 0),)))
    assert kernel.pointers == 2
    x, y = np.arange(33, dtype=np.float32), np.ones(33, np.float32)
    run(host, library, 0, x, y)
    np.testing.assert_array_equal(x, np.arange(33) - 2)


def test_a_body_made_with_te_extern(
    host: ctypes.CDLL, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its buffers have symbolic offsets, and its IR builder leaves a mark that LLVM warns about."""

    def body(ins: list[tirx.Buffer], outs: list[tirx.Buffer]) -> tirx.Stmt:
        value, out = map(buffer_proxy, (ins[0], outs[0]))
        with IRBuilder() as builder, B.seq_scope(), B.serial(6) as i:
            out[i] = value[i] * 2.0
        return builder.get()

    x = relax.Var("x", relax.TensorType((6,), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        doubled = bb.emit_te(
            lambda t: te.extern((6,), [t], body, dtype="float32", name="doubled"),
            x,
            primfunc_name_hint="doubled",
        )
        bb.emit_func_output(doubled)
    func = bb.finalize()["doubled"]
    assert "elem_offset" in str(func)
    library, _ = build(tmp_path, (func, ()))
    values, sums = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    run(host, library, 0, values, sums)
    np.testing.assert_array_equal(sums, 2 * values)
    assert "Warning" not in capfd.readouterr().err


def test_several_kernels_keep_their_order(host: ctypes.CDLL, tmp_path: Path) -> None:
    def scaled(factor: float) -> tirx.PrimFunc:
        a = te.placeholder((5,), name="a")
        return te.create_prim_func([a, te.compute((5,), lambda i: a[i] * factor, name="c")])

    library, _ = build(tmp_path, *((scaled(k), ()) for k in (2.0, 3.0, 5.0)))
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    for index, factor in enumerate((2, 3, 5)):
        run(host, library, index, x, y)
        np.testing.assert_array_equal(y, np.full(5, factor))


def test_machine_code_is_reproducible_and_needs_only_libc(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        build(tmp_path / folder, (softmax(8, 8), ()), (tasks_with_large_buffers, ()))
    one, two = ((tmp_path / f / "kernels.so").read_bytes() for f in ("one", "two"))
    assert one == two
    text = subprocess.run(
        ["readelf", "-d", tmp_path / "one" / "kernels.so"], capture_output=True, text=True
    ).stdout
    needed = [line.split("[")[1].rstrip("]") for line in text.splitlines() if "NEEDED" in line]
    assert set(needed) <= {"libm.so.6", "libc.so.6"}


@pytest.mark.parametrize(
    "name, expected",
    [
        ("cpu:x86_64,haswell", CpuTarget("x86_64", "haswell")),
        ("cpu:x86_64", CpuTarget("x86_64", "x86-64-v3")),
        ("cpu:aarch64,cortex-a72", CpuTarget("aarch64", "cortex-a72")),
        ("cpu:aarch64", CpuTarget("aarch64", "generic")),
    ],
)
def test_names_of_targets(name: str, expected: CpuTarget) -> None:
    assert get(name) == expected
    assert get(expected.name) == expected


@pytest.mark.parametrize(
    "name, hint", [("cpu:x86_64,haswel", "haswell"), ("gpu", "cpu"), ("cpu:nonsense", "targets")]
)
def test_unknown_targets_are_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        get(name)
    assert hint in caught.value.diagnostics[0].hint


def test_code_for_another_architecture(tmp_path: Path) -> None:
    """Objects for aarch64 come from LLVM alone; linking them needs a cross compiler."""
    import tvm

    target = get("cpu:aarch64,cortex-a72")
    (kernel,) = target.lower([("k0", softmax(8, 8), ())])
    module = tvm.IRModule({kernel.symbol: kernel.func})
    code = tvm.get_global_func("target.build.llvm")(module, target.tvm)
    code.write_to_file(str(tmp_path / "k.o"), "o")
    header = (tmp_path / "k.o").read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183  # EM_AARCH64
