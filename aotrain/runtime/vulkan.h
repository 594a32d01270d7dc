/* vulkan.h: what the files of the Vulkan backend share. */
#ifndef AOT_VULKAN_H
#define AOT_VULKAN_H

#include "internal.h"
#include "aot_shader_abi.h"
#include "vulkan_abi.h"

#define FIELD(name, parameters) VkResult(*name) parameters;
#define VOID_FIELD(name, parameters) void(*name) parameters;

struct memory { /* a buffer with memory of its own */
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint64_t bytes;
};

struct device {
  void *driver; /* dlopen's: libvulkan */
  VK_INSTANCE_FUNCTIONS(FIELD, VOID_FIELD)
  VK_DEVICE_FUNCTIONS(FIELD, VOID_FIELD)
  VkInstance instance;
  VkPhysicalDevice physical;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memories;
  VkDevice device;
  VkQueue queue;
  uint32_t family, features; /* AOT_SHADER_... */
  bool has_8bit_extension;

  struct memory block; /* the plan's block, in the device's memory */
  struct memory stage; /* its persistent part, which the host sees as model->block */

  const aot_shader_library *shaders;
  VkDescriptorSetLayout set_layout;
  VkPipelineLayout layout;
  VkPipeline *pipelines; /* [dispatch_count], as in the library */
  uint32_t dispatch_count;
  VkDescriptorPool set_pool;
  VkDescriptorSet set;
  VkCommandPool command_pool;
  VkCommandBuffer upload, download; /* all state and constants; all state */
  VkCommandBuffer *entries;         /* [entry_count] */
  VkFence fence;
  VkQueryPool queries; /* only where launches are traced */
  uint64_t *ticks;     /* [launches + 1 of the longest entry] */
  VkBufferCopy *copies; /* while recording */

  bool host_newer;   /* the state in `stage` is to be uploaded before the next run */
  bool device_newer; /* the state in `block` is to be downloaded before the host reads it */
};

#undef FIELD
#undef VOID_FIELD

/* vulkan_device.c: libvulkan and a device of it; AOTRUN_DEVICE chooses. */
aot_status aot_vulkan_connect(aot *model, struct device *device);
aot_status aot_vulkan_memory(aot *model, struct device *device, struct memory *out, uint64_t bytes,
                             bool host);
/* A failed call of Vulkan as the model's error. */
aot_status aot_vulkan_failed(aot *model, const char *call, VkResult result);

/* vulkan_record.c: pipelines, and the command buffers that are replayed. */
aot_status aot_vulkan_record(aot *model, struct device *device);

/* Returns from the calling function, which gives an aot_status, when a call fails. */
#define TRY(model, device, call, ...)                                         \
  do {                                                                        \
    VkResult result_ = (device)->call(__VA_ARGS__);                           \
    if (result_ < 0) return aot_vulkan_failed(model, #call, result_);         \
  } while (0)

#endif
