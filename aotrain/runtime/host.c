/* host.c: the backend of artifacts for a CPU. Block in main memory, launches as calls of kernels.so's
 * functions: a loop over function pointers, no decision in it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <dlfcn.h>

#include "internal.h"

aot_status aot_backend_allocate(aot *model) {
  uint64_t bytes = model->planned_bytes;
  model->block = aligned_alloc(AOT_ALIGNMENT, bytes ? (size_t)bytes : AOT_ALIGNMENT);
  if (!model->block)
    return aot_fail(model, AOT_MEMORY, "cannot allocate the %llu bytes that the plan needs",
                    (unsigned long long)bytes);
  memset(model->block, 0, (size_t)bytes);
  for (uint32_t i = 0; i < model->tensor_count; i++)
    model->tensors[i].data = (uint8_t *)model->block + model->offsets[i];
  for (uint64_t i = 0; i < model->arg_total; i++)
    model->args[i] = model->tensors[model->arg_tensor[i]].data;
  return AOT_OK;
}

aot_status aot_backend_open(aot *model) {
  const aot_kernel_library *kernels = dlsym(model->library, "aot_kernels");
  if (!kernels) return aot_fail(model, AOT_BAD_ARTIFACT, "kernels.so exports no aot_kernels");
  if (kernels->abi != AOT_KERNEL_ABI)
    return aot_fail(model, AOT_NEWER, "kernels.so has ABI %u, this loader calls ABI %u",
                    kernels->abi, AOT_KERNEL_ABI);
  if (kernels->count != model->kernel_count)
    return aot_fail(model, AOT_BAD_ARTIFACT, "kernels.so holds %u kernels, the plan names %u",
                    kernels->count, model->kernel_count);
  if (kernels->bind) kernels->bind(&aot_pool_host);
  for (uint32_t i = 0; i < model->launch_count; i++)
    model->launches[i].run = kernels->kernels[model->launches[i].kernel];
  model->pool = aot_pool_new(model->threads, model->thread_scratch);
  if (!model->pool) return aot_fail(model, AOT_MEMORY, "cannot allocate the threads' scratch");
  model->threads = aot_pool_threads(model->pool);
  model->scratch_bytes = aot_pool_bytes(model->pool);
  return AOT_OK;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int32_t run_traced(const aot *model, const struct entry *entry,
                          const struct launch *launch) {
  uint64_t began = now_ns();
  int32_t result = launch->run(launch->args);
  aot_launch seen = {.entry = entry->name,
                     .kernel = model->kernels[launch->kernel],
                     .origin = launch->origin,
                     .index = (uint32_t)(launch - entry->launches),
                     .ns = now_ns() - began};
  model->trace(model->trace_user, &seen);
  return result;
}

aot_status aot_backend_run(aot *model, const struct entry *entry) {
  struct caller caller = aot_pool_enter(model->pool);
  const struct launch *launch = entry->launches, *end = launch + entry->launch_count;
  int32_t result = 0;
  for (; launch < end; launch++) {
    result = model->trace ? run_traced(model, entry, launch) : launch->run(launch->args);
    if (result) break;
  }
  aot_pool_leave(caller);
  if (result)
    return aot_fail(model, AOT_KERNEL, "kernel '%s'%s%s failed with %d",
                    model->kernels[launch->kernel], *launch->origin ? " of " : "", launch->origin,
                    (int)result);
  return AOT_OK;
}

aot_status aot_backend_sync(aot *model, bool written) {
  (void)model, (void)written; /* the host's bytes are the kernels' bytes */
  return AOT_OK;
}

void aot_backend_close(aot *model) {
  aot_pool_free(model->pool);
  free(model->block);
}
