/* program.h: what aotrun's files share. aotrun stands on aotrun.h alone; nothing of the
 * library's inside is used. */
#ifndef AOT_PROGRAM_H
#define AOT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "aotrun.h"

enum { EXIT_DONE = 0, EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_DEVICE = 4, EXIT_BUG = 70, EXIT_INTERRUPTED = 130 };
enum { ARRAYS_MAX = 256, RANK_MAX = 16, PAIRS_MAX = 32 };

/* options.c: the command line. */
struct pair {
  const char *name, *value;
};

struct options {
  const char *model, *data, *valid, *save, *resume, *predict, *output;
  int64_t epochs, steps, save_every, keep, bench; /* 0: not given */
  int64_t seed;                                   /* -1: not given */
  int threads;
  bool quiet, json, help, no_progress, profile;
  struct pair set[PAIRS_MAX], map[PAIRS_MAX]; /* --set name=value, --map input=array */
  uint32_t sets, maps;
};

int options_parse(struct options *options, int argc, char **argv);

/* outputs.c: whether --save and --output may be written, before the work rather than after it. */
int outputs_check(const struct options *options);

/* report.c: the only file that prints. `refuse` returns `exit_code`; `hint` may be null. */
int refuse(int exit_code, const char *code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int refuse_model(const aot *model, aot_status status);
void say(const struct options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct epoch_line { /* NAN or -1: not known */
  int64_t epoch, epochs, step;
  double loss, valid_loss, accuracy, samples_per_second;
};
void report_begin(const struct options *options, const char *name);
void report_epoch(const struct options *options, const struct epoch_line *line);
void report_valid(const struct options *options, const struct epoch_line *line);
void report_sizes(uint64_t trainable, uint64_t state_bytes, uint64_t block_bytes); /* --json only */
void report_end(const struct options *options, int exit_code, int64_t step);

/* progress.c: a bar on a terminal. */
struct progress {
  int64_t step, last; /* of the run */
  int64_t steps;      /* done since `began`, in seconds */
  double began, loss;
};
void progress_draw(const struct options *options, const struct progress *at);
void progress_clear(void); /* before any other line */

struct bench_line { /* seconds; bytes */
  double median, p90, least;
  int64_t batch, steps;
  uint64_t block_bytes, resident_bytes;
};
void json_text(const char *text); /* quoted, on stdout */
void report_bench(const struct options *options, const struct bench_line *line);

/* profile.c: time of each kernel of a step; `profile_trace` is an aot_options.trace. */
void profile_trace(void *unused, const aot_launch *launch);
void profile_reset(void); /* what was seen so far was warming up */
void profile_report(const struct options *options, int64_t steps);

/* An array in a file's bytes, which outlive it. */
struct array {
  char name[128]; /* "" where the file gives none */
  aot_dtype dtype;
  bool pixels; /* IDX bytes: become float32 / 255 and take the input's shape */
  uint32_t rank;
  int64_t shape[RANK_MAX];
  const uint8_t *data;
  uint64_t bytes;
};

struct fault { /* why a file cannot be read */
  const char *code;
  char text[256];
  const char *hint;
};

/* Bytes of the array's data by its shape and dtype; false on overflow or a negative extent. */
bool array_bytes(const struct array *array, uint64_t *bytes);
const char *dtype_name(aot_dtype dtype);
uint32_t dtype_bytes(aot_dtype dtype);
bool dtype_integer(aot_dtype dtype);

/* npy.c, npz.c, idx.c: readers of `size` bytes at `bytes`; no other access, no allocation. */
bool npy_read(const uint8_t *bytes, uint64_t size, struct array *array, struct fault *fault);
bool npz_read(const uint8_t *bytes, uint64_t size, struct array *arrays, uint32_t *count,
              struct fault *fault);
bool idx_read(const uint8_t *bytes, uint64_t size, struct array *array, struct fault *fault);
bool fault_set(struct fault *fault, const char *code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* always false */

/* npz_write.c: arrays into an uncompressed .npz, by way of a temporary name. */
bool npz_write(const char *path, const struct array *arrays, uint32_t count, struct fault *fault);

/* convert.c: rows of an array into an input. */
struct column {
  aot_tensor input;   /* [batch, ...] */
  struct array array; /* [rows, ...] */
  bool label;         /* class indices */
};
int column_check(const struct column *column, const aot_info *info, const char *file);
/* array[order[i]] -> input[i] for i < count; the rest of the batch repeats the first of them. */
void column_gather(const struct column *column, const uint64_t *order, int64_t count);

/* data.c: a --data argument matched to the inputs of an entry point. */
struct dataset {
  struct column columns[PAIRS_MAX];
  uint32_t count;
  int64_t rows, batch;
};
int dataset_open(struct dataset *data, aot *model, const char *entry, const char *spec,
                 const struct options *options);
void dataset_feed(const struct dataset *data, const uint64_t *order, int64_t count);

/* shuffle.c: 0 .. rows-1 in an order that follows from (seed, epoch) alone. */
void shuffle(uint64_t *order, int64_t rows, uint64_t seed, uint64_t epoch);

/* train.c, predict.c, bench.c, describe.c: what aotrun does; each returns an exit code. */
int train(aot *model, const struct options *options);
int validate(aot *model, const struct dataset *valid, struct epoch_line *line);
int predict(aot *model, const struct options *options);
int bench(aot *model, const struct options *options);
int describe(aot *model, const struct options *options);
double seconds_now(void);
extern volatile int interrupted; /* set by SIGINT and SIGTERM */

/* crc.c of the library, for zip. */
uint32_t aot_crc32(uint32_t crc, const void *data, size_t bytes);

#endif
