/* vulkan.c: the backend of artifacts for a Vulkan device. The block lies in the device's memory; the
 * host sees its persistent part through a staging buffer. A run is one submission of a command
 * buffer that was recorded when the artifact was opened: the batch and the hyperparameters go up,
 * the dispatches follow, the outputs come down. State moves only when one side needs the other's. */
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>

#include "vulkan.h"

/* Where the tensors that outlive a run end in the block. */
static uint64_t persistent_bytes(const aot *model) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    uint64_t own = model->offsets[i] + model->tensors[i].bytes;
    if (model->tensors[i].kind != AOT_TEMP && own > end) end = own;
  }
  return (end + AOT_ALIGNMENT - 1) / AOT_ALIGNMENT * AOT_ALIGNMENT;
}

aot_status aot_backend_allocate(aot *model) {
  struct device *device = model->device = calloc(1, sizeof *device);
  if (!device) return aot_fail(model, AOT_MEMORY, "out of memory");
  aot_status status = aot_vulkan_connect(model, device);
  if (status) return status;
  uint32_t most = device->properties.limits.maxStorageBufferRange;
  if (model->planned_bytes > most)
    return aot_fail(model, AOT_DEVICE,
                    "device '%s' lets a kernel see %u bytes, the plan needs %llu\nhint: compile with "
                    "--memory-budget, or a smaller --batch",
                    device->properties.deviceName, most, (unsigned long long)model->planned_bytes);
  uint64_t bytes = persistent_bytes(model);
  status = aot_vulkan_memory(model, device, &device->block, model->planned_bytes, false);
  if (!status) status = aot_vulkan_memory(model, device, &device->stage, bytes, true);
  if (status) return status;
  void *seen;
  TRY(model, device, vkMapMemory, device->device, device->stage.memory, 0, device->stage.bytes, 0,
      &seen);
  model->block = seen;
  memset(model->block, 0, (size_t)device->stage.bytes);
  for (uint32_t i = 0; i < model->tensor_count; i++)
    if (model->tensors[i].kind != AOT_TEMP)
      model->tensors[i].data = (uint8_t *)model->block + model->offsets[i];
  model->scratch_bytes = device->stage.bytes;
  model->threads = 1;
  return AOT_OK;
}

static aot_status check_library(aot *model, const struct device *device) {
  const aot_shader_library *shaders = device->shaders;
  if (!shaders) return aot_fail(model, AOT_BAD_ARTIFACT, "kernels.so exports no aot_shaders");
  if (shaders->abi != AOT_SHADER_ABI)
    return aot_fail(model, AOT_NEWER, "kernels.so has ABI %u, this loader calls ABI %u",
                    shaders->abi, AOT_SHADER_ABI);
  if (shaders->count != model->kernel_count)
    return aot_fail(model, AOT_BAD_ARTIFACT, "kernels.so holds %u kernels, the plan names %u",
                    shaders->count, model->kernel_count);
  uint32_t lacks = shaders->features & ~device->features;
  if (lacks)
    return aot_fail(model, AOT_DEVICE, "device '%s' lacks what the kernels use:%s%s%s",
                    device->properties.deviceName, lacks & AOT_SHADER_INT64 ? " shaderInt64" : "",
                    lacks & AOT_SHADER_FLOAT64 ? " shaderFloat64" : "",
                    lacks & AOT_SHADER_STORAGE8 ? " storageBuffer8BitAccess" : "");
  for (uint32_t i = 0; i < model->launch_count; i++) { /* launches have what dispatches ask for */
    const struct launch *launch = &model->launches[i];
    for (uint32_t d = shaders->first[launch->kernel]; d < shaders->first[launch->kernel + 1]; d++)
      for (uint32_t a = 0; a < shaders->dispatches[d].arg_count; a++)
        if (shaders->dispatches[d].args[a] >= launch->tensor_count ||
            shaders->dispatches[d].arg_count > AOT_PUSH_CONSTANTS)
          return aot_fail(model, AOT_BAD_ARTIFACT, "kernels.so does not fit the plan's launches");
  }
  return AOT_OK;
}

