/* tables.c: the tables of plan.bin in, tensors, kernels and entries out, every index and size
 * checked.
 *
 * Integers are little-endian and packed; a string is u32 length, its bytes, one NUL.
 *
 *   u32 kernel ABI; u64 bytes, u32 CRC of kernels.so; the same of state.safetensors; string name
 *   u64 block bytes, u64 scratch bytes a thread, i64 classes (0: none), i64 ignored label
 *   u32 tensors, kernels, entries, launches; u64 dims, args, signature indices: totals
 *   tensor: string name, origin; u8 dtype, kind, role, rank, has_default; f64 default;
 *           u64 offset; i64[rank]
 *   kernel: string
 *   entry:  string name; u32 launches, inputs, outputs; u32[inputs]; u32[outputs]; launch...
 *   launch: u32 kernel, args, writes; u32[args]; u32[writes]; string origin */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct cursor {
  const uint8_t *at, *end;
  bool bad; /* something did not fit; reads then give 0 */
};

struct totals { /* what the tables announced and what is still unused of it */
  uint64_t dims, args, signature;
  uint32_t launches;
};

static uint64_t take(struct cursor *in, unsigned bytes) {
  if ((uint64_t)(in->end - in->at) < bytes) {
    in->bad = true;
    return 0;
  }
  uint64_t value = 0;
  for (unsigned i = bytes; i--;) value = value << 8 | in->at[i];
  in->at += bytes;
  return value;
}

static uint32_t take32(struct cursor *in) { return (uint32_t)take(in, 4); }

static const char *take_string(struct cursor *in) {
  uint64_t length = take(in, 4);
  if ((uint64_t)(in->end - in->at) <= length || in->at[length] != 0 ||
      memchr(in->at, 0, (size_t)length)) {
    in->bad = true;
    return "";
  }
  const char *text = (const char *)in->at;
  in->at += length + 1;
  return text;
}

static aot_status corrupt(aot *model, const char *what) {
  return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is corrupted: %s", what);
}

uint32_t aot_item_bytes(aot_dtype dtype) {
  static const uint8_t bytes[] = {1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};
  return bytes[dtype];
}

/* An array of `count` elements that takes at least `least` bytes each in the file, or null. */
static void *table(aot *model, const struct cursor *in, uint64_t count, uint64_t least,
                   size_t size) {
  if (count > (uint64_t)(in->end - in->at) / least) return NULL;
  model->table_bytes += count * size;
  return calloc((size_t)count + 1, size); /* + 1: never of size 0 */
}

static aot_status parse_head(aot *model, struct cursor *in, struct totals *left) {
  uint32_t abi = take32(in);
  model->kernel_file.bytes = take(in, 8);
  model->kernel_file.crc = take32(in);
  model->state_file.bytes = take(in, 8);
  model->state_file.crc = take32(in);
  model->name = take_string(in);
  model->planned_bytes = take(in, 8);
  model->thread_scratch = take(in, 8);
  model->classes = (int64_t)take(in, 8);
  model->ignored_label = (int64_t)take(in, 8);
  model->tensor_count = take32(in);
  model->kernel_count = take32(in);
  model->entry_count = take32(in);
  model->launch_count = left->launches = take32(in);
  left->dims = take(in, 8);
  model->arg_total = left->args = take(in, 8);
  left->signature = take(in, 8);
  if (in->bad) return corrupt(model, "its tables are cut off");
  if (abi != AOT_KERNEL_ABI)
    return aot_fail(model, AOT_NEWER,
                    "the artifact's kernels have ABI %u, this loader calls ABI %u", abi,
                    AOT_KERNEL_ABI);
  model->tensors = table(model, in, model->tensor_count, 31, sizeof *model->tensors);
  model->offsets = table(model, in, model->tensor_count, 31, sizeof *model->offsets);
  model->defaults = table(model, in, model->tensor_count, 31, sizeof *model->defaults);
  model->found = table(model, in, model->tensor_count, 31, sizeof *model->found);
  model->dims = table(model, in, left->dims, 8, sizeof *model->dims);
  model->kernels = table(model, in, model->kernel_count, 5, sizeof *model->kernels);
  model->entries = table(model, in, model->entry_count, 17, sizeof *model->entries);
  model->launches = table(model, in, left->launches, 17, sizeof *model->launches);
  model->args = table(model, in, left->args, 4, sizeof *model->args);
  model->arg_tensor = table(model, in, left->args, 4, sizeof *model->arg_tensor);
  model->signature = table(model, in, left->signature, 4, sizeof *model->signature);
  if (!model->tensors || !model->offsets || !model->defaults || !model->found || !model->dims ||
      !model->kernels || !model->entries || !model->launches || !model->args ||
      !model->arg_tensor || !model->signature)
    return corrupt(model, "a table is longer than the file (or memory is exhausted)");
  return AOT_OK;
}

