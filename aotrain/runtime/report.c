/* report.c: results in, lines out: for people, or with --json one object on stdout; errors go to
 * stderr. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static bool first_epoch = true, list_open; /* of --json's "epochs" */

int refuse(int exit_code, const char *code, const char *hint, const char *format, ...) {
  va_list values;
  progress_clear();
  va_start(values, format);
  fprintf(stderr, "error[%s]: ", code);
  vfprintf(stderr, format, values);
  va_end(values);
  fprintf(stderr, hint ? "\n\nhint: %s\n" : "\n", hint);
  return exit_code;
}

int refuse_model(const aot *model, aot_status status) {
  char message[1024]; /* "AOT-A010: text", perhaps "\nhint: text" */
  snprintf(message, sizeof message, "%s", aot_error(model));
  char *text = strstr(message, ": "), *hint = strstr(message, "\nhint: ");
  if (hint) *hint = 0;
  if (text) *text = 0;
  int exit_code = status == AOT_BAD_ARGUMENT ? EXIT_USAGE
                  : status == AOT_KERNEL     ? EXIT_BUG
                  : status == AOT_DEVICE     ? EXIT_DEVICE
                                             : EXIT_INPUT;
  return refuse(exit_code, text ? message : "AOT-A000", hint ? hint + 7 : NULL, "%s",
                text ? text + 2 : message);
}

void say(const struct options *options, const char *format, ...) {
  if (options->quiet || options->json) return;
  va_list values;
  progress_clear();
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
  putchar('\n');
  fflush(stdout);
}

void json_text(const char *text) {
  putchar('"');
  for (; *text; text++)
    if (*text == '"' || *text == '\\') printf("\\%c", *text);
    else if ((unsigned char)*text < 0x20) printf("\\u%04x", (unsigned)*text);
    else putchar(*text);
  putchar('"');
}

static void json_number(const char *key, double value) {
  if (isfinite(value)) printf(",\"%s\":%.9g", key, value);
}

void report_begin(const struct options *options, const char *name) {
  if (!options->json) return;
  printf("{\"schema\":\"aotrain/run/1\",\"model\":");
  json_text(name);
  printf(",\"epochs\":[");
  list_open = true;
}

void report_epoch(const struct options *options, const struct epoch_line *line) {
  if (options->json) {
    printf("%s{\"epoch\":%" PRId64 ",\"step\":%" PRId64, first_epoch ? "" : ",", line->epoch,
           line->step);
    json_number("loss", line->loss);
    json_number("valid_loss", line->valid_loss);
    json_number("accuracy", line->accuracy);
    json_number("samples_per_second", line->samples_per_second);
    printf("}");
    first_epoch = false;
    return;
  }
  char text[256];
  size_t used = (size_t)snprintf(text, sizeof text, "epoch %" PRId64, line->epoch);
  if (line->epochs > 0)
    used += (size_t)snprintf(text + used, sizeof text - used, "/%" PRId64, line->epochs);
  used += (size_t)snprintf(text + used, sizeof text - used, "  step %" PRId64 "  loss %.6f",
                           line->step, line->loss);
  if (isfinite(line->valid_loss))
    used += (size_t)snprintf(text + used, sizeof text - used, "  valid %.6f", line->valid_loss);
  if (isfinite(line->accuracy))
    used += (size_t)snprintf(text + used, sizeof text - used, "  accuracy %.2f%%",
                             100 * line->accuracy);
  snprintf(text + used, sizeof text - used, "  %.0f samples/s", line->samples_per_second);
  say(options, "%s", text);
}

void report_valid(const struct options *options, const struct epoch_line *line) {
  if (options->json) report_epoch(options, line);
  else if (isfinite(line->accuracy))
    say(options, "valid %.6f  accuracy %.2f%%", line->valid_loss, 100 * line->accuracy);
  else say(options, "valid %.6f", line->valid_loss);
}

static void close_list(void) {
  if (list_open) printf("]");
  list_open = false;
}

void report_sizes(uint64_t trainable, uint64_t state_bytes, uint64_t block_bytes) {
  close_list();
  printf(",\"trainable_parameters\":%" PRIu64 ",\"state_bytes\":%" PRIu64
         ",\"block_bytes\":%" PRIu64,
         trainable, state_bytes, block_bytes);
}

void report_bench(const struct options *options, const struct bench_line *line) {
  if (options->json) {
    close_list();
    printf(",\"bench\":{\"steps\":%" PRId64, line->steps);
    json_number("median_ms", 1e3 * line->median);
    json_number("p90_ms", 1e3 * line->p90);
    json_number("least_ms", 1e3 * line->least);
    json_number("samples_per_second", (double)line->batch / line->median);
    printf(",\"block_bytes\":%" PRIu64 ",\"resident_bytes\":%" PRIu64 "}", line->block_bytes,
           line->resident_bytes);
    return;
  }
  printf("%" PRId64 " steps: median %.3f ms, p90 %.3f ms, least %.3f ms; %.0f samples/s\n",
         line->steps, 1e3 * line->median, 1e3 * line->p90, 1e3 * line->least,
         (double)line->batch / line->median);
  printf("memory: %" PRIu64 " bytes planned and allocated, %" PRIu64 " bytes resident at most\n",
         line->block_bytes, line->resident_bytes);
}

void report_end(const struct options *options, int exit_code, int64_t step) {
  if (!options->json) return;
  close_list();
  printf(",\"step\":%" PRId64 ",\"exit_code\":%d", step, exit_code);
  if (options->save && (exit_code == EXIT_DONE || exit_code == EXIT_INTERRUPTED)) {
    printf(",\"saved\":");
    json_text(options->save);
  }
  printf("}\n");
}
