/* vulkan_device.c: libvulkan by dlopen in, a device with a compute queue, and its memory, out. */
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>

#include "vulkan.h"

enum { DEVICES_MAX = 32, FAMILIES_MAX = 32 };

typedef void (*any_function)(void);
typedef any_function (*get_function)(void *, const char *);

static any_function symbol(void *library, const char *name) {
  any_function found;
  void *address = dlsym(library, name);
  memcpy(&found, &address, sizeof found); /* ISO C has no cast from data to function pointers */
  return found;
}

aot_status aot_vulkan_failed(aot *model, const char *call, VkResult result) {
  if (result == VK_ERROR_DEVICE_LOST)
    return aot_fail(model, AOT_DEVICE,
                    "the device was lost in %s\nhint: train on from the last checkpoint", call);
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
    return aot_fail(model, AOT_DEVICE,
                    "the device is out of memory in %s; the plan needs %llu bytes\nhint: compile "
                    "with --memory-budget, or a smaller --batch",
                    call, (unsigned long long)model->planned_bytes);
  return aot_fail(model, AOT_DEVICE, "%s failed with VkResult %d", call, (int)result);
}

static aot_status load_functions(aot *model, struct device *device, get_function get, void *of,
                                 bool of_device) {
  const char *missing = NULL;
#define LOAD(name, parameters)                                                \
  {                                                                           \
    any_function found = get(of, #name);                                      \
    if (!found) missing = #name;                                              \
    memcpy(&device->name, &found, sizeof found);                              \
  }
  if (of_device) {
    VK_DEVICE_FUNCTIONS(LOAD, LOAD)
  } else {
    VK_INSTANCE_FUNCTIONS(LOAD, LOAD)
  }
#undef LOAD
  return missing ? aot_fail(model, AOT_DEVICE, "libvulkan has no %s: Vulkan 1.1 is needed", missing)
                 : AOT_OK;
}

static aot_status create_instance(aot *model, struct device *device, get_function *get) {
  device->driver = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!device->driver)
    return aot_fail(model, AOT_DEVICE,
                    "libvulkan.so.1 cannot be loaded: %s\nhint: install Vulkan's loader and a "
                    "driver (Debian: libvulkan1 and mesa-vulkan-drivers)",
                    dlerror());
  any_function entry = symbol(device->driver, "vkGetInstanceProcAddr");
  if (!entry) return aot_fail(model, AOT_DEVICE, "libvulkan.so.1 is no Vulkan loader");
  memcpy(get, &entry, sizeof entry);
  any_function found = (*get)(NULL, "vkCreateInstance");
  if (!found) return aot_fail(model, AOT_DEVICE, "libvulkan.so.1 is no Vulkan loader");
  VkResult (*create)(const VkInstanceCreateInfo *, const void *, VkInstance *);
  memcpy(&create, &found, sizeof found);
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "aotrun",
                                   .apiVersion = VK_API_VERSION_1_1};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                               .pApplicationInfo = &application};
  VkResult result = create(&info, NULL, &device->instance);
  if (result != VK_SUCCESS)
    return aot_fail(model, AOT_DEVICE,
                    "no Vulkan driver can be used (VkResult %d)\nhint: install one (Debian: "
                    "mesa-vulkan-drivers)",
                    (int)result);
  return load_functions(model, device, *get, device->instance, false);
}

/* Discrete before integrated before virtual before a processor. */
static int rank(const VkPhysicalDeviceProperties *properties) {
  static const int ranks[] = {0, 3, 4, 2, 1};
  return properties->deviceType < 5 ? ranks[properties->deviceType] : 0;
}

/* What AOTRUN_DEVICE says: a position in the list, or part of a name. */
static bool chosen(const char *wish, uint32_t index, const char *name) {
  char *end;
  unsigned long number = strtoul(wish, &end, 10);
  return *end ? strstr(name, wish) != NULL : number == index;
}

static aot_status choose(aot *model, struct device *device) {
  VkPhysicalDevice found[DEVICES_MAX];
  uint32_t count = DEVICES_MAX;
  TRY(model, device, vkEnumeratePhysicalDevices, device->instance, &count, found);
  const char *wish = getenv("AOTRUN_DEVICE");
  char names[512] = "";
  int best = -1;
  for (uint32_t i = 0; i < count; i++) {
    VkPhysicalDeviceProperties properties;
    device->vkGetPhysicalDeviceProperties(found[i], &properties);
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%u: %s", i ? ", " : "", i,
             properties.deviceName);
    if (wish && *wish && !chosen(wish, i, properties.deviceName)) continue;
    if (properties.apiVersion < VK_API_VERSION_1_1 || rank(&properties) <= best) continue;
    best = rank(&properties);
    device->physical = found[i];
    device->properties = properties;
  }
  if (best >= 0) return AOT_OK;
  if (wish && *wish && count)
    return aot_fail(model, AOT_DEVICE,
                    "no Vulkan 1.1 device fits AOTRUN_DEVICE='%s'\nhint: there are %s", wish, names);
  return aot_fail(model, AOT_DEVICE, "no device with Vulkan 1.1%s%s\nhint: install a driver "
                  "(Debian: mesa-vulkan-drivers)", count ? " among " : "", names);
}