/* Bytes of a dense tensor; false when a dimension is negative or the product overflows. */
static bool dense_bytes(const aot_tensor *tensor, uint64_t *bytes) {
  uint64_t product = aot_item_bytes(tensor->dtype);
  for (uint32_t axis = 0; axis < tensor->rank; axis++)
    if (tensor->shape[axis] < 0 ||
        __builtin_mul_overflow(product, (uint64_t)tensor->shape[axis], &product))
      return false;
  *bytes = product;
  return true;
}

static aot_status parse_tensor(aot *model, struct cursor *in, struct totals *left, int64_t **dims,
                               uint32_t index) {
  aot_tensor *tensor = &model->tensors[index];
  tensor->index = index;
  tensor->name = take_string(in);
  take_string(in); /* origin: for reports */
  uint64_t dtype = take(in, 1), kind = take(in, 1), role = take(in, 1);
  tensor->rank = (uint32_t)take(in, 1);
  bool has_default = take(in, 1) != 0;
  uint64_t bits = take(in, 8);
  memcpy(&model->defaults[index], &bits, 8);
  model->offsets[index] = take(in, 8);
  if (in->bad || tensor->rank > left->dims) return corrupt(model, "a tensor is cut off");
  if (dtype > AOT_FLOAT64 || kind > AOT_TEMP || role > AOT_COUNTER ||
      (role != 0) != (kind == AOT_STATE))
    return corrupt(model, "a tensor has an unknown dtype, kind or role");
  tensor->dtype = (aot_dtype)dtype;
  tensor->kind = (aot_kind)kind;
  tensor->role = (aot_role)role;
  tensor->shape = *dims;
  for (uint32_t axis = 0; axis < tensor->rank; axis++) (*dims)[axis] = (int64_t)take(in, 8);
  *dims += tensor->rank;
  left->dims -= tensor->rank;
  if (in->bad || !dense_bytes(tensor, &tensor->bytes))
    return corrupt(model, "a tensor's shape is impossible");
  uint64_t offset = model->offsets[index];
  if (offset % AOT_ALIGNMENT || offset > model->planned_bytes ||
      tensor->bytes > model->planned_bytes - offset)
    return corrupt(model, "a tensor lies outside the block or is not aligned");
  if (has_default != (kind == AOT_HYPER) || (has_default && (tensor->rank || dtype != AOT_FLOAT32)))
    return corrupt(model, "a hyperparameter is no float32 scalar with a default");
  return AOT_OK;
}

static bool take_indices(struct cursor *in, uint32_t *out, uint64_t count, uint32_t limit) {
  for (uint64_t i = 0; i < count; i++) {
    uint32_t index = take32(in);
    if (index >= limit) return false;
    if (out) out[i] = index;
  }
  return !in->bad;
}

