/* describe.c: an open artifact in, its signature and sizes printed: what `aotrun model.aot`
 * alone does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static void print_tensor(const char *what, const aot_tensor *tensor) {
  printf("  %-7s %s  %s[", what, tensor->name, dtype_name(tensor->dtype));
  for (uint32_t axis = 0; axis < tensor->rank; axis++)
    printf(axis ? ", %" PRId64 : "%" PRId64, tensor->shape[axis]);
  printf("]\n");
}

static void print_entry(aot *model, const char *name) {
  aot_signature signature;
  aot_tensor tensor;
  if (aot_entry(model, name, &signature)) return;
  printf("%s\n", name);
  for (uint32_t i = 0; i < signature.input_count; i++)
    if (!aot_get_tensor(model, signature.inputs[i], &tensor)) print_tensor("input", &tensor);
  for (uint32_t i = 0; i < signature.output_count; i++)
    if (!aot_get_tensor(model, signature.outputs[i], &tensor)) print_tensor("output", &tensor);
}

int describe(aot *model, const struct options *options) {
  aot_info info;
  aot_describe(model, &info);
  uint64_t trainable = 0, state = 0;
  for (uint32_t i = 0; i < info.tensors; i++) {
    aot_tensor tensor;
    if (aot_get_tensor(model, i, &tensor) || tensor.kind != AOT_STATE) continue;
    state += tensor.bytes;
    if (tensor.role == AOT_TRAINABLE) trainable += tensor.bytes / dtype_bytes(tensor.dtype);
  }
  if (options->json) {
    report_sizes(trainable, state, info.block_bytes);
    return EXIT_DONE;
  }
  printf("%s: %" PRIu64 " trainable parameters, %" PRIu64 " bytes of state, %" PRIu64
         " bytes in all\n",
         info.name, trainable, state, info.block_bytes);
  print_entry(model, "train");
  print_entry(model, "eval");
  print_entry(model, "predict");
  for (uint32_t i = 0; i < info.tensors; i++) {
    aot_tensor tensor;
    if (aot_get_tensor(model, i, &tensor) || tensor.kind != AOT_HYPER) continue;
    float value;
    memcpy(&value, tensor.data, sizeof value);
    printf("--set %s=%g\n", tensor.name, (double)value);
  }
  return EXIT_DONE;
}
