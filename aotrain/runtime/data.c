/* data.c: a --data argument in, one array for each input of an entry point out.
 *
 *   train.npz                 arrays by name, else in order
 *   x.npy:y.npy               in order; images-idx3-ubyte:labels-idx1-ubyte as well
 *   image=x.npy,label=y.npy   by name */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

struct files {
  struct array arrays[ARRAYS_MAX];
  bool used[ARRAYS_MAX];
  uint32_t count;
  const char *spec; /* for messages */
};

static int map_file(const char *path, const uint8_t **bytes, uint64_t *size) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 || fstat(file, &status) != 0) {
    int reason = errno;
    if (file >= 0) close(file);
    return refuse(EXIT_INPUT, "AOT-D010", NULL, "cannot open %s: %s", path, strerror(reason));
  }
  *size = (uint64_t)status.st_size;
  *bytes = (const uint8_t *)"";
  void *mapped = NULL;
  if (S_ISREG(status.st_mode) && *size)
    mapped = mmap(NULL, (size_t)*size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (!S_ISREG(status.st_mode)) return refuse(EXIT_INPUT, "AOT-D010", NULL, "%s is no file", path);
  if (mapped == MAP_FAILED)
    return refuse(EXIT_INPUT, "AOT-D010", NULL, "cannot read %s: %s", path, strerror(errno));
  if (mapped) *bytes = mapped; /* stays mapped until the process ends */
  return EXIT_DONE;
}

static bool read_any(const uint8_t *bytes, uint64_t size, struct files *files,
                     struct fault *fault) {
  struct array *next = &files->arrays[files->count];
  if (size >= 2 && memcmp(bytes, "PK", 2) == 0)
    return npz_read(bytes, size, files->arrays, &files->count, fault);
  if (size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0)
    return fault_set(fault, "AOT-D012", "unpack it with gunzip", "it is compressed");
  bool numpy = size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0,
       idx = size >= 4 && !bytes[0] && !bytes[1];
  if (!numpy && !idx)
    return fault_set(fault, "AOT-D011", "it must be .npz, .npy or IDX; aotrain run reads .csv as well",
                     "unknown format, or truncated");
  if (files->count == ARRAYS_MAX) return fault_set(fault, "AOT-D011", NULL, "too many arrays");
  if (!(numpy ? npy_read : idx_read)(bytes, size, next, fault)) return false;
  files->count++;
  return true;
}

static int read_file(struct files *files, const char *name, const char *path) {
  const uint8_t *bytes = NULL;
  uint64_t size = 0;
  struct fault fault;
  uint32_t first = files->count;
  int failed = map_file(path, &bytes, &size);
  if (failed) return failed;
  if (first < ARRAYS_MAX) files->arrays[first].name[0] = 0;
  if (!read_any(bytes, size, files, &fault))
    return refuse(EXIT_INPUT, fault.code, fault.hint, "%s: %s", path, fault.text);
  if (*name && files->count == first + 1)
    snprintf(files->arrays[first].name, sizeof files->arrays[first].name, "%s", name);
  return EXIT_DONE;
}

/* Splits the argument at ',' or ':', and each part at '='; an existing file is taken as it is. */
static int read_spec(struct files *files, const char *spec) {
  static char copy[8192]; /* paths must outlive the call for messages: one at a time */
  files->spec = spec;
  if (access(spec, F_OK) == 0 || strlen(spec) >= sizeof copy) return read_file(files, "", spec);
  strcpy(copy, spec);
  const char *separator = strpbrk(copy, ",=") ? "," : ":";
  int failed = EXIT_DONE;
  for (char *rest = copy, *part; !failed && (part = strsep(&rest, separator));) {
    char *equals = strchr(part, '=');
    if (equals) *equals = 0;
    failed = read_file(files, equals ? part : "", equals ? equals + 1 : part);
  }
  return failed;
}

static const char *mapped_name(const struct options *options, const char *input) {
  for (uint32_t i = 0; i < options->maps; i++)
    if (strcmp(options->map[i].name, input) == 0) return options->map[i].value;
  return NULL;
}

static int find_array(const struct files *files, const char *name) {
  for (uint32_t i = 0; i < files->count; i++)
    if (!files->used[i] && strcmp(files->arrays[i].name, name) == 0) return (int)i;
  return -1;
}

static int no_array(const struct dataset *data, const struct files *files, const char *missing) {
  char inputs[256] = "", arrays[256] = "";
  for (uint32_t i = 0; i < data->count; i++)
    snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), "%s%s", i ? ", " : "",
             data->columns[i].input.name);
  for (uint32_t i = 0; i < files->count; i++)
    snprintf(arrays + strlen(arrays), sizeof arrays - strlen(arrays), "%s%s", i ? ", " : "",
             *files->arrays[i].name ? files->arrays[i].name : "(unnamed)");
  return refuse(EXIT_INPUT, "AOT-D013", "name the array with --map input=array",
                "%s: no array for input '%s': the model takes %s, the file has %s", files->spec,
                missing, inputs, *arrays ? arrays : "none");
}

