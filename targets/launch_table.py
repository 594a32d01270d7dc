"""Lowered kernels in, the C source of their launch table out: `aot_kernels` of aot_kernel_abi.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Callable(Protocol):
    """What the table must know of a kernel."""

    @property
    def symbol(self) -> str:
        """The C function's name."""

    @property
    def pointers(self) -> int:
        """How many pointers it takes."""


HEAD = """\
#include "aot_kernel_abi.h"

typedef int (*task_fn)(int, void *, void *);

/* TVM's code calls the loader through these variables. */
int (*__TVMBackendParallelLaunch)(task_fn, void *, int);
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
int (*__TVMBackendFreeWorkspace)(int, int, void *);

static const aot_host *host;

static int parallel(task_fn task, void *closure, int tasks) {
  return host->parallel(task, closure, tasks);
}

static void *scratch_push(int type, int device, uint64_t bytes, int code, int bits) {
  (void)type, (void)device, (void)code, (void)bits;
  return host->scratch_push(bytes);
}

static int scratch_pop(int type, int device, void *scratch) {
  (void)type, (void)device;
  host->scratch_pop(scratch);
  return 0;
}

static void bind(const aot_host *given) {
  host = given;
  __TVMBackendParallelLaunch = parallel;
  __TVMBackendAllocWorkspace = scratch_push;
  __TVMBackendFreeWorkspace = scratch_pop;
}
"""

TAIL = """\
__attribute__((visibility("default"))) const aot_kernel_library aot_kernels = {
    AOT_KERNEL_ABI, sizeof table / sizeof table[0], table, bind};
"""


def launch_table(kernels: Sequence[Callable]) -> str:
    """One thunk a kernel, which spreads the argument array over the kernel's parameters."""
    thunks = []
    for kernel in kernels:
        params = ", ".join(["void *"] * kernel.pointers) or "void"
        args = ", ".join(f"a[{i}]" for i in range(kernel.pointers))
        thunks.append(f"int32_t {kernel.symbol}({params});")
        unused = "" if args else "(void)a; "
        body = f"{{ {unused}return {kernel.symbol}({args}); }}"
        thunks.append(f"static int32_t {kernel.symbol}_(void *const *a) {body}")
    names = "".join(f"  {kernel.symbol}_,\n" for kernel in kernels)
    table = f"static const aot_kernel_fn table[] = {{\n{names}}};\n"
    return "\n".join([HEAD, *thunks, "", table, TAIL])
