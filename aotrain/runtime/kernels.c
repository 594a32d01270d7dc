/* kernels.c: kernels.so in, one function pointer a launch out. */
#include <dlfcn.h>

#include "internal.h"

aot_status aot_kernels_open(aot *model, const char *path) {
  model->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!model->library)
    return aot_fail(model, AOT_BAD_ARTIFACT, "cannot load the kernels: %s", dlerror());
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
  return AOT_OK;
}