static aot_status find_queue(aot *model, struct device *device) {
  VkQueueFamilyProperties families[FAMILIES_MAX];
  uint32_t count = FAMILIES_MAX;
  device->vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &count, families);
  for (uint32_t i = 0; i < count; i++)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
      device->family = i;
      return AOT_OK;
    }
  return aot_fail(model, AOT_DEVICE, "device '%s' has no compute queue",
                  device->properties.deviceName);
}

static aot_status find_extension(aot *model, struct device *device) {
  uint32_t count = 0;
  TRY(model, device, vkEnumerateDeviceExtensionProperties, device->physical, NULL, &count, NULL);
  VkExtensionProperties *found = calloc(count + 1, sizeof *found);
  if (!found) return aot_fail(model, AOT_MEMORY, "out of memory");
  VkResult result =
      device->vkEnumerateDeviceExtensionProperties(device->physical, NULL, &count, found);
  for (uint32_t i = 0; result >= 0 && i < count; i++)
    if (strcmp(found[i].extensionName, "VK_KHR_8bit_storage") == 0)
      device->has_8bit_extension = true;
  free(found);
  return AOT_OK;
}

/* All of the optional features that shaders may use, where the device has them. */
static aot_status create_device(aot *model, struct device *device) {
  static const char *const extensions[] = {"VK_KHR_8bit_storage"};
  VkPhysicalDevice8BitStorageFeatures small = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES};
  void *chain = device->has_8bit_extension ? &small : NULL;
  VkPhysicalDeviceFeatures2 has = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = chain};
  device->vkGetPhysicalDeviceFeatures2(device->physical, &has);
  VkPhysicalDeviceFeatures2 use = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = chain};
  use.features.shaderInt64 = has.features.shaderInt64;
  use.features.shaderFloat64 = has.features.shaderFloat64;
  device->features = (has.features.shaderInt64 ? AOT_SHADER_INT64 : 0u) |
                     (has.features.shaderFloat64 ? AOT_SHADER_FLOAT64 : 0u) |
                     (small.storageBuffer8BitAccess ? AOT_SHADER_STORAGE8 : 0u);
  float priority = 1;
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = device->family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &priority};
  VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                             .pNext = &use,
                             .queueCreateInfoCount = 1,
                             .pQueueCreateInfos = &queue,
                             .enabledExtensionCount = device->has_8bit_extension,
                             .ppEnabledExtensionNames = extensions};
  TRY(model, device, vkCreateDevice, device->physical, &info, NULL, &device->device);
  return AOT_OK;
}

aot_status aot_vulkan_connect(aot *model, struct device *device) {
  get_function get = NULL;
  aot_status status = create_instance(model, device, &get);
  if (!status) status = choose(model, device);
  if (!status) status = find_queue(model, device);
  if (!status) status = find_extension(model, device);
  if (!status) status = create_device(model, device);
  if (!status) {
    any_function found = get(device->instance, "vkGetDeviceProcAddr");
    get_function of_device;
    memcpy(&of_device, &found, sizeof found);
    status = load_functions(model, device, of_device, device->device, true);
  }
  if (status) return status;
  device->vkGetPhysicalDeviceMemoryProperties(device->physical, &device->memories);
  device->vkGetDeviceQueue(device->device, device->family, 0, &device->queue);
  return AOT_OK;
}

/* The first type among `allowed` that has all of `flags`; -1: there is none. */
static int memory_type(const struct device *device, uint32_t allowed, VkFlags flags) {
  for (uint32_t i = 0; i < device->memories.memoryTypeCount; i++)
    if ((allowed >> i & 1) && (device->memories.memoryTypes[i].propertyFlags & flags) == flags)
      return (int)i;
  return -1;
}

aot_status aot_vulkan_memory(aot *model, struct device *device, struct memory *out, uint64_t bytes,
                             bool host) {
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = bytes ? bytes : AOT_ALIGNMENT,
                             .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                      (host ? 0u : VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)};
  out->bytes = info.size;
  TRY(model, device, vkCreateBuffer, device->device, &info, NULL, &out->buffer);
  VkMemoryRequirements needs;
  device->vkGetBufferMemoryRequirements(device->device, out->buffer, &needs);
  VkFlags must = host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                      : 0;
  VkFlags best = host ? must | VK_MEMORY_PROPERTY_HOST_CACHED_BIT
                      : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  int type = memory_type(device, needs.memoryTypeBits, best);
  if (type < 0) type = memory_type(device, needs.memoryTypeBits, must);
  if (type < 0)
    return aot_fail(model, AOT_DEVICE, "device '%s' has no memory of the kind that is needed",
                    device->properties.deviceName);
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = needs.size,
                                   .memoryTypeIndex = (uint32_t)type};
  VkResult result = device->vkAllocateMemory(device->device, &allocate, NULL, &out->memory);
  uint32_t heap = device->memories.memoryTypes[type].heapIndex;
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
    return aot_fail(model, AOT_DEVICE,
                    "device '%s' has %llu bytes of memory in all and does not give the %llu that "
                    "the plan needs\nhint: compile with --memory-budget, or a smaller --batch",
                    device->properties.deviceName,
                    (unsigned long long)device->memories.memoryHeaps[heap].size,
                    (unsigned long long)needs.size);
  if (result < 0) return aot_vulkan_failed(model, "vkAllocateMemory", result);
  TRY(model, device, vkBindBufferMemory, device->device, out->buffer, out->memory, 0);
  return AOT_OK;
}
