/* aot_kernel_abi.h: what a kernel library (kernels.so in an artifact) and the loader agree on.
 *
 * The library exports one symbol, `aot_kernels`. The loader checks `abi` and `count` against the
 * plan, calls `bind` once, then replays launches through `kernels[i]`. */
#ifndef AOT_KERNEL_ABI_H
#define AOT_KERNEL_ABI_H

#include <stdint.h>

#define AOT_KERNEL_ABI 1u

/* args: one pointer a tensor, in the order of the plan's Launch.args. Returns 0 when done. */
typedef int32_t (*aot_kernel_fn)(void *const *args);

/* What a kernel may ask of the loader. */
typedef struct aot_host {
  /* Runs task(id, env, closure) for id in [0, tasks), over the loader's threads, and waits; 0 tasks
   * means one a thread. `env` points to {void *unused; int32_t tasks;}, as TVM's kernels expect.
   * Returns 0, or the first non-zero result of a task. */
  int (*parallel)(int (*task)(int id, void *env, void *closure), void *closure, int tasks);
  /* A stack of scratch bytes of the calling thread, 64-byte aligned, sized by the plan; null when the
   * plan promised less than is asked for. */
  void *(*scratch_push)(uint64_t bytes);
  void (*scratch_pop)(void *scratch);
} aot_host;

typedef struct aot_kernel_library {
  uint32_t abi;   /* AOT_KERNEL_ABI */
  uint32_t count; /* number of kernels */
  const aot_kernel_fn *kernels;
  void (*bind)(const aot_host *host); /* `host` outlives the library's use */
} aot_kernel_library;

extern const aot_kernel_library aot_kernels;

#endif
