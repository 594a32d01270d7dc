/* run.c: a batch in, one step, evaluation or prediction out: what is checked and counted around it. */
#include <math.h>
#include <string.h>

#include "internal.h"

int64_t aot_steps(const aot *model) {
  int64_t steps = model->steps;
  if (model->step_counter) memcpy(&steps, model->step_counter->data, sizeof steps);
  return steps;
}

void aot_set_steps(aot *model, int64_t steps) { model->steps = steps; }

static aot_status run(aot *model, const struct entry *entry, const char *name) {
  if (!model->block) return aot_fail(model, AOT_BAD_ARGUMENT, "the artifact is not open");
  if (!entry)
    return aot_fail(model, AOT_BAD_ARGUMENT, "the artifact has no entry point '%s'", name);
  return aot_backend_run(model, entry);
}

/* Class indices of the first `rows` rows of the target, the last input of train: one that is out of
 * range would make the loss NaN, and with it all of the state. */
static aot_status check_labels(aot *model, int64_t rows) {
  if (!model->block || model->classes <= 0 || !model->train || !model->train->signature.input_count)
    return AOT_OK;
  const aot_signature *signature = &model->train->signature;
  const aot_tensor *target = &model->tensors[signature->inputs[signature->input_count - 1]];
  if (target->dtype != AOT_INT64 || !target->rank || target->shape[0] <= 0) return AOT_OK;
  int64_t width = (int64_t)(target->bytes / sizeof(int64_t)) / target->shape[0];
  const int64_t *labels = target->data;
  if (rows > target->shape[0]) rows = target->shape[0];
  for (int64_t i = 0; i < rows * width; i++)
    if ((labels[i] < 0 || labels[i] >= model->classes) && labels[i] != model->ignored_label)
      return aot_fail(model, AOT_BAD_LABEL,
                      "label %lld in row %lld of '%s' is outside 0 .. %lld\nhint: labels are class "
                      "indices that start at 0",
                      (long long)labels[i], (long long)(i / width), target->name,
                      (long long)model->classes - 1);
  return AOT_OK;
}

aot_status aot_step(aot *model, float *loss) {
  aot_status status = check_labels(model, INT64_MAX);
  if (!status) status = run(model, model->train, "train");
  if (status) return status;
  model->steps++;
  float value = 0;
  if (model->loss) memcpy(&value, model->loss->data, sizeof value);
  if (loss) *loss = value;
  if (isfinite(value)) return AOT_OK;
  return aot_fail(
      model, AOT_NOT_FINITE,
      "the loss is %s at step %lld\nhint: a lower learning rate, or look for NaN in the data",
      isnan(value) ? "NaN" : "infinite", (long long)aot_steps(model));
}

static aot_tensor *among(aot *model, const uint32_t *indices, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(model->tensors[indices[i]].name, name) == 0) return &model->tensors[indices[i]];
  return NULL;
}

static int64_t integer(const aot_tensor *tensor) {
  if (!tensor) return -1;
  int32_t narrow;
  int64_t wide;
  if (tensor->dtype == AOT_INT64) memcpy(&wide, tensor->data, sizeof wide);
  else if (tensor->dtype == AOT_INT32) memcpy(&narrow, tensor->data, sizeof narrow), wide = narrow;
  else wide = -1;
  return wide;
}

aot_status aot_eval(aot *model, int32_t rows, aot_result *result) {
  if (!model->eval) return run(model, NULL, "eval");
  const aot_signature *signature = &model->eval->signature;
  aot_tensor *limit = among(model, signature->inputs, signature->input_count, "rows");
  const aot_tensor *batch = signature->input_count ? &model->tensors[signature->inputs[0]] : NULL;
  int64_t all = batch && batch->rank ? batch->shape[0] : INT32_MAX;
  if (rows < 0 || rows > all)
    return aot_fail(model, AOT_BAD_ARGUMENT, "eval of %d rows, the batch has %lld", rows,
                    (long long)all);
  if (rows == 0) rows = (int32_t)(all > INT32_MAX ? INT32_MAX : all);
  if (limit && limit->bytes == sizeof rows) memcpy(limit->data, &rows, sizeof rows);
  else if (rows != all)
    return aot_fail(model, AOT_BAD_ARGUMENT, "this artifact evaluates whole batches only");
  aot_status status = check_labels(model, rows);
  if (!status) status = run(model, model->eval, "eval");
  if (status || !result) return status;
  const aot_tensor *loss = among(model, signature->outputs, signature->output_count, "loss");
  result->loss = 0;
  if (loss && loss->bytes == sizeof result->loss)
    memcpy(&result->loss, loss->data, sizeof result->loss);
  result->correct = integer(among(model, signature->outputs, signature->output_count, "correct"));
  result->count = integer(among(model, signature->outputs, signature->output_count, "count"));
  return AOT_OK;
}

aot_status aot_predict(aot *model) { return run(model, model->predict, "predict"); }
