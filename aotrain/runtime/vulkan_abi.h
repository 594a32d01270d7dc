/* vulkan_abi.h: the part of Vulkan 1.1's C interface that the loader uses, under its own names, so
 * that no header must be installed. Fields that are only skipped are called `unused`. 64-bit only. */
#ifndef AOT_VULKAN_ABI_H
#define AOT_VULKAN_ABI_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "handles are taken to be 64 bits wide");

/* clang-format off */
#define HANDLE(name) typedef struct name##_T *name;
HANDLE(VkInstance) HANDLE(VkPhysicalDevice) HANDLE(VkDevice) HANDLE(VkQueue) HANDLE(VkBuffer)
HANDLE(VkDeviceMemory) HANDLE(VkShaderModule) HANDLE(VkPipeline) HANDLE(VkPipelineLayout)
HANDLE(VkDescriptorSetLayout) HANDLE(VkDescriptorPool) HANDLE(VkDescriptorSet)
HANDLE(VkCommandPool) HANDLE(VkCommandBuffer) HANDLE(VkFence) HANDLE(VkQueryPool)
#undef HANDLE
/* clang-format on */

typedef int32_t VkResult;
typedef uint32_t VkFlags, VkBool32, VkStructureType;
typedef uint64_t VkDeviceSize;

enum {
  VK_SUCCESS = 0,
  VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,
  VK_ERROR_DEVICE_LOST = -4,
  VK_API_VERSION_1_1 = 1 << 22 | 1 << 12,
  VK_QUEUE_COMPUTE_BIT = 2,
  VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1,
  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 2,
  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 4,
  VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 8,
  VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 1,
  VK_BUFFER_USAGE_TRANSFER_DST_BIT = 2,
  VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 32,
  VK_DESCRIPTOR_TYPE_STORAGE_BUFFER = 7,
  VK_SHADER_STAGE_COMPUTE_BIT = 32,
  VK_PIPELINE_BIND_POINT_COMPUTE = 1,
  VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT = 2048,
  VK_PIPELINE_STAGE_TRANSFER_BIT = 4096,
  VK_PIPELINE_STAGE_HOST_BIT = 16384,
  VK_ACCESS_SHADER_READ_BIT = 32,
  VK_ACCESS_SHADER_WRITE_BIT = 64,
  VK_ACCESS_TRANSFER_READ_BIT = 2048,
  VK_ACCESS_TRANSFER_WRITE_BIT = 4096,
  VK_ACCESS_HOST_READ_BIT = 8192,
  VK_QUERY_TYPE_TIMESTAMP = 2,
  VK_QUERY_RESULT_64_BIT = 1,
};

enum {
  VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
  VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
  VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
  VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
  VK_STRUCTURE_TYPE_SUBMIT_INFO = 4,
  VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
  VK_STRUCTURE_TYPE_FENCE_CREATE_INFO = 8,
  VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO = 11,
  VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO = 12,
  VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO = 16,
  VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO = 18,
  VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO = 29,
  VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO = 30,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO = 32,
  VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO = 33,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
  VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET = 35,
  VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO = 39,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO = 40,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO = 42,
  VK_STRUCTURE_TYPE_MEMORY_BARRIER = 46,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 = 1000059000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES = 1000177000,
};

typedef struct VkApplicationInfo {
  VkStructureType sType;
  const void *pNext;
  const char *pApplicationName;
  uint32_t applicationVersion;
  const char *pEngineName;
  uint32_t engineVersion, apiVersion;
} VkApplicationInfo;

typedef struct VkInstanceCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  const VkApplicationInfo *pApplicationInfo;
  uint32_t enabledLayerCount;
  const char *const *ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct VkPhysicalDeviceLimits {
  uint32_t unused1[7], maxStorageBufferRange;
  uint32_t unused2[98];
  float timestampPeriod; /* nanoseconds a tick */
  uint32_t unused3[9];
  uint64_t unused4[5];
} VkPhysicalDeviceLimits;

typedef struct VkPhysicalDeviceProperties {
  uint32_t apiVersion, driverVersion, vendorID, deviceID, deviceType;
  char deviceName[256];
  uint8_t pipelineCacheUUID[16];
  VkPhysicalDeviceLimits limits;
  VkBool32 sparseProperties[5];
} VkPhysicalDeviceProperties;

