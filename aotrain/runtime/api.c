/* api.c: aot_open and aot_close, and access to tensors. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <dlfcn.h>

#include "internal.h"

/* What aot_open hands out when not even a handle can be allocated. */
static aot no_memory = {.error = "AOT-M030: out of memory"};

static const char *dtype_name(aot_dtype dtype) {
  static const char *const names[] = {"bool",    "int8",     "uint8",  "int16",  "uint16",
                                      "float16", "bfloat16", "int32",  "uint32", "float32",
                                      "int64",   "uint64",   "float64"};
  return names[dtype];
}

/* Checks that folder/name is the file that the plan was written with. */
static aot_status check_file(aot *model, const char *path, const char *name,
                             struct digest expected) {
  uint64_t bytes;
  int file = aot_open_file(path, &bytes);
  if (file < 0)
    return aot_fail(model, AOT_BAD_ARTIFACT, "cannot open %s: %s", path, strerror(errno));
  uint32_t crc = 0;
  bool read = bytes == expected.bytes && aot_crc_file(file, 0, bytes, &crc);
  int reason = errno;
  close(file);
  if (bytes != expected.bytes)
    return aot_fail(model, AOT_BAD_ARTIFACT,
                    "%s has %llu bytes, the plan says %llu: truncated or from another artifact",
                    name, (unsigned long long)bytes, (unsigned long long)expected.bytes);
  if (!read) return aot_fail(model, AOT_IO, "cannot read %s: %s", path, strerror(reason));
  if (crc != expected.crc)
    return aot_fail(model, AOT_BAD_ARTIFACT,
                    "%s is corrupted or from another artifact: its checksum does not match", name);
  return AOT_OK;
}

static aot_status allocate(aot *model) {
  uint64_t bytes = model->planned_bytes;
  if (bytes % AOT_ALIGNMENT || bytes > SIZE_MAX / 2)
    return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is corrupted: a block of %llu bytes",
                    (unsigned long long)bytes);
  aot_status status = aot_backend_allocate(model);
  if (status) return status;
  model->block_bytes = bytes;
  model->header_bytes = aot_state_header_bound(model);
  model->header = malloc((size_t)model->header_bytes);
  if (!model->header) return aot_fail(model, AOT_MEMORY, "out of memory");
  model->table_bytes += model->header_bytes;
  return AOT_OK;
}

static aot_status fill_constants(aot *model, int plan, uint64_t plan_bytes) {
  uint64_t at = model->constants_at;
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    aot_tensor *tensor = &model->tensors[i];
    if (tensor->kind == AOT_HYPER) {
      float value = (float)model->defaults[i];
      memcpy(tensor->data, &value, sizeof value);
    }
    if (tensor->kind != AOT_CONSTANT) continue;
    if (tensor->bytes > plan_bytes - at)
      return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is corrupted: constant '%s' is cut off",
                      tensor->name);
    if (!aot_read_at(plan, tensor->data, tensor->bytes, at))
      return aot_fail(model, AOT_IO, "cannot read plan.bin: %s", strerror(errno));
    at += tensor->bytes;
  }
  if (at != plan_bytes)
    return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is corrupted: bytes after the constants");
  return AOT_OK;
}

static aot_status open_plan(aot *model, const char *folder) {
  char path[PATH_MAX];
  if (!aot_join(path, sizeof path, folder, "plan.bin"))
    return aot_fail(model, AOT_BAD_ARGUMENT, "the path of the artifact is too long");
  uint64_t bytes;
  int plan = aot_open_file(path, &bytes);
  if (plan < 0)
    return aot_fail(model, AOT_BAD_ARTIFACT,
                    "cannot open %s: %s\nhint: name a folder that aotrain compile wrote", path,
                    strerror(errno));
  aot_status status = aot_plan_read(model, plan, bytes);
  if (!status) status = allocate(model);
  if (!status) status = fill_constants(model, plan, bytes);
  close(plan);
  return status;
}

