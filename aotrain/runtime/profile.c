/* profile.c: kernels as they run in, the time of each over all steps out: --bench N --profile. */
#include <inttypes.h>
#include <stdio.h>

#include "program.h"

enum { LAUNCHES_MAX = 8192, SHOWN = 20 };

static struct row {
  const char *kernel, *origin;
  uint64_t ns;
} rows[LAUNCHES_MAX]; /* by position in the train entry */
static uint32_t count;

void profile_trace(void *unused, const aot_launch *launch) {
  (void)unused;
  if (launch->index >= LAUNCHES_MAX) return;
  if (launch->index >= count) count = launch->index + 1;
  struct row *row = &rows[launch->index];
  row->kernel = launch->kernel;
  row->origin = launch->origin;
  row->ns += launch->ns;
}

void profile_reset(void) {
  for (uint32_t i = 0; i < count; i++) rows[i].ns = 0;
}

static void in_order(int64_t steps) {
  printf(",\"launches\":[");
  for (uint32_t i = 0; i < count; i++) {
    printf("%s{\"kernel\":", i ? "," : "");
    json_text(rows[i].kernel);
    printf(",\"origin\":");
    json_text(rows[i].origin);
    printf(",\"ns\":%" PRIu64 "}", rows[i].ns / (uint64_t)steps);
  }
  printf("]");
}

/* The slowest first; a row that was shown is cleared. */
void profile_report(const struct options *options, int64_t steps) {
  if (options->json) {
    in_order(steps);
    return;
  }
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) total += rows[i].ns;
  printf("%10s %6s  kernel\n", "ms", "share");
  for (uint32_t shown = 0; shown < SHOWN && shown < count; shown++) {
    struct row *most = &rows[0];
    for (uint32_t i = 1; i < count; i++)
      if (rows[i].ns > most->ns) most = &rows[i];
    printf("%10.3f %5.1f%%  %s  %s\n", 1e-6 * (double)most->ns / (double)steps,
           100 * (double)most->ns / (double)(total ? total : 1), most->kernel, most->origin);
    most->ns = 0;
  }
}