typedef struct VkPhysicalDeviceFeatures {
  VkBool32 unused1[39], shaderFloat64, shaderInt64, unused2[14];
} VkPhysicalDeviceFeatures;

typedef struct VkPhysicalDeviceFeatures2 {
  VkStructureType sType;
  void *pNext;
  VkPhysicalDeviceFeatures features;
} VkPhysicalDeviceFeatures2;

typedef struct VkPhysicalDevice8BitStorageFeatures {
  VkStructureType sType;
  void *pNext;
  VkBool32 storageBuffer8BitAccess, uniformAndStorageBuffer8BitAccess, storagePushConstant8;
} VkPhysicalDevice8BitStorageFeatures;

typedef struct VkExtensionProperties {
  char extensionName[256];
  uint32_t specVersion;
} VkExtensionProperties;

typedef struct VkQueueFamilyProperties {
  VkFlags queueFlags;
  uint32_t queueCount, timestampValidBits, minImageTransferGranularity[3];
} VkQueueFamilyProperties;

typedef struct VkPhysicalDeviceMemoryProperties {
  uint32_t memoryTypeCount;
  struct {
    VkFlags propertyFlags;
    uint32_t heapIndex;
  } memoryTypes[32];
  uint32_t memoryHeapCount;
  struct {
    VkDeviceSize size;
    VkFlags flags;
  } memoryHeaps[16];
} VkPhysicalDeviceMemoryProperties;

typedef struct VkDeviceQueueCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex, queueCount;
  const float *pQueuePriorities;
} VkDeviceQueueCreateInfo;

typedef struct VkDeviceCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueCreateInfoCount;
  const VkDeviceQueueCreateInfo *pQueueCreateInfos;
  uint32_t enabledLayerCount;
  const char *const *ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char *const *ppEnabledExtensionNames;
  const VkPhysicalDeviceFeatures *pEnabledFeatures;
} VkDeviceCreateInfo;

typedef struct VkBufferCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  VkDeviceSize size;
  VkFlags usage;
  uint32_t sharingMode, queueFamilyIndexCount;
  const uint32_t *pQueueFamilyIndices;
} VkBufferCreateInfo;

typedef struct VkMemoryRequirements {
  VkDeviceSize size, alignment;
  uint32_t memoryTypeBits;
} VkMemoryRequirements;

typedef struct VkMemoryAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkDeviceSize allocationSize;
  uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;

typedef struct VkShaderModuleCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  size_t codeSize;
  const uint32_t *pCode;
} VkShaderModuleCreateInfo;

typedef struct VkDescriptorSetLayoutBinding {
  uint32_t binding, descriptorType, descriptorCount;
  VkFlags stageFlags;
  const void *pImmutableSamplers;
} VkDescriptorSetLayoutBinding;

typedef struct VkDescriptorSetLayoutCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t bindingCount;
  const VkDescriptorSetLayoutBinding *pBindings;
} VkDescriptorSetLayoutCreateInfo;

typedef struct VkPushConstantRange {
  VkFlags stageFlags;
  uint32_t offset, size;
} VkPushConstantRange;

typedef struct VkPipelineLayoutCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t setLayoutCount;
  const VkDescriptorSetLayout *pSetLayouts;
  uint32_t pushConstantRangeCount;
  const VkPushConstantRange *pPushConstantRanges;
} VkPipelineLayoutCreateInfo;

typedef struct VkPipelineShaderStageCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags, stage;
  VkShaderModule module;
  const char *pName;
  const void *pSpecializationInfo;
} VkPipelineShaderStageCreateInfo;

typedef struct VkComputePipelineCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  VkPipelineShaderStageCreateInfo stage;
  VkPipelineLayout layout;
  VkPipeline basePipelineHandle;
  int32_t basePipelineIndex;
} VkComputePipelineCreateInfo;

typedef struct VkDescriptorPoolSize {
  uint32_t type, descriptorCount;
} VkDescriptorPoolSize;

typedef struct VkDescriptorPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t maxSets, poolSizeCount;
  const VkDescriptorPoolSize *pPoolSizes;
} VkDescriptorPoolCreateInfo;

typedef struct VkDescriptorSetAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkDescriptorPool descriptorPool;
  uint32_t descriptorSetCount;
  const VkDescriptorSetLayout *pSetLayouts;
} VkDescriptorSetAllocateInfo;

