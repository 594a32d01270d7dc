/* progress.c: steps in, one line on a terminal's stderr out, redrawn at most ten times a second.
 *
 *   [=========>          ]  198/440  loss 0.312  230.4 steps/s  0:01 left
 *
 * Nothing is drawn where stderr is no terminal, nor under --quiet, --json and --no-progress. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "program.h"

enum { WIDTH = 20 };

static bool shown;
static double drawn; /* seconds */

void progress_draw(const struct options *options, const struct progress *at) {
  static int terminal = -1;
  if (terminal < 0) terminal = isatty(STDERR_FILENO);
  double now = seconds_now(), seconds = now - at->began;
  if (!terminal || options->quiet || options->json || options->no_progress || now - drawn < 0.1)
    return;
  drawn = now;
  shown = true;
  int filled = (int)((double)WIDTH * (double)at->step / (double)at->last);
  double rate = seconds > 1e-9 ? (double)at->steps / seconds : 0;
  double left = rate > 0 ? (double)(at->last - at->step) / rate : 0;
  int64_t rest = left < 1e9 ? (int64_t)left : 0;
  fprintf(stderr, "\r[%.*s>%*s]  %" PRId64 "/%" PRId64 "  loss %.6g  %.4g steps/s  %" PRId64
                  ":%02" PRId64 " left\033[K",
          filled, "====================", WIDTH - filled, "", at->step, at->last, at->loss, rate,
          rest / 60, rest % 60);
}

void progress_clear(void) {
  if (shown) fputs("\r\033[K", stderr);
  shown = false;
}