static aot_status open_files(aot *model, const char *folder) {
  char path[PATH_MAX];
  aot_join(path, sizeof path, folder,
           "kernels.so"); /* fits: shorter names than plan.bin's were checked */
  aot_status status = check_file(model, path, "kernels.so", model->kernel_file);
  if (status) return status;
  model->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!model->library)
    return aot_fail(model, AOT_BAD_ARTIFACT, "cannot load the kernels: %s", dlerror());
  status = aot_backend_open(model);
  if (status) return status;
  if (!aot_join(path, sizeof path, folder, "state.safetensors"))
    return aot_fail(model, AOT_BAD_ARGUMENT, "the path of the artifact is too long");
  status = check_file(model, path, "state.safetensors", model->state_file);
  return status ? status : aot_load(model, path, NULL, 0);
}

/* Of the options, else of the environment (an empty variable counts as none), else all cores. */
static aot_status thread_count(aot *model, const aot_options *options, uint32_t *count) {
  long threads = options ? options->threads : 0;
  const char *variable = getenv("AOTRUN_NUM_THREADS");
  if (threads < 0) return aot_fail(model, AOT_BAD_ARGUMENT, "%ld threads", threads);
  if (!threads && variable && *variable) {
    char *end;
    threads = strtol(variable, &end, 10);
    if (*end || threads <= 0)
      return aot_fail(model, AOT_BAD_ARGUMENT,
                      "AOTRUN_NUM_THREADS is '%s', not a whole number above 0", variable);
  }
  if (!threads) threads = (long)aot_online_cores();
  *count = threads > 1024 ? 1024u : (uint32_t)threads;
  return AOT_OK;
}

static void close_backend(aot *model) {
  aot_backend_close(model);
  model->block = NULL, model->pool = NULL, model->device = NULL;
}

aot_status aot_open(const char *folder, const aot_options *options, aot **out) {
  aot *model = calloc(1, sizeof *model);
  *out = model ? model : &no_memory;
  if (!model) return AOT_MEMORY;
  if (!folder) return aot_fail(model, AOT_BAD_ARGUMENT, "no folder given");
  if (options) model->trace = options->trace, model->trace_user = options->user;
  aot_status status = thread_count(model, options, &model->threads);
  if (!status) status = open_plan(model, folder);
  if (!status) status = open_files(model, folder);
  if (status) close_backend(model); /* keep the message only: nothing else works on this handle */
  return status;
}

void aot_close(aot *model) {
  if (!model || model == &no_memory) return;
  close_backend(model);
  if (model->library) dlclose(model->library);
  free(model->header);
  free(model->tables);
  free(model->tensors);
  free(model->offsets);
  free(model->defaults);
  free(model->found);
  free(model->dims);
  free(model->kernels);
  free(model->entries);
  free(model->launches);
  free(model->args);
  free(model->arg_tensor);
  free(model->signature);
  free(model);
}

const char *aot_error(const aot *model) { return model ? model->error : no_memory.error; }

static aot_status check_open(aot *model) {
  return model->block ? AOT_OK : aot_fail(model, AOT_BAD_ARGUMENT, "the artifact is not open");
}

aot_status aot_describe(aot *model, aot_info *info) {
  aot_status status = check_open(model);
  if (status) return status;
  *info = (aot_info){
      .name = model->name,
      .tensors = model->tensor_count,
      .threads = model->threads,
      .block_bytes = model->block_bytes,
      .scratch_bytes = model->scratch_bytes,
      .table_bytes = model->table_bytes,
      .step = aot_steps(model),
      .classes = model->classes,
      .ignored_label = model->ignored_label,
  };
  return AOT_OK;
}

aot_status aot_get_tensor(aot *model, uint32_t index, aot_tensor *tensor) {
  aot_status status = check_open(model);
  if (status) return status;
  if (index >= model->tensor_count)
    return aot_fail(model, AOT_BAD_ARGUMENT, "tensor %u of %u", index, model->tensor_count);
  *tensor = model->tensors[index];
  return tensor->kind == AOT_STATE ? aot_backend_sync(model, true) : AOT_OK;
}

