/* vulkan_record.c: the shaders and the plan in, pipelines and recorded command buffers out. */
#include <stdlib.h>
#include <string.h>

#include "vulkan.h"

static aot_status create_layouts(aot *model, struct device *device) {
  VkDescriptorSetLayoutBinding binding = {.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                          .descriptorCount = 1,
                                          .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  VkDescriptorSetLayoutCreateInfo set = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = 1,
      .pBindings = &binding};
  TRY(model, device, vkCreateDescriptorSetLayout, device->device, &set, NULL, &device->set_layout);
  VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                              .size = AOT_PUSH_CONSTANTS * sizeof(uint32_t)};
  VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                     .setLayoutCount = 1,
                                     .pSetLayouts = &device->set_layout,
                                     .pushConstantRangeCount = 1,
                                     .pPushConstantRanges = &push};
  TRY(model, device, vkCreatePipelineLayout, device->device, &info, NULL, &device->layout);
  return AOT_OK;
}

static aot_status bind_block(aot *model, struct device *device) {
  VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
  VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                     .maxSets = 1,
                                     .poolSizeCount = 1,
                                     .pPoolSizes = &size};
  TRY(model, device, vkCreateDescriptorPool, device->device, &pool, NULL, &device->set_pool);
  VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                          .descriptorPool = device->set_pool,
                                          .descriptorSetCount = 1,
                                          .pSetLayouts = &device->set_layout};
  TRY(model, device, vkAllocateDescriptorSets, device->device, &allocate, &device->set);
  VkDescriptorBufferInfo block = {device->block.buffer, 0, device->block.bytes};
  VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                .dstSet = device->set,
                                .descriptorCount = 1,
                                .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                .pBufferInfo = &block};
  device->vkUpdateDescriptorSets(device->device, 1, &write, 0, NULL);
  return AOT_OK;
}

static aot_status create_pipeline(aot *model, struct device *device, const aot_dispatch *dispatch,
                                  VkPipeline *out) {
  VkShaderModule module;
  VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                   .codeSize = dispatch->word_count * sizeof(uint32_t),
                                   .pCode = dispatch->words};
  TRY(model, device, vkCreateShaderModule, device->device, &info, NULL, &module);
  VkComputePipelineCreateInfo pipeline = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main"},
      .layout = device->layout};
  VkResult result =
      device->vkCreateComputePipelines(device->device, NULL, 1, &pipeline, NULL, out);
  device->vkDestroyShaderModule(device->device, module, NULL);
  return result < 0 ? aot_vulkan_failed(model, "vkCreateComputePipelines", result) : AOT_OK;
}

static aot_status create_pipelines(aot *model, struct device *device) {
  device->dispatch_count = device->shaders->first[model->kernel_count];
  device->pipelines = calloc(device->dispatch_count + 1, sizeof *device->pipelines);
  device->entries = calloc(model->entry_count + 1, sizeof *device->entries);
  size_t most = 0;
  for (uint32_t i = 0; i < model->entry_count; i++) {
    const aot_signature *signature = &model->entries[i].signature;
    size_t count = (size_t)signature->input_count + signature->output_count;
    if (count > most) most = count;
  }
  device->copies = calloc(model->tensor_count + most + 1, sizeof *device->copies);
  if (!device->pipelines || !device->entries || !device->copies)
    return aot_fail(model, AOT_MEMORY, "out of memory");
  aot_status status = AOT_OK;
  for (uint32_t i = 0; !status && i < device->dispatch_count; i++)
    status = create_pipeline(model, device, &device->shaders->dispatches[i], &device->pipelines[i]);
  return status;
}

static aot_status create_queries(aot *model, struct device *device) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < model->entry_count; i++)
    if (model->entries[i].launch_count > most) most = model->entries[i].launch_count;
  device->ticks = calloc(most + 1, sizeof *device->ticks);
  if (!device->ticks) return aot_fail(model, AOT_MEMORY, "out of memory");
  VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                .queryCount = most + 1};
  TRY(model, device, vkCreateQueryPool, device->device, &info, NULL, &device->queries);
  return AOT_OK;
}

static void barrier(const struct device *device, VkCommandBuffer to, VkFlags before, VkFlags wrote,
                    VkFlags after, VkFlags access) {
  VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                            .srcAccessMask = wrote,
                            .dstAccessMask = access};
  device->vkCmdPipelineBarrier(to, before, after, 0, 1, &memory, 0, NULL, 0, NULL);
}

/* Appends a tensor to `device->copies`; neighbours, and the padding between, become one region. */
static uint32_t add_copy(const aot *model, const struct device *device, uint32_t count,
                         uint32_t tensor) {
  uint64_t offset = model->offsets[tensor], bytes = model->tensors[tensor].bytes;
  if (!bytes) return count;
  VkBufferCopy *last = count ? &device->copies[count - 1] : NULL;
  uint64_t gap = last ? offset - (last->srcOffset + last->size) : UINT64_MAX;
  if (gap < AOT_ALIGNMENT) {
    last->size += gap + bytes;
    return count;
  }
  device->copies[count] = (VkBufferCopy){offset, offset, bytes};
  return count + 1;
}

