/* exercise.c: an artifact, a checkpoint's path, a thread count in; every function, right and wrong.
 *
 * Run under sanitizers and valgrind. With COUNT_ALLOCATIONS it counts every malloc of the process,
 * libc's own included, and fails if one happens between aot_open and aot_close. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aotrun.h"

static volatile int counting, allocations;

#ifdef COUNT_ALLOCATIONS
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static void count(void) {
  if (counting) allocations++;
}

void *malloc(size_t bytes) { return count(), __libc_malloc(bytes); }
void *calloc(size_t items, size_t bytes) { return count(), __libc_calloc(items, bytes); }
void *realloc(void *old, size_t bytes) { return count(), __libc_realloc(old, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) {
  return count(), __libc_memalign(alignment, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  return count(), __libc_memalign(alignment, bytes);
}
#endif

#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, aot_error(model));                \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static void right_uses(aot *model, const char *path) {
  aot_info info;
  aot_tensor x, y;
  aot_signature train;
  aot_result result;
  float loss = 0, first = 0;
  MUST(!aot_describe(model, &info) && info.tensors == 17 && info.block_bytes % 64 == 0);
  MUST(!aot_find(model, "x", &x) && x.rank == 2 && !aot_find(model, "y", &y));
  MUST(!aot_entry(model, "train", &train) && train.input_count == 2 && train.inputs[0] == x.index);
  for (uint64_t i = 0; i < x.bytes / 4; i++) ((float *)x.data)[i] = (float)(i % 7) / 7;
  int64_t labels[4] = {0, 1, 2, 0};
  MUST(!aot_set(model, "y", labels, sizeof labels));
  MUST(!aot_set_hyper(model, "lr", 0.05));
  for (int i = 0; i < 200; i++) {
    MUST(!aot_step(model, &loss));
    if (i == 0) first = loss;
  }
  MUST(loss < first);
  MUST(!aot_eval(model, 3, &result) && result.count == 3 && result.correct >= 0 &&
       result.correct <= 3);
  MUST(!aot_predict(model));
  aot_note note = {.key = "hello", .value = "a \"quoted\" \n line"}, back = {.key = "hello"};
  MUST(!aot_save(model, path, &note, 1));
  MUST(!aot_load(model, path, &back, 1) && strcmp(back.value, note.value) == 0);
  MUST(!aot_describe(model, &info) && info.step == 200);
}

static void wrong_uses(aot *model, const char *path) {
  aot_tensor tensor;
  aot_signature signature;
  float value = 0;
  MUST(aot_get_tensor(model, 17, &tensor) == AOT_BAD_ARGUMENT);
  MUST(aot_find(model, "centred", &tensor) == AOT_BAD_ARGUMENT); /* TEMP */
  MUST(aot_find(model, NULL, &tensor) == AOT_BAD_ARGUMENT);
  MUST(aot_entry(model, "fly", &signature) == AOT_BAD_ARGUMENT);
  MUST(aot_set(model, "x", &value, 3) == AOT_BAD_ARGUMENT);
  MUST(aot_set(model, "x", NULL, 48) == AOT_BAD_ARGUMENT);
  MUST(aot_set(model, "mean", (float[3]){0}, 12) == AOT_BAD_ARGUMENT);
  MUST(aot_set_hyper(model, "w", 1) == AOT_BAD_ARGUMENT);
  MUST(aot_eval(model, 5, NULL) == AOT_BAD_ARGUMENT);
  MUST(aot_eval(model, -1, NULL) == AOT_BAD_ARGUMENT);
  MUST(aot_load(model, "/nowhere/at all", NULL, 0) == AOT_IO);
  MUST(aot_load(model, "/", NULL, 0) == AOT_IO);
  MUST(aot_save(model, "/nowhere/at all", NULL, 0) == AOT_IO);
  static aot_note many[4096];
  MUST(aot_save(model, path, many, 0) == AOT_OK);
  for (int i = 0; i < 4096; i++) memset(many[i].value, 1, sizeof many[i].value - 1);
  MUST(aot_save(model, path, many, 4096) == AOT_BAD_ARGUMENT);
  MUST(!aot_load(model, path, NULL, 0));
  MUST(aot_set_hyper(model, "lr", NAN) == AOT_BAD_ARGUMENT && aot_step(model, &value) == AOT_OK);
  aot_tensor y;
  MUST(aot_find(model, "y", &y) == AOT_OK);
  int64_t *labels = y.data, label = labels[1];
  labels[1] = -7;
  MUST(aot_step(model, &value) == AOT_BAD_LABEL && strstr(aot_error(model), "label -7 in row 1"));
  labels[1] = label;
  static float none[15];
  for (int i = 0; i < 15; i++) none[i] = NAN;
  MUST(aot_set(model, "w", none, sizeof none) == AOT_OK);
  MUST(aot_step(model, &value) == AOT_NOT_FINITE && isnan(value) &&
       strstr(aot_error(model), "NaN at step 202"));
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  aot *model = NULL;
  aot_options options = {.threads = atoi(argv[3])};
  if (aot_open("/nowhere", &options, &model) != AOT_BAD_ARTIFACT ||
      !strstr(aot_error(model), "/nowhere"))
    return 3;
  aot_info info;
  if (aot_describe(model, &info) != AOT_BAD_ARGUMENT || aot_step(model, NULL) != AOT_BAD_ARGUMENT)
    return 4;
  aot_close(model);
  aot_close(NULL);
  MUST(!aot_open(argv[1], &options, &model));
  counting = 1;
#ifdef COUNT_ALLOCATIONS
  void *volatile probe = malloc(1);
  free(probe);
  MUST(allocations == 1); /* the counter counts */
  allocations = 0;
#endif
  right_uses(model, argv[2]);
  wrong_uses(model, argv[2]);
  counting = 0;
  aot_close(model);
  printf("done, %d allocations\n", allocations);
  return allocations != 0;
}
