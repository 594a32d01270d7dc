/* bench.c: --bench N in, the time of a step and the memory out. The state it leaves is thrown
 * away. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

static int ascending(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* The first batch of --data; without it the inputs stay zero, which costs the same time. */
static int feed_first(aot *model, const struct options *options, int64_t *batch) {
  static struct dataset data;
  aot_signature train;
  aot_tensor input;
  aot_status status = aot_entry(model, "train", &train);
  if (status) return refuse_model(model, status);
  *batch = 1;
  if (train.input_count && !aot_get_tensor(model, train.inputs[0], &input) && input.rank)
    *batch = input.shape[0];
  if (!options->data) return EXIT_DONE;
  int failed = dataset_open(&data, model, "train", options->data, options);
  uint64_t *order = calloc((size_t)data.batch + 1, sizeof *order);
  for (int64_t i = 0; order && !failed && i < data.batch; i++) order[i] = (uint64_t)(i % data.rows);
  if (order && !failed) dataset_feed(&data, order, data.batch);
  free(order);
  return failed;
}

/* Bytes, 0 where the system does not say. Not getrusage's: that one starts at the resident size of
 * the process that forked this one. */
static uint64_t peak_resident(void) {
  char text[4096];
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (bytes < 0) return 0;
  text[bytes] = 0;
  const char *line = strstr(text, "VmHWM:");
  return line ? 1024 * strtoull(line + 6, NULL, 10) : 0;
}

int bench(aot *model, const struct options *options) {
  struct bench_line line = {.steps = options->bench};
  aot_info info;
  int failed = feed_first(model, options, &line.batch);
  if (failed) return failed;
  double *seconds = malloc((size_t)options->bench * sizeof *seconds);
  if (!seconds) return refuse(EXIT_INPUT, "AOT-M030", NULL, "out of memory");
  for (int64_t i = -3; i < options->bench; i++) { /* three to warm up */
    if (i == 0) profile_reset();
    double began = seconds_now();
    aot_status status = aot_step(model, NULL); /* a loss that is not finite costs the same */
    if (status > AOT_NOT_FINITE) {
      free(seconds);
      return refuse_model(model, status);
    }
    if (i >= 0) seconds[i] = seconds_now() - began;
  }
  qsort(seconds, (size_t)options->bench, sizeof *seconds, ascending);
  line.median = seconds[options->bench / 2];
  line.p90 = seconds[options->bench * 9 / 10];
  line.least = seconds[0];
  free(seconds);
  aot_describe(model, &info);
  line.block_bytes = info.block_bytes;
  line.resident_bytes = peak_resident();
  report_bench(options, &line);
  if (options->profile) profile_report(options, options->bench);
  return EXIT_DONE;
}
