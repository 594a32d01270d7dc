/* train.c: a dataset in, epochs of steps out, with checkpoints between; resumable bit for bit.
 *
 * Where a run stands follows from the step count, the number of rows and the seed: step s is batch
 * s mod n of epoch s div n, n = rows div batch, in the order shuffle(seed, epoch). */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { KEEP_MAX = 64, SAVE_SHARE = 20 }; /* saving after epochs takes 1/20 of the time at most */

struct run {
  aot *model;
  const struct options *options;
  struct dataset data, valid;
  bool has_valid;
  uint64_t *order; /* [rows] of the epoch */
  int64_t step, last, per_epoch, seed;
  double loss_sum; /* of the epoch so far */
  int64_t loss_count;
  double began, saved_at, saving; /* seconds; the last one is what saving took */
  char kept[KEEP_MAX][PATH_MAX]; /* checkpoints of --save-every, a ring */
  int64_t saved;
  const char *good; /* the newest checkpoint, and its step */
  int64_t good_step;
};

volatile int interrupted;

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int validate(aot *model, const struct dataset *valid, struct epoch_line *line) {
  double loss = 0, weight = 0;
  int64_t correct = 0, count = 0;
  uint64_t *order = malloc((size_t)valid->batch * sizeof *order);
  if (!order) return refuse(EXIT_INPUT, "AOT-M030", NULL, "out of memory");
  for (int64_t row = 0; row < valid->rows; row += valid->batch) {
    int64_t rows = valid->rows - row < valid->batch ? valid->rows - row : valid->batch;
    for (int64_t i = 0; i < rows; i++) order[i] = (uint64_t)(row + i);
    dataset_feed(valid, order, rows);
    aot_result result;
    aot_status status = aot_eval(model, (int32_t)rows, &result);
    if (status) {
      free(order);
      return refuse_model(model, status);
    }
    bool classifier = result.count >= 0;
    double share = classifier ? (double)result.count : (double)rows; /* the mean is over so many */
    if (share > 0) loss += share * (double)result.loss, weight += share;
    if (classifier) correct += result.correct, count += result.count;
  }
  free(order);
  line->valid_loss = weight > 0 ? loss / weight : NAN;
  line->accuracy = count ? (double)correct / (double)count : NAN;
  return EXIT_DONE;
}

static int not_finite(const struct run *run, int failed) {
  if (run->good)
    fprintf(stderr, "the last good checkpoint is %s, of step %" PRId64 "\n", run->good,
            run->good_step);
  return failed;
}

/* The loss of a step says nothing of its own update, which the next loss shows, or this. */
static int check_weights(const struct run *run) {
  aot_tensor weight;
  for (uint32_t i = 0; !aot_get_tensor(run->model, i, &weight); i++) {
    if (weight.role != AOT_TRAINABLE || weight.dtype != AOT_FLOAT32) continue;
    const float *value = weight.data;
    for (uint64_t k = 0; k < weight.bytes / sizeof *value; k++)
      if (!isfinite(value[k]))
        return not_finite(run, refuse(EXIT_INPUT, "AOT-D030", NULL,
                                      "weight '%s' is not finite after step %" PRId64, weight.name,
                                      run->step));
  }
  return EXIT_DONE;
}

/* `path` must outlive the run. */
static int save(struct run *run, const char *path) {
  double began = seconds_now();
  int failed = check_weights(run);
  if (failed) return failed;
  aot_note notes[2] = {{.key = "aotrun.seed"}, {.key = "aotrun.rows"}};
  snprintf(notes[0].value, sizeof notes[0].value, "%" PRId64, run->seed);
  snprintf(notes[1].value, sizeof notes[1].value, "%" PRId64, run->data.rows);
  aot_status status = aot_save(run->model, path, notes, 2);
  if (status) return refuse_model(run->model, status);
  run->good = path;
  run->good_step = run->step;
  run->saved_at = seconds_now();
  run->saving = run->saved_at - began;
  return EXIT_DONE;
}

/* out.safetensors -> out-00001200.safetensors; the oldest beyond --keep goes. */
static int save_numbered(struct run *run) {
  const char *path = run->options->save, *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  int64_t keep = run->options->keep < KEEP_MAX ? run->options->keep : KEEP_MAX;
  char *slot = run->kept[run->saved % keep], next[PATH_MAX];
  if (!dot || (slash && dot < slash)) dot = path + strlen(path);
  if (snprintf(next, sizeof next, "%.*s-%08" PRId64 "%s", (int)(dot - path), path, run->step,
               dot) >= PATH_MAX)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--save: the path is too long");
  int failed = save(run, next);
  if (failed) return failed;
  if (run->saved++ >= keep) unlink(slot);
  run->good = strcpy(slot, next);
  return EXIT_DONE;
}

static int resume(struct run *run) {
  const struct options *options = run->options;
  aot_note notes[2] = {{.key = "aotrun.seed"}, {.key = "aotrun.rows"}};
  aot_status status = aot_load(run->model, options->resume, notes, 2);
  if (status) return refuse_model(run->model, status);
  int64_t seed = strtoll(notes[0].value, NULL, 10), rows = strtoll(notes[1].value, NULL, 10);
  if (options->seed >= 0 && *notes[0].value && options->seed != seed)
    return refuse(EXIT_USAGE, "AOT-U009", "leave --seed away",
                  "%s was trained with seed %" PRId64 ", --seed says %" PRId64, options->resume,
                  seed, options->seed);
  if (options->seed < 0) run->seed = seed;
  if (*notes[1].value && rows != run->data.rows)
    say(options,
        "note: %s was trained on %" PRId64 " rows, this data has %" PRId64
        ": the order of batches starts anew",
        options->resume, rows, run->data.rows);
  return EXIT_DONE;
}