typedef struct VkDescriptorBufferInfo {
  VkBuffer buffer;
  VkDeviceSize offset, range;
} VkDescriptorBufferInfo;

typedef struct VkWriteDescriptorSet {
  VkStructureType sType;
  const void *pNext;
  VkDescriptorSet dstSet;
  uint32_t dstBinding, dstArrayElement, descriptorCount, descriptorType;
  const void *pImageInfo;
  const VkDescriptorBufferInfo *pBufferInfo;
  const void *pTexelBufferView;
} VkWriteDescriptorSet;

typedef struct VkCommandPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex;
} VkCommandPoolCreateInfo;

typedef struct VkCommandBufferAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkCommandPool commandPool;
  uint32_t level, commandBufferCount;
} VkCommandBufferAllocateInfo;

typedef struct VkCommandBufferBeginInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  const void *pInheritanceInfo;
} VkCommandBufferBeginInfo;

typedef struct VkBufferCopy {
  VkDeviceSize srcOffset, dstOffset, size;
} VkBufferCopy;

typedef struct VkMemoryBarrier {
  VkStructureType sType;
  const void *pNext;
  VkFlags srcAccessMask, dstAccessMask;
} VkMemoryBarrier;

typedef struct VkSubmitInfo {
  VkStructureType sType;
  const void *pNext;
  uint32_t waitSemaphoreCount;
  const void *pWaitSemaphores, *pWaitDstStageMask;
  uint32_t commandBufferCount;
  const VkCommandBuffer *pCommandBuffers;
  uint32_t signalSemaphoreCount;
  const void *pSignalSemaphores;
} VkSubmitInfo;

typedef struct VkFenceCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
} VkFenceCreateInfo;

typedef struct VkQueryPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queryType, queryCount;
  VkFlags pipelineStatistics;
} VkQueryPoolCreateInfo;

/* X(name, parameters): functions of the instance and of the device; all give a VkResult but those
 * under VOID. The allocator, always null, is `const void *`. */
#define VK_INSTANCE_FUNCTIONS(X, VOID)                                                              \
  X(vkEnumeratePhysicalDevices, (VkInstance, uint32_t *, VkPhysicalDevice *))                       \
  X(vkEnumerateDeviceExtensionProperties,                                                           \
    (VkPhysicalDevice, const char *, uint32_t *, VkExtensionProperties *))                          \
  X(vkCreateDevice, (VkPhysicalDevice, const VkDeviceCreateInfo *, const void *, VkDevice *))       \
  VOID(vkGetPhysicalDeviceProperties, (VkPhysicalDevice, VkPhysicalDeviceProperties *))             \
  VOID(vkGetPhysicalDeviceFeatures2, (VkPhysicalDevice, VkPhysicalDeviceFeatures2 *))               \
  VOID(vkGetPhysicalDeviceQueueFamilyProperties,                                                    \
       (VkPhysicalDevice, uint32_t *, VkQueueFamilyProperties *))                                   \
  VOID(vkGetPhysicalDeviceMemoryProperties,                                                         \
       (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties *))                                      \
  VOID(vkDestroyInstance, (VkInstance, const void *))

