/* outputs.c: --save and --output in, a refusal before the work out where they could not be written
 * after it, or where they would replace a file that aotrun did not make. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

/* The first bytes tell: of a checkpoint "{" behind a 64-bit length, of an .npz "PK". */
static bool made_here(const char *path, bool checkpoint) {
  char head[9] = "";
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  ssize_t count = read(file, head, sizeof head);
  close(file);
  return !count || (checkpoint ? count == 9 && head[8] == '{' : count > 1 && !memcmp(head, "PK", 2));
}

static bool same_file(const char *a, const char *b) {
  struct stat one, other;
  return a && b && stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

/* Whether a file may appear in the folder of `path`; errno says why not. */
static bool can_appear(const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  struct stat status;
  if (stat(folder, &status) != 0) return false;
  return access(folder, W_OK | X_OK) == 0;
}

static int cannot(const char *path, bool checkpoint, int reason) {
  return checkpoint
             ? refuse(EXIT_INPUT, "AOT-A030", NULL, "cannot save %s: %s", path, strerror(reason))
             : refuse(EXIT_INPUT, "AOT-D021", NULL, "%s: cannot write: %s", path, strerror(reason));
}

static int check(const struct options *options, const char *path, bool checkpoint) {
  const char *option = checkpoint ? "save" : "output";
  struct stat status;
  if (!*path) return refuse(EXIT_USAGE, "AOT-U004", NULL, "--%s needs a file name", option);
  if (strlen(path) > PATH_MAX - 32)
    return refuse(EXIT_USAGE, "AOT-U005", NULL, "--%s: the path is too long", option);
  if (!can_appear(path)) return cannot(path, checkpoint, errno);
  if (stat(path, &status) != 0) return EXIT_DONE;
  if (S_ISDIR(status.st_mode)) return cannot(path, checkpoint, EISDIR);
  bool input = same_file(path, options->data) || same_file(path, options->valid) ||
               same_file(path, options->predict) || (!checkpoint && same_file(path, options->resume));
  if (!input && (!S_ISREG(status.st_mode) || made_here(path, checkpoint))) return EXIT_DONE;
  return refuse(EXIT_USAGE, "AOT-A001", "name another file, or move it away",
                "--%s: '%s' %s, so it is not replaced", option, path,
                input        ? "is read as well"
                : checkpoint ? "exists and is no checkpoint"
                             : "exists and is no .npz");
}

int outputs_check(const struct options *options) {
  int failed = options->save ? check(options, options->save, true) : EXIT_DONE;
  return !failed && options->output ? check(options, options->output, false) : failed;
}