static void take(struct dataset *data, struct files *files, uint32_t column, int array) {
  data->columns[column].array = files->arrays[array];
  files->used[array] = true;
}

/* A --map of an input that no entry point has is a slip of the pen. */
static int check_maps(aot *model, const struct options *options) {
  for (uint32_t i = 0; i < options->maps; i++) {
    aot_tensor input;
    if (aot_find(model, options->map[i].name, &input) || input.kind != AOT_INPUT)
      return refuse(EXIT_INPUT, "AOT-D013", "aotrun MODEL.aot lists the inputs",
                    "--map: the model has no input '%s'", options->map[i].name);
  }
  return EXIT_DONE;
}

/* By --map, then by name; what is left in order, if as many arrays as inputs are left. */
static int match(struct dataset *data, struct files *files, const struct options *options) {
  bool done[PAIRS_MAX] = {false};
  uint32_t open_inputs = 0, open_arrays = 0;
  for (uint32_t i = 0; i < data->count; i++) {
    const char *name = data->columns[i].input.name, *mapped = mapped_name(options, name);
    int array = find_array(files, mapped ? mapped : name);
    if (mapped && array < 0) return no_array(data, files, name);
    done[i] = array >= 0;
    if (done[i]) take(data, files, i, array);
    open_inputs += !done[i];
  }
  for (uint32_t i = 0; i < files->count; i++) open_arrays += !files->used[i];
  for (uint32_t i = 0, array = 0; i < data->count; i++) {
    if (done[i]) continue;
    if (open_inputs != open_arrays) return no_array(data, files, data->columns[i].input.name);
    while (files->used[array]) array++;
    if (*files->arrays[array].name)
      say(options, "%s: array '%s' is taken for input '%s'", files->spec, files->arrays[array].name,
          data->columns[i].input.name);
    take(data, files, i, (int)array);
  }
  return EXIT_DONE;
}

/* The entry's inputs but for "rows", which is not the user's. */
static int list_inputs(struct dataset *data, aot *model, const char *entry) {
  aot_signature signature, train;
  aot_status status = aot_entry(model, entry, &signature);
  if (status) return refuse_model(model, status);
  if (aot_entry(model, "train", &train)) train.input_count = 0;
  uint32_t target = train.input_count ? train.inputs[train.input_count - 1] : UINT32_MAX;
  for (uint32_t i = 0; i < signature.input_count; i++) {
    aot_tensor input;
    aot_get_tensor(model, signature.inputs[i], &input);
    if (strcmp(input.name, "rows") == 0 && !input.rank) continue;
    if (data->count == PAIRS_MAX)
      return refuse(EXIT_INPUT, "AOT-D013", NULL, "%s has more than %d inputs", entry, PAIRS_MAX);
    data->columns[data->count++] = (struct column){.input = input, .label = input.index == target};
  }
  return data->count ? EXIT_DONE
                     : refuse(EXIT_INPUT, "AOT-D013", NULL, "%s takes no inputs", entry);
}

/* A scalar input has neither rows nor a batch. */
static int check(struct dataset *data, const aot_info *info, const char *spec) {
  const struct column *first = NULL;
  for (uint32_t i = 0; i < data->count; i++) {
    const struct column *column = &data->columns[i];
    int failed = column_check(column, info, spec);
    if (failed) return failed;
    if (!column->input.rank) continue;
    if (!first) {
      first = column;
      data->batch = column->input.shape[0];
      data->rows = column->array.shape[0];
    }
    if (column->array.shape[0] != data->rows)
      return refuse(
          EXIT_INPUT, "AOT-D016", NULL,
          "%s: the array for input '%s' has %" PRId64 " rows, the one for '%s' has %" PRId64, spec,
          column->input.name, column->array.shape[0], first->input.name, data->rows);
    if (column->input.shape[0] != data->batch)
      return refuse(EXIT_INPUT, "AOT-D014", NULL,
                    "inputs '%s' and '%s' of the model have different batch sizes",
                    column->input.name, first->input.name);
  }
  return data->rows ? EXIT_DONE : refuse(EXIT_INPUT, "AOT-D018", NULL, "%s has no rows", spec);
}

int dataset_open(struct dataset *data, aot *model, const char *entry, const char *spec,
                 const struct options *options) {
  static struct files files; /* too large for the stack; the arrays are copied out of it */
  aot_info info;
  memset(&files, 0, sizeof files);
  memset(data, 0, sizeof *data);
  aot_status status = aot_describe(model, &info);
  if (status) return refuse_model(model, status);
  int failed = check_maps(model, options);
  if (!failed) failed = list_inputs(data, model, entry);
  if (!failed) failed = read_spec(&files, spec);
  if (!failed) failed = match(data, &files, options);
  return failed ? failed : check(data, &info, spec);
}

void dataset_feed(const struct dataset *data, const uint64_t *order, int64_t count) {
  for (uint32_t i = 0; i < data->count; i++) column_gather(&data->columns[i], order, count);
}