#define VK_DEVICE_FUNCTIONS(X, VOID)                                                                \
  X(vkCreateBuffer, (VkDevice, const VkBufferCreateInfo *, const void *, VkBuffer *))               \
  X(vkAllocateMemory,                                                                               \
    (VkDevice, const VkMemoryAllocateInfo *, const void *, VkDeviceMemory *))                       \
  X(vkBindBufferMemory, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))                         \
  X(vkMapMemory, (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void **))          \
  X(vkCreateShaderModule,                                                                           \
    (VkDevice, const VkShaderModuleCreateInfo *, const void *, VkShaderModule *))                   \
  X(vkCreateDescriptorSetLayout, (VkDevice, const VkDescriptorSetLayoutCreateInfo *, const void *,  \
                                  VkDescriptorSetLayout *))                                         \
  X(vkCreatePipelineLayout,                                                                         \
    (VkDevice, const VkPipelineLayoutCreateInfo *, const void *, VkPipelineLayout *))               \
  X(vkCreateComputePipelines, (VkDevice, void *, uint32_t, const VkComputePipelineCreateInfo *,     \
                               const void *, VkPipeline *))                                         \
  X(vkCreateDescriptorPool,                                                                         \
    (VkDevice, const VkDescriptorPoolCreateInfo *, const void *, VkDescriptorPool *))               \
  X(vkAllocateDescriptorSets, (VkDevice, const VkDescriptorSetAllocateInfo *, VkDescriptorSet *))   \
  X(vkCreateCommandPool,                                                                            \
    (VkDevice, const VkCommandPoolCreateInfo *, const void *, VkCommandPool *))                     \
  X(vkAllocateCommandBuffers, (VkDevice, const VkCommandBufferAllocateInfo *, VkCommandBuffer *))   \
  X(vkBeginCommandBuffer, (VkCommandBuffer, const VkCommandBufferBeginInfo *))                      \
  X(vkEndCommandBuffer, (VkCommandBuffer))                                                          \
  X(vkCreateFence, (VkDevice, const VkFenceCreateInfo *, const void *, VkFence *))                  \
  X(vkQueueSubmit, (VkQueue, uint32_t, const VkSubmitInfo *, VkFence))                              \
  X(vkWaitForFences, (VkDevice, uint32_t, const VkFence *, VkBool32, uint64_t))                     \
  X(vkResetFences, (VkDevice, uint32_t, const VkFence *))                                           \
  X(vkDeviceWaitIdle, (VkDevice))                                                                   \
  X(vkCreateQueryPool, (VkDevice, const VkQueryPoolCreateInfo *, const void *, VkQueryPool *))      \
  X(vkGetQueryPoolResults, (VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void *,              \
                            VkDeviceSize, VkFlags))                                                 \
  VOID(vkGetDeviceQueue, (VkDevice, uint32_t, uint32_t, VkQueue *))                                 \
  VOID(vkGetBufferMemoryRequirements, (VkDevice, VkBuffer, VkMemoryRequirements *))                 \
  VOID(vkUpdateDescriptorSets,                                                                      \
       (VkDevice, uint32_t, const VkWriteDescriptorSet *, uint32_t, const void *))                  \
  VOID(vkCmdBindPipeline, (VkCommandBuffer, uint32_t, VkPipeline))                                  \
  VOID(vkCmdBindDescriptorSets, (VkCommandBuffer, uint32_t, VkPipelineLayout, uint32_t, uint32_t,   \
                                 const VkDescriptorSet *, uint32_t, const uint32_t *))              \
  VOID(vkCmdPushConstants,                                                                          \
       (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void *))              \
  VOID(vkCmdDispatch, (VkCommandBuffer, uint32_t, uint32_t, uint32_t))                              \
  VOID(vkCmdPipelineBarrier,                                                                        \
       (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier *, uint32_t,    \
        const void *, uint32_t, const void *))                                                      \
  VOID(vkCmdCopyBuffer, (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy *))      \
  VOID(vkCmdFillBuffer, (VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t))          \
  VOID(vkCmdResetQueryPool, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t))                     \
  VOID(vkCmdWriteTimestamp, (VkCommandBuffer, VkFlags, VkQueryPool, uint32_t))                      \
  VOID(vkDestroyBuffer, (VkDevice, VkBuffer, const void *))                                         \
  VOID(vkFreeMemory, (VkDevice, VkDeviceMemory, const void *))                                      \
  VOID(vkDestroyShaderModule, (VkDevice, VkShaderModule, const void *))                             \
  VOID(vkDestroyDescriptorSetLayout, (VkDevice, VkDescriptorSetLayout, const void *))               \
  VOID(vkDestroyPipelineLayout, (VkDevice, VkPipelineLayout, const void *))                         \
  VOID(vkDestroyPipeline, (VkDevice, VkPipeline, const void *))                                     \
  VOID(vkDestroyDescriptorPool, (VkDevice, VkDescriptorPool, const void *))                         \
  VOID(vkDestroyCommandPool, (VkDevice, VkCommandPool, const void *))                               \
  VOID(vkDestroyFence, (VkDevice, VkFence, const void *))                                           \
  VOID(vkDestroyQueryPool, (VkDevice, VkQueryPool, const void *))                                   \
  VOID(vkDestroyDevice, (VkDevice, const void *))

#endif
