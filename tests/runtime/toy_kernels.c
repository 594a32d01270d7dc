/* Softmax regression as a kernel library: [B, D] features, C classes, momentum SGD.
 *
 * Built with -DB= -DD= -DC=. */
#include <math.h>
#include <stddef.h>

#include "aot_kernel_abi.h"

static const aot_host *host;

static void bind(const aot_host *given) { host = given; }

/* x [B, D], mean [D] -> centred [B, D] */
static int32_t center(void *const *args) {
  const float *x = args[0], *mean = args[1];
  float *centred = args[2];
  for (int i = 0; i < B * D; i++) centred[i] = x[i] - mean[i % D];
  return 0;
}

/* One row a task, by way of the thread's scratch, to have both exercised. */
static int logits_row(int row, void *env, void *closure) {
  void *const *args = closure;
  const float *centred = args[0], *weight = args[1], *bias = args[2];
  float *logits = args[3];
  if (((struct {
        void *unused;
        int32_t tasks;
      } *)env)
          ->tasks != B)
    return 7;
  float *sum = host->scratch_push(C * sizeof(float));
  if (!sum || (size_t)sum % 64) return 8;
  for (int c = 0; c < C; c++) sum[c] = bias[c];
  for (int d = 0; d < D; d++)
    for (int c = 0; c < C; c++) sum[c] += centred[row * D + d] * weight[d * C + c];
  for (int c = 0; c < C; c++) logits[row * C + c] = sum[c];
  host->scratch_pop(sum);
  return 0;
}

/* centred [B, D], weight [D, C], bias [C] -> logits [B, C] */
static int32_t logits(void *const *args) {
  return host->parallel(logits_row, (void *)(uintptr_t)args, B);
}

/* Loss of one row; its gradient when asked for. */
static float row_loss(const float *z, int64_t label, float *grad) {
  float top = z[0], sum = 0;
  for (int c = 1; c < C; c++) top = z[c] > top ? z[c] : top;
  for (int c = 0; c < C; c++) sum += expf(z[c] - top);
  for (int c = 0; grad && c < C; c++) grad[c] = (expf(z[c] - top) / sum - (c == label)) / B;
  return logf(sum) + top - z[label];
}

/* logits [B, C], label [B] -> grad [B, C], loss */
static int32_t loss_and_grad(void *const *args) {
  const float *z = args[0];
  const int64_t *label = args[1];
  float *grad = args[2], *loss = args[3];
  *loss = 0;
  for (int b = 0; b < B; b++)
    if (label[b] >= 0) *loss += row_loss(z + b * C, label[b], grad + b * C) / B;
    else
      for (int c = 0; c < C; c++) grad[b * C + c] = 0;
  return 0;
}

/* weight [D, C], bias [C], momentum [D, C], centred [B, D], grad [B, C], lr: the first three in
 * place */
static int32_t update(void *const *args) {
  float *weight = args[0], *bias = args[1], *momentum = args[2];
  const float *centred = args[3], *grad = args[4], *lr = args[5];
  for (int d = 0; d < D; d++)
    for (int c = 0; c < C; c++) {
      float sum = 0;
      for (int b = 0; b < B; b++) sum += centred[b * D + d] * grad[b * C + c];
      momentum[d * C + c] = 0.9f * momentum[d * C + c] + sum;
      weight[d * C + c] -= *lr * momentum[d * C + c];
    }
  for (int b = 0; b < B; b++)
    for (int c = 0; c < C; c++) bias[c] -= *lr * grad[b * C + c];
  return 0;
}

/* step int64, rng uint32[2], seen int16 */
static int32_t tick(void *const *args) {
  ++*(int64_t *)args[0];
  ++((uint32_t *)args[1])[1];
  ++*(int16_t *)args[2];
  return 0;
}

/* logits [B, C], label [B], rows -> loss, correct, count */
static int32_t score(void *const *args) {
  const float *z = args[0];
  const int64_t *label = args[1];
  int32_t rows = *(int32_t *)args[2], *correct = args[4], *count = args[5];
  float *loss = args[3];
  *loss = 0, *correct = 0, *count = 0;
  for (int b = 0; b < rows; b++) {
    if (label[b] < 0) continue;
    int best = 0;
    for (int c = 1; c < C; c++) best = z[b * C + c] > z[b * C + best] ? c : best;
    *loss += row_loss(z + b * C, label[b], NULL);
    *correct += best == label[b];
    ++*count;
  }
  if (*count) *loss /= (float)*count;
  return 0;
}

static const aot_kernel_fn kernels[] = {center, logits, loss_and_grad, update, tick, score};

const aot_kernel_library aot_kernels = {AOT_KERNEL_ABI, sizeof kernels / sizeof *kernels, kernels,
                                        bind};