static void copy(const struct device *device, VkCommandBuffer to, bool up, uint32_t count) {
  VkBuffer stage = device->stage.buffer, block = device->block.buffer;
  if (count)
    device->vkCmdCopyBuffer(to, up ? stage : block, up ? block : stage, count, device->copies);
}

static void upload_batch(const aot *model, const struct device *device, VkCommandBuffer to,
                         const struct entry *entry) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < entry->signature.input_count; i++)
    count = add_copy(model, device, count, entry->signature.inputs[i]);
  for (uint32_t i = 0; i < model->tensor_count; i++)
    if (model->tensors[i].kind == AOT_HYPER) count = add_copy(model, device, count, i);
  copy(device, to, true, count);
  barrier(device, to, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

static void download_results(const aot *model, const struct device *device, VkCommandBuffer to,
                             const struct entry *entry) {
  barrier(device, to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_READ_BIT);
  uint32_t count = 0;
  for (uint32_t i = 0; i < entry->signature.output_count; i++)
    count = add_copy(model, device, count, entry->signature.outputs[i]);
  if (model->step_counter) count = add_copy(model, device, count, model->step_counter->index);
  copy(device, to, false, count);
  barrier(device, to, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
          VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
}

static void record_launch(const aot *model, const struct device *device, VkCommandBuffer to,
                          const struct launch *launch) {
  const aot_shader_library *shaders = device->shaders;
  for (uint32_t d = shaders->first[launch->kernel]; d < shaders->first[launch->kernel + 1]; d++) {
    const aot_dispatch *dispatch = &shaders->dispatches[d];
    uint32_t places[AOT_PUSH_CONSTANTS];
    for (uint32_t a = 0; a < dispatch->arg_count; a++)
      places[a] = (uint32_t)(model->offsets[launch->tensors[dispatch->args[a]]] / sizeof(uint32_t));
    device->vkCmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, device->pipelines[d]);
    if (dispatch->arg_count)
      device->vkCmdPushConstants(to, device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                 dispatch->arg_count * (uint32_t)sizeof *places, places);
    device->vkCmdDispatch(to, dispatch->across, dispatch->down, 1);
    barrier(device, to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  }
}

static void mark(const struct device *device, VkCommandBuffer to, uint32_t number) {
  if (device->queries)
    device->vkCmdWriteTimestamp(to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, device->queries, number);
}

static aot_status begin(aot *model, const struct device *device, VkCommandBuffer commands) {
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  TRY(model, device, vkBeginCommandBuffer, commands, &info);
  return AOT_OK;
}

static aot_status record_entry(aot *model, const struct device *device, const struct entry *entry,
                               VkCommandBuffer to) {
  aot_status status = begin(model, device, to);
  if (status) return status;
  if (device->queries) device->vkCmdResetQueryPool(to, device->queries, 0, entry->launch_count + 1);
  device->vkCmdBindDescriptorSets(to, VK_PIPELINE_BIND_POINT_COMPUTE, device->layout, 0, 1,
                                  &device->set, 0, NULL);
  upload_batch(model, device, to, entry);
  mark(device, to, 0);
  for (uint32_t i = 0; i < entry->launch_count; i++) {
    record_launch(model, device, to, &entry->launches[i]);
    mark(device, to, i + 1);
  }
  download_results(model, device, to, entry);
  TRY(model, device, vkEndCommandBuffer, to);
  return AOT_OK;
}

/* All that the host wrote before the first run, and state alone back. */
static aot_status record_exchange(aot *model, struct device *device, VkCommandBuffer to, bool up) {
  aot_status status = begin(model, device, to);
  if (status) return status;
  uint32_t count = 0;
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    aot_kind kind = model->tensors[i].kind;
    if (kind == AOT_STATE || (up && kind == AOT_CONSTANT)) count = add_copy(model, device, count, i);
  }
  copy(device, to, up, count);
  if (up)
    barrier(device, to, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
  else
    barrier(device, to, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  TRY(model, device, vkEndCommandBuffer, to);
  return AOT_OK;
}

static aot_status create_commands(aot *model, struct device *device) {
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .queueFamilyIndex = device->family};
  TRY(model, device, vkCreateCommandPool, device->device, &pool, NULL, &device->command_pool);
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = device->command_pool,
                                      .commandBufferCount = 1};
  TRY(model, device, vkAllocateCommandBuffers, device->device, &info, &device->upload);
  TRY(model, device, vkAllocateCommandBuffers, device->device, &info, &device->download);
  for (uint32_t i = 0; i < model->entry_count; i++)
    TRY(model, device, vkAllocateCommandBuffers, device->device, &info, &device->entries[i]);
  VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  TRY(model, device, vkCreateFence, device->device, &fence, NULL, &device->fence);
  return AOT_OK;
}

aot_status aot_vulkan_record(aot *model, struct device *device) {
  aot_status status = create_layouts(model, device);
  if (!status) status = bind_block(model, device);
  if (!status) status = create_pipelines(model, device);
  if (!status && model->trace) status = create_queries(model, device);
  if (!status) status = create_commands(model, device);
  if (!status) status = record_exchange(model, device, device->upload, true);
  if (!status) status = record_exchange(model, device, device->download, false);
  for (uint32_t i = 0; !status && i < model->entry_count; i++)
    status = record_entry(model, device, &model->entries[i], device->entries[i]);
  return status;
}