static aot_status parse_launch(aot *model, struct cursor *in, struct totals *left,
                               struct launch *launch) {
  launch->kernel = take32(in);
  uint32_t args = take32(in), writes = take32(in);
  uint64_t first = model->arg_total - left->args;
  if (in->bad || launch->kernel >= model->kernel_count || args > left->args)
    return corrupt(model, "a launch names a kernel or argument that there is not");
  launch->args = model->args + first;
  launch->tensors = model->arg_tensor + first;
  launch->tensor_count = args;
  left->args -= args;
  if (!take_indices(in, model->arg_tensor + first, args, model->tensor_count) ||
      !take_indices(in, NULL, writes, args))
    return corrupt(model, "a launch's argument is no tensor");
  launch->origin = take_string(in);
  return in->bad ? corrupt(model, "a launch is cut off") : AOT_OK;
}

static aot_status parse_entry(aot *model, struct cursor *in, struct totals *left,
                              struct entry *entry, uint32_t **indices) {
  entry->name = take_string(in);
  entry->launch_count = take32(in);
  aot_signature *signature = &entry->signature;
  signature->input_count = take32(in);
  signature->output_count = take32(in);
  uint64_t both = (uint64_t)signature->input_count + signature->output_count;
  if (in->bad || entry->launch_count > left->launches || both > left->signature)
    return corrupt(model, "an entry point is cut off");
  signature->inputs = *indices;
  signature->outputs = *indices + signature->input_count;
  if (!take_indices(in, *indices, both, model->tensor_count))
    return corrupt(model, "an entry point's input or output is no tensor");
  *indices += both;
  left->signature -= both;
  entry->launches = model->launches + (model->launch_count - left->launches);
  left->launches -= entry->launch_count;
  for (uint32_t i = 0; i < entry->launch_count; i++) {
    aot_status status = parse_launch(model, in, left, &entry->launches[i]);
    if (status) return status;
  }
  return AOT_OK;
}

static struct entry *entry_named(aot *model, const char *name) {
  for (uint32_t i = 0; i < model->entry_count; i++)
    if (strcmp(model->entries[i].name, name) == 0) return &model->entries[i];
  return NULL;
}

/* The tensors and entries that the loader itself knows by name. */
static aot_status resolve_names(aot *model) {
  model->train = entry_named(model, "train");
  model->eval = entry_named(model, "eval");
  model->predict = entry_named(model, "predict");
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    aot_tensor *tensor = &model->tensors[i];
    if (tensor->role != AOT_COUNTER || strcmp(tensor->name, "step") != 0) continue;
    if (tensor->rank || tensor->dtype != AOT_INT64)
      return corrupt(model, "the step counter is no int64 scalar");
    model->step_counter = tensor;
  }
  for (uint32_t i = 0; model->train && i < model->train->signature.output_count; i++) {
    aot_tensor *tensor = &model->tensors[model->train->signature.outputs[i]];
    if (strcmp(tensor->name, "loss") != 0) continue;
    if (tensor->bytes != 4 || tensor->dtype != AOT_FLOAT32)
      return corrupt(model, "the loss is no float32 scalar");
    model->loss = tensor;
  }
  return AOT_OK;
}

aot_status aot_tables_parse(aot *model, const uint8_t *tables, uint64_t bytes) {
  struct cursor in = {tables, tables + bytes, false};
  struct totals left;
  aot_status status = parse_head(model, &in, &left);
  int64_t *dims = model->dims;
  uint32_t *indices = model->signature;
  for (uint32_t i = 0; !status && i < model->tensor_count; i++)
    status = parse_tensor(model, &in, &left, &dims, i);
  for (uint32_t i = 0; !status && i < model->kernel_count; i++)
    model->kernels[i] = take_string(&in);
  for (uint32_t i = 0; !status && i < model->entry_count; i++)
    status = parse_entry(model, &in, &left, &model->entries[i], &indices);
  if (status) return status;
  if (in.bad || in.at != in.end || left.dims || left.args || left.signature || left.launches)
    return corrupt(model, "its tables do not add up");
  return resolve_names(model);
}