static aot_tensor *named(aot *model, const char *name) {
  for (uint32_t i = 0; name && i < model->tensor_count; i++)
    if (model->tensors[i].kind != AOT_TEMP && strcmp(model->tensors[i].name, name) == 0)
      return &model->tensors[i];
  return NULL;
}

aot_status aot_find(aot *model, const char *name, aot_tensor *tensor) {
  aot_status status = check_open(model);
  if (status) return status;
  const aot_tensor *found = named(model, name);
  if (!found) return aot_fail(model, AOT_BAD_ARGUMENT, "no tensor '%s'", name ? name : "(null)");
  return aot_get_tensor(model, found->index, tensor);
}

aot_status aot_entry(aot *model, const char *name, aot_signature *signature) {
  aot_status status = check_open(model);
  for (uint32_t i = 0; !status && name && i < model->entry_count; i++)
    if (strcmp(model->entries[i].name, name) == 0) {
      *signature = model->entries[i].signature;
      return AOT_OK;
    }
  return status ? status
                : aot_fail(model, AOT_BAD_ARGUMENT, "no entry point '%s'", name ? name : "(null)");
}

static aot_status check_copy(aot *model, const char *name, const void *data, uint64_t bytes,
                             aot_tensor *tensor) {
  aot_status status = aot_find(model, name, tensor);
  if (status) return status;
  if (bytes != tensor->bytes)
    return aot_fail(model, AOT_BAD_ARGUMENT, "'%s' (%s) has %llu bytes, not %llu", name,
                    dtype_name(tensor->dtype), (unsigned long long)tensor->bytes,
                    (unsigned long long)bytes);
  return data || !bytes ? AOT_OK
                        : aot_fail(model, AOT_BAD_ARGUMENT, "no data given for '%s'", name);
}

aot_status aot_set(aot *model, const char *name, const void *data, uint64_t bytes) {
  aot_tensor tensor;
  aot_status status = check_copy(model, name, data, bytes, &tensor);
  if (status) return status;
  if (tensor.kind != AOT_INPUT && tensor.kind != AOT_STATE)
    return aot_fail(model, AOT_BAD_ARGUMENT, "'%s' is neither an input nor state", name);
  if (bytes) memcpy(tensor.data, data, (size_t)bytes);
  return AOT_OK;
}

aot_status aot_get(aot *model, const char *name, void *data, uint64_t bytes) {
  aot_tensor tensor;
  aot_status status = check_copy(model, name, data, bytes, &tensor);
  if (!status && bytes) memcpy(data, tensor.data, (size_t)bytes);
  return status;
}

/* As aotrain/step/options.py HYPER_RANGE has it; a name that is not listed takes any number. */
static aot_status check_hyper(aot *model, const char *name, double value) {
  static const char *const positive[] = {"lr", "momentum", "weight_decay", "eps", "beta1", "beta2"};
  for (size_t i = 0; i < sizeof positive / sizeof *positive; i++) {
    if (strcmp(name, positive[i]) != 0) continue;
    bool below_one = strncmp(name, "beta", 4) == 0;
    if (value < 0 || (below_one && value >= 1))
      return aot_fail(model, AOT_BAD_ARGUMENT, "%s = %g is not in [0, %s)", name, value,
                      below_one ? "1" : "inf");
  }
  return isfinite((float)value)
             ? AOT_OK
             : aot_fail(model, AOT_BAD_ARGUMENT, "%s = %g is no finite float32", name, value);
}

aot_status aot_set_hyper(aot *model, const char *name, double value) {
  aot_status status = check_open(model);
  if (status) return status;
  aot_tensor *tensor = named(model, name);
  if (!tensor || tensor->kind != AOT_HYPER)
    return aot_fail(model, AOT_BAD_ARGUMENT, "no hyperparameter '%s'", name ? name : "(null)");
  status = check_hyper(model, name, value);
  if (status) return status;
  float narrow = (float)value;
  memcpy(tensor->data, &narrow, sizeof narrow);
  return AOT_OK;
}
