/* embed.c: a compiled model trained from a C program. aotrun.h is the manual.
 *
 *   cc embed.c -Imodel.aot model.aot/libaotrun.so -Wl,-rpath,"$PWD/model.aot" -o embed
 *   ./embed model.aot trained.safetensors */
#include <stdio.h>
#include <stdlib.h>

#include "aotrun.h"

static int fail(aot *model) {
  fprintf(stderr, "%s\n", aot_error(model));
  aot_close(model);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: embed model.aot out.safetensors\n"), 2;
  aot *model;
  if (aot_open(argv[1], NULL, &model)) return fail(model);

  aot_signature train;
  aot_tensor x, y; /* x float32 [batch, ...], y int64 [batch] */
  if (aot_entry(model, "train", &train) || train.input_count != 2) return fail(model);
  if (aot_get_tensor(model, train.inputs[0], &x) || aot_get_tensor(model, train.inputs[1], &y))
    return fail(model);

  for (int step = 0; step < 100; step++) {
    for (int64_t row = 0; row < y.shape[0]; row++) { /* your data: here, bright rows are class 1 */
      int64_t width = (int64_t)(x.bytes / sizeof(float)) / y.shape[0];
      ((int64_t *)y.data)[row] = rand() % 2;
      for (int64_t i = 0; i < width; i++)
        ((float *)x.data)[row * width + i] = (float)((int64_t *)y.data)[row];
    }
    float loss;
    if (aot_step(model, &loss)) return fail(model);
    if (step % 25 == 0 || step == 99) printf("step %d  loss %.4f\n", step, (double)loss);
  }
  if (aot_save(model, argv[2], NULL, 0)) return fail(model);
  aot_close(model);
  return 0;
}
