/* predict.c: rows in, the model's outputs for them as an .npz out. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

struct outputs {
  struct array arrays[PAIRS_MAX]; /* [rows, ...] */
  aot_tensor tensors[PAIRS_MAX];  /* [batch, ...] */
  uint8_t *bytes[PAIRS_MAX];
  uint64_t row[PAIRS_MAX]; /* bytes */
  uint32_t count;
};

static int allocate(struct outputs *outputs, aot *model, const struct dataset *data) {
  aot_signature signature;
  aot_status status = aot_entry(model, "predict", &signature);
  if (status) return refuse_model(model, status);
  for (uint32_t i = 0; i < signature.output_count && i < PAIRS_MAX; i++) {
    aot_tensor *tensor = &outputs->tensors[i];
    struct array *array = &outputs->arrays[i];
    aot_get_tensor(model, signature.outputs[i], tensor);
    if (!tensor->rank || tensor->shape[0] != data->batch || tensor->rank > RANK_MAX ||
        tensor->dtype == AOT_BFLOAT16)
      return refuse(EXIT_INPUT, "AOT-D020", NULL,
                    "output '%s' has no row for each row of the input", tensor->name);
    size_t length = strlen(tensor->name);
    if (length >= sizeof array->name) length = sizeof array->name - 1;
    memcpy(array->name, tensor->name, length);
    array->dtype = tensor->dtype;
    array->rank = tensor->rank;
    memcpy(array->shape, tensor->shape, tensor->rank * sizeof *array->shape);
    array->shape[0] = data->rows;
    outputs->row[i] = tensor->bytes / (uint64_t)data->batch;
    outputs->count++;
    if (!array_bytes(array, &array->bytes) ||
        !(outputs->bytes[i] = malloc((size_t)array->bytes + 1)))
      return refuse(EXIT_INPUT, "AOT-M030", NULL, "out of memory");
    array->data = outputs->bytes[i];
  }
  return EXIT_DONE;
}

static int run_all(struct outputs *outputs, aot *model, const struct dataset *data,
                   uint64_t *order) {
  for (int64_t row = 0; row < data->rows && !interrupted; row += data->batch) {
    int64_t rows = data->rows - row < data->batch ? data->rows - row : data->batch;
    for (int64_t i = 0; i < rows; i++) order[i] = (uint64_t)(row + i);
    dataset_feed(data, order, rows);
    aot_status status = aot_predict(model);
    if (status) return refuse_model(model, status);
    for (uint32_t i = 0; i < outputs->count; i++)
      memcpy(outputs->bytes[i] + (uint64_t)row * outputs->row[i], outputs->tensors[i].data,
             (size_t)((uint64_t)rows * outputs->row[i]));
  }
  return interrupted ? refuse(EXIT_INTERRUPTED, "AOT-U130", NULL, "interrupted") : EXIT_DONE;
}

int predict(aot *model, const struct options *options) {
  static struct dataset data;
  static struct outputs outputs;
  struct fault fault;
  uint64_t *order = NULL;
  int failed = dataset_open(&data, model, "predict", options->predict, options);
  if (!failed) failed = allocate(&outputs, model, &data);
  if (!failed && !(order = malloc((size_t)data.batch * sizeof *order)))
    failed = refuse(EXIT_INPUT, "AOT-M030", NULL, "out of memory");
  if (!failed) failed = run_all(&outputs, model, &data, order);
  if (!failed && !npz_write(options->output, outputs.arrays, outputs.count, &fault))
    failed = refuse(EXIT_INPUT, fault.code, fault.hint, "%s: %s", options->output, fault.text);
  for (uint32_t i = 0; i < outputs.count; i++) free(outputs.bytes[i]);
  free(order);
  if (!failed) say(options, "wrote %s", options->output);
  return failed;
}