/* --seed also seeds the model's own generator: dropout. */
static void seed_model(struct run *run) {
  aot_tensor rng;
  run->seed = run->options->seed < 0 ? 0 : run->options->seed;
  if (run->options->seed < 0 || aot_find(run->model, "rng", &rng) || rng.role != AOT_COUNTER ||
      rng.dtype != AOT_UINT32 || !rng.bytes)
    return;
  uint32_t seed = (uint32_t)run->seed;
  memcpy(rng.data, &seed, sizeof seed);
}

static int set_hyper(aot *model, const struct options *options) {
  for (uint32_t i = 0; i < options->sets; i++) {
    char *end;
    double value = strtod(options->set[i].value, &end);
    if (*end || !isfinite(value))
      return refuse(EXIT_USAGE, "AOT-U004", NULL, "%s takes a number, not '%s'",
                    options->set[i].name, options->set[i].value);
    aot_status status = aot_set_hyper(model, options->set[i].name, value);
    if (status) return refuse_model(model, status);
  }
  return EXIT_DONE;
}

static int prepare(struct run *run) {
  const struct options *options = run->options;
  struct dataset *data = &run->data;
  int failed = dataset_open(data, run->model, "train", options->data, options);
  if (!failed && options->valid)
    failed = dataset_open(&run->valid, run->model, "eval", options->valid, options);
  run->has_valid = options->valid != NULL;
  if (failed) return failed;
  if (data->rows < data->batch)
    return refuse(EXIT_INPUT, "AOT-D018", "compile with a smaller --batch",
                  "%s has %" PRId64 " rows, fewer than a batch of %" PRId64, options->data,
                  data->rows, data->batch);
  run->per_epoch = data->rows / data->batch;
  if (data->rows % data->batch)
    say(options,
        "note: %" PRId64 " rows make %" PRId64 " batches of %" PRId64 "; the last %" PRId64
        " of each epoch's order are left out",
        data->rows, run->per_epoch, data->batch, data->rows % data->batch);
  seed_model(run);
  if (options->resume) failed = resume(run);
  if (!failed) failed = set_hyper(run->model, options);
  if (failed) return failed;
  aot_info info;
  aot_describe(run->model, &info);
  run->step = run->good_step = info.step;
  run->good = options->resume;
  int64_t epochs = options->epochs ? options->epochs : 1;
  if (options->steps) run->last = options->steps;
  else if (__builtin_mul_overflow(epochs, run->per_epoch, &run->last)) run->last = INT64_MAX;
  run->order = malloc((size_t)data->rows * sizeof *run->order);
  return run->order ? EXIT_DONE : refuse(EXIT_INPUT, "AOT-M030", NULL, "out of memory");
}

static int finish_epoch(struct run *run, int64_t steps) {
  double seconds = seconds_now() - run->began;
  struct epoch_line line = {
      .epoch = (run->step - 1) / run->per_epoch + 1,
      .epochs = run->options->steps ? 0 : run->last / run->per_epoch,
      .step = run->step,
      .loss = run->loss_sum / (double)run->loss_count,
      .valid_loss = NAN,
      .accuracy = NAN,
      .samples_per_second = (double)(steps * run->data.batch) / (seconds > 1e-9 ? seconds : 1e-9),
  };
  int failed = run->has_valid ? validate(run->model, &run->valid, &line) : EXIT_DONE;
  if (!failed) report_epoch(run->options, &line);
  run->loss_sum = 0;
  run->loss_count = 0;
  return failed;
}

static int one_step(struct run *run) {
  int64_t batch = run->step % run->per_epoch;
  dataset_feed(&run->data, run->order + batch * run->data.batch, run->data.batch);
  float loss = 0;
  aot_status status = aot_step(run->model, &loss);
  if (status) return not_finite(run, refuse_model(run->model, status));
  run->loss_sum += (double)loss;
  run->loss_count++;
  run->step++;
  progress_draw(run->options, &(struct progress){.step = run->step,
                                                 .last = run->last,
                                                 .steps = run->loss_count,
                                                 .began = run->began,
                                                 .loss = (double)loss});
  return run->options->save_every && run->step % run->options->save_every == 0 ? save_numbered(run)
                                                                               : EXIT_DONE;
}

/* The rest of the epoch that `run->step` lies in. */
static int one_epoch(struct run *run) {
  int64_t first = run->step, epoch = first / run->per_epoch, end = (epoch + 1) * run->per_epoch;
  if (end > run->last) end = run->last;
  shuffle(run->order, run->data.rows, (uint64_t)run->seed, (uint64_t)epoch);
  run->began = seconds_now();
  while (run->step < end && !interrupted) {
    int failed = one_step(run);
    if (failed) return failed;
  }
  return run->step > first ? finish_epoch(run, run->step - first) : EXIT_DONE;
}

int train(aot *model, const struct options *options) {
  static struct run run; /* too large for the stack */
  run.model = model;
  run.options = options;
  int failed = prepare(&run);
  if (!failed && run.step >= run.last)
    say(options, "nothing to do: the state has seen %" PRId64 " steps, %" PRId64 " are asked for",
        run.step, run.last);
  while (!failed && run.step < run.last && !interrupted) {
    failed = one_epoch(&run);
    if (!failed && options->save && seconds_now() - run.saved_at > SAVE_SHARE * run.saving)
      failed = save(&run, options->save);
  }
  if (!failed && options->save && (run.good != options->save || run.good_step != run.step))
    failed = save(&run, options->save);
  if (!failed && options->save) say(options, "saved %s", options->save);
  free(run.order);
  if (!failed && interrupted)
    return refuse(EXIT_INTERRUPTED, "AOT-U130", NULL, "interrupted after step %" PRId64, run.step);
  return failed;
}
