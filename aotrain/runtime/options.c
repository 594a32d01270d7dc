/* options.c: argv in, struct options out; an unknown option is answered with the closest known
 * one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum form { FLAG, TEXT, COUNT, PAIR };

struct option {
  const char *name;
  char letter; /* 0: none */
  enum form form;
  void *to;
};

static int distance(const char *a, const char *b) { /* Levenshtein's, of words below 32 letters */
  int row[33];
  size_t length = strlen(b);
  if (length > 32) return 99;
  for (size_t j = 0; j <= length; j++) row[j] = (int)j;
  for (size_t i = 0; a[i]; i++) {
    int diagonal = row[0];
    row[0] = (int)i + 1;
    for (size_t j = 0; j < length; j++) {
      int replaced = diagonal + (a[i] != b[j]), least = row[j] < row[j + 1] ? row[j] : row[j + 1];
      diagonal = row[j + 1];
      row[j + 1] = least + 1 < replaced ? least + 1 : replaced;
    }
  }
  return row[length];
}

static int unknown(const struct option *known, const char *given) {
  const char *closest = NULL;
  int best = strlen(given) < 6 ? (int)(strlen(given) / 2) + 1 : 4; /* a short word is near all */
  for (; known->name; known++) {
    int edits = distance(given, known->name);
    if (edits < best) best = edits, closest = known->name;
  }
  char hint[80];
  snprintf(hint, sizeof hint, closest ? "did you mean --%s?" : "aotrun --help lists them", closest);
  return refuse(EXIT_USAGE, "AOT-U002", hint, "unknown option '%s'", given);
}

static int read_count(const char *name, const char *text, int64_t *to) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool none = strcmp(name, "seed") == 0;
  if (errno || end == text || *end || value < (none ? 0 : 1) || value > INT64_MAX / 2)
    return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s takes a whole number%s, not '%s'", name,
                  none ? "" : " above 0", text);
  *to = value;
  return EXIT_DONE;
}

static int read_pair(const char *name, char *text, struct pair *pairs, uint32_t *count) {
  char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1])
    return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s takes name=value, not '%s'", name, text);
  if (*count == PAIRS_MAX)
    return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s more than %d times", name, PAIRS_MAX);
  *equals = 0;
  pairs[(*count)++] = (struct pair){text, equals + 1};
  return EXIT_DONE;
}

static const struct option *find(const struct option *known, const char *argument, char **value) {
  for (; known->name; known++) {
    size_t length = strlen(known->name);
    if (argument[1] == known->letter && known->letter && !argument[2]) return known;
    if (strncmp(argument, "--", 2) != 0 || strncmp(argument + 2, known->name, length) != 0)
      continue;
    if (argument[2 + length] == '=') *value = (char *)argument + 3 + length;
    if (!argument[2 + length] || *value) return known;
  }
  return NULL;
}

static int apply(struct options *options, const struct option *option, char *value) {
  switch (option->form) {
  case FLAG: *(bool *)option->to = true; return EXIT_DONE;
  case TEXT: *(const char **)option->to = value; return EXIT_DONE;
  case COUNT: return read_count(option->name, value, option->to);
  case PAIR:
    if (option->to == options->set)
      return read_pair(option->name, value, options->set, &options->sets);
    return read_pair(option->name, value, options->map, &options->maps);
  }
  return EXIT_BUG;
}

static int check(const struct options *options) {
  if (!options->model && !options->help)
    return refuse(EXIT_USAGE, "AOT-U003", "aotrun --help shows the usage", "no artifact given");
  if (options->epochs && options->steps)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--epochs and --steps exclude each other");
  if (options->save_every && !options->save)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--save-every needs --save, which names the files");
  if (options->profile && !options->bench)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--profile needs --bench");
  if (!options->predict != !options->output)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--predict and --output belong together");
  return EXIT_DONE;
}

int options_parse(struct options *options, int argc, char **argv) {
  *options = (struct options){.seed = -1, .keep = 3};
  int64_t threads = 0;
  const char *rate = NULL;
  const struct option known[] = {{"data", 0, TEXT, &options->data},
                                 {"valid", 0, TEXT, &options->valid},
                                 {"epochs", 0, COUNT, &options->epochs},
                                 {"steps", 0, COUNT, &options->steps},
                                 {"lr", 0, TEXT, &rate},
                                 {"set", 0, PAIR, options->set},
                                 {"map", 0, PAIR, options->map},
                                 {"seed", 0, COUNT, &options->seed},
                                 {"threads", 0, COUNT, &threads},
                                 {"save", 0, TEXT, &options->save},
                                 {"resume", 0, TEXT, &options->resume},
                                 {"save-every", 0, COUNT, &options->save_every},
                                 {"keep", 0, COUNT, &options->keep},
                                 {"predict", 0, TEXT, &options->predict},
                                 {"output", 'o', TEXT, &options->output},
                                 {"bench", 0, COUNT, &options->bench},
                                 {"profile", 0, FLAG, &options->profile},
                                 {"quiet", 'q', FLAG, &options->quiet},
                                 {"no-progress", 0, FLAG, &options->no_progress},
                                 {"json", 0, FLAG, &options->json},
                                 {"help", 'h', FLAG, &options->help},
                                 {NULL, 0, FLAG, NULL}};
  for (int i = 1; i < argc; i++) {
    char *value = NULL;
    if (argv[i][0] != '-' || !argv[i][1]) {
      if (options->model)
        return refuse(EXIT_USAGE, "AOT-U005", NULL, "two artifacts given: '%s' and '%s'",
                      options->model, argv[i]);
      options->model = argv[i];
      continue;
    }
    const struct option *option = find(known, argv[i], &value);
    if (!option) return unknown(known, argv[i] + strspn(argv[i], "-"));
    if (option->form == FLAG && value)
      return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s takes no value", option->name);
    if (option->form != FLAG && !value && !(value = argv[++i]))
      return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s needs a value", option->name);
    int failed = apply(options, option, value);
    if (failed) return failed;
  }
  if (rate && options->sets < PAIRS_MAX) options->set[options->sets++] = (struct pair){"lr", rate};
  options->threads = threads > 1024 ? 1024 : (int)threads;
  return check(options);
}
