/* main.c: a command line in, training out: aotrun. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static const char HELP[] =
    "usage: aotrun MODEL.aot [options]\n"
    "\n"
    "Trains the program in an artifact. Without options it shows what the artifact holds.\n"
    "\n"
    "  --data FILES        rows to train on: train.npz, x.npy:y.npy, x=a.npy,y=b.npy,\n"
    "                      images-idx3-ubyte:labels-idx1-ubyte\n"
    "  --valid FILES       rows to evaluate on after each epoch (alone: evaluate once)\n"
    "  --map INPUT=ARRAY   which array serves an input, where the names differ\n"
    "  --epochs N          train until N epochs are done, resumed ones included (default 1)\n"
    "  --steps N           the same in steps\n"
    "  --lr X              learning rate; --set NAME=VALUE for any hyperparameter\n"
    "  --seed N            order of the rows, and dropout (default 0)\n"
    "  --threads N         default: $AOTRUN_NUM_THREADS, else all cores of this process\n"
    "  --save FILE         write the state (safetensors) after epochs, at the end, when interrupted\n"
    "  --save-every N      and every N steps to FILE-<step>; --keep N of them (default 3)\n"
    "  --resume FILE       continue from a checkpoint, bit for bit\n"
    "  --predict FILES     write the model's outputs for these rows to -o OUT.npz\n"
    "  --bench N           time N steps; with --profile, each kernel as well\n"
    "  -q, --quiet         print errors only\n"
    "  --no-progress       no bar, which is drawn on a terminal only\n"
    "  --json              one JSON object on stdout\n"
    "\n"
    "examples:\n"
    "  aotrun digits.aot --data train.npz --valid test.npz --epochs 5 --save trained.safetensors\n"
    "  aotrun digits.aot --resume trained.safetensors --predict new.npz -o out.npz\n"
    "\n"
    "exit codes: 0 done, 1 data or files, 2 usage, 70 a bug, 130 interrupted\n";

static void on_signal(int signal) {
  (void)signal;
  interrupted = 1;
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal,
                             .sa_flags = SA_RESETHAND | SA_RESTART}; /* the second one kills */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGXFSZ, &ignore, NULL); /* a file size limit is then an ordinary error of write() */
}

/* --resume without --data: for --valid and --predict. */
static int load_only(aot *model, const struct options *options) {
  aot_status status = options->resume ? aot_load(model, options->resume, NULL, 0) : AOT_OK;
  return status ? refuse_model(model, status) : EXIT_DONE;
}

static int evaluate(aot *model, const struct options *options) {
  static struct dataset valid;
  aot_info info;
  aot_describe(model, &info);
  struct epoch_line line = {.step = info.step, .loss = NAN, .samples_per_second = NAN};
  int failed = dataset_open(&valid, model, "eval", options->valid, options);
  if (!failed) failed = validate(model, &valid, &line);
  if (!failed) report_valid(options, &line);
  return failed;
}

static int act(aot *model, const struct options *options) {
  if (options->bench) return bench(model, options);
  int failed = options->data ? train(model, options) : load_only(model, options);
  if (!failed && !options->data && options->valid) failed = evaluate(model, options);
  if (!failed && options->predict) failed = predict(model, options);
  if (!failed && !options->data && !options->valid && !options->predict)
    failed = describe(model, options);
  return failed;
}

int main(int argc, char **argv) {
  static struct options options;
  int failed = options_parse(&options, argc, argv);
  if (failed) return failed;
  if (options.help) return fputs(HELP, stdout) < 0;
  failed = outputs_check(&options);
  if (failed) return failed;
  catch_signals();
  aot *model;
  aot_options with = {.threads = options.threads,
                      .trace = options.profile ? profile_trace : NULL};
  aot_status status = aot_open(options.model, &with, &model);
  if (status) {
    failed = refuse_model(model, status);
    aot_close(model);
    return failed;
  }
  aot_info info;
  aot_describe(model, &info);
  report_begin(&options, info.name);
  failed = act(model, &options);
  aot_describe(model, &info);
  report_end(&options, failed, info.step);
  aot_close(model);
  return failed;
}