static aot_status submit(aot *model, VkCommandBuffer commands) {
  struct device *device = model->device;
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .commandBufferCount = 1,
                       .pCommandBuffers = &commands};
  TRY(model, device, vkQueueSubmit, device->queue, 1, &info, device->fence);
  TRY(model, device, vkWaitForFences, device->device, 1, &device->fence, 1, UINT64_MAX);
  TRY(model, device, vkResetFences, device->device, 1, &device->fence);
  return AOT_OK;
}

aot_status aot_backend_open(aot *model) {
  struct device *device = model->device;
  device->shaders = dlsym(model->library, "aot_shaders");
  aot_status status = check_library(model, device);
  if (!status) status = aot_vulkan_record(model, device);
  device->host_newer = true;
  return status;
}

static aot_status report_times(aot *model, const struct entry *entry) {
  struct device *device = model->device;
  uint32_t count = entry->launch_count;
  TRY(model, device, vkGetQueryPoolResults, device->device, device->queries, 0, count + 1,
      (count + 1) * sizeof *device->ticks, device->ticks, sizeof *device->ticks,
      VK_QUERY_RESULT_64_BIT);
  double tick = (double)device->properties.limits.timestampPeriod;
  for (uint32_t i = 0; i < count; i++) {
    const struct launch *launch = &entry->launches[i];
    aot_launch seen = {.entry = entry->name,
                       .kernel = model->kernels[launch->kernel],
                       .origin = launch->origin,
                       .index = i,
                       .ns = (uint64_t)((double)(device->ticks[i + 1] - device->ticks[i]) * tick)};
    model->trace(model->trace_user, &seen);
  }
  return AOT_OK;
}

aot_status aot_backend_run(aot *model, const struct entry *entry) {
  struct device *device = model->device;
  aot_status status = device->host_newer ? submit(model, device->upload) : AOT_OK;
  if (status) return status;
  device->host_newer = false;
  status = submit(model, device->entries[entry - model->entries]);
  if (entry == model->train) device->device_newer = true;
  if (!status && model->trace) status = report_times(model, entry);
  return status;
}

aot_status aot_backend_sync(aot *model, bool written) {
  struct device *device = model->device;
  aot_status status = device->device_newer ? submit(model, device->download) : AOT_OK;
  if (status) return status;
  device->device_newer = false;
  device->host_newer |= written;
  return AOT_OK;
}

static void free_memory(const struct device *device, const struct memory *memory) {
  device->vkDestroyBuffer(device->device, memory->buffer, NULL);
  device->vkFreeMemory(device->device, memory->memory, NULL);
}

static void free_device(struct device *device) {
  VkDevice of = device->device;
  device->vkDeviceWaitIdle(of);
  for (uint32_t i = 0; device->pipelines && i < device->dispatch_count; i++)
    device->vkDestroyPipeline(of, device->pipelines[i], NULL);
  device->vkDestroyQueryPool(of, device->queries, NULL);
  device->vkDestroyFence(of, device->fence, NULL);
  device->vkDestroyCommandPool(of, device->command_pool, NULL);
  device->vkDestroyDescriptorPool(of, device->set_pool, NULL);
  device->vkDestroyPipelineLayout(of, device->layout, NULL);
  device->vkDestroyDescriptorSetLayout(of, device->set_layout, NULL);
  free_memory(device, &device->stage);
  free_memory(device, &device->block);
  device->vkDestroyDevice(of, NULL);
}

void aot_backend_close(aot *model) {
  struct device *device = model->device;
  if (!device) return;
  if (device->device && device->vkDestroyDevice) free_device(device);
  if (device->instance && device->vkDestroyInstance)
    device->vkDestroyInstance(device->instance, NULL);
  if (device->driver) dlclose(device->driver);
  free(device->pipelines);
  free(device->entries);
  free(device->ticks);
  free(device->copies);
  free(device);
}
