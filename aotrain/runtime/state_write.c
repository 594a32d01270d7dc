/* state_write.c: the state in, a checkpoint file out, atomically (state.h shows the format). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "state.h"

struct text { /* the header being built; `full` once something did not fit */
  char *at, *end;
  bool full;
};

const char *aot_state_dtype(aot_dtype dtype) {
  static const char *const names[] = {"BOOL", "I8",  "U8",  "I16", "U16", "F16", "BF16",
                                      "I32",  "U32", "F32", "I64", "U64", "F64"};
  return names[dtype];
}

uint64_t aot_state_header_bound(const aot *model) {
  uint64_t bytes = 65536; /* notes, and what other writers add */
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    const aot_tensor *tensor = &model->tensors[i];
    if (tensor->kind != AOT_STATE && tensor->kind != AOT_HYPER) continue;
    uint64_t elements =
        tensor->role == AOT_COUNTER ? tensor->bytes / aot_item_bytes(tensor->dtype) : 0;
    bytes += 12 * strlen(tensor->name) + 256 + 42ull * tensor->rank +
             42 * (elements < 64 ? elements : 64);
  }
  return bytes;
}

static void put(struct text *out, const char *bytes, size_t count) {
  if ((size_t)(out->end - out->at) < count) {
    out->full = true;
    return;
  }
  memcpy(out->at, bytes, count);
  out->at += count;
}

static void put_plain(struct text *out, const char *text) { put(out, text, strlen(text)); }

static void put_string(struct text *out, const char *text) {
  put(out, "\"", 1);
  for (; *text; text++) {
    char escaped[8];
    if (*text == '"' || *text == '\\')
      put(out, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\%c", *text));
    else if ((unsigned char)*text < 0x20)
      put(out, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", *text));
    else put(out, text, 1);
  }
  put(out, "\"", 1);
}

static void put_number(struct text *out, uint64_t number) {
  char digits[24];
  put(out, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number));
}

static void put_pair(struct text *out, const char *key, const char *value) {
  put(out, ",", 1);
  put_string(out, key);
  put(out, ":", 1);
  put_string(out, value);
}

static void put_hyper(struct text *out, const aot_tensor *tensor) {
  char key[STATE_NAME_MAX], value[16];
  uint32_t bits;
  memcpy(&bits, tensor->data, sizeof bits);
  snprintf(key, sizeof key, STATE_HYPER "%s", tensor->name);
  snprintf(value, sizeof value, "%08" PRIx32, bits);
  put_pair(out, key, value);
}

static void put_counter(struct text *out, const aot_tensor *tensor) {
  char value[STATE_VALUE_MAX];
  size_t used = 0, item = aot_item_bytes(tensor->dtype);
  value[0] = 0;
  for (uint64_t at = 0; at < tensor->bytes; at += item) {
    uint64_t element = 0; /* little-endian, as the host is */
    memcpy(&element, (const uint8_t *)tensor->data + at, item);
    int more = snprintf(value + used, sizeof value - used, at ? " %" PRIu64 : "%" PRIu64, element);
    if (more < 0 || (size_t)more >= sizeof value - used) {
      out->full = true;
      return;
    }
    used += (size_t)more;
  }
  put_pair(out, tensor->name, value);
}

static bool has_data(const aot_tensor *tensor) {
  return tensor->kind == AOT_STATE && tensor->role != AOT_COUNTER;
}

/* Calls `each` in file order: wide items first, so that all of them are aligned. */
static bool in_order(aot *model, bool (*each)(aot_tensor *, void *), void *context) {
  for (uint32_t item = 8; item; item /= 2)
    for (uint32_t i = 0; i < model->tensor_count; i++)
      if (has_data(&model->tensors[i]) && aot_item_bytes(model->tensors[i].dtype) == item &&
          !each(&model->tensors[i], context))
        return false;
  return true;
}

struct listing {
  struct text *out;
  uint64_t offset;
};

static bool put_tensor(aot_tensor *tensor, void *context) {
  struct listing *listing = context;
  struct text *out = listing->out;
  put(out, ",", 1);
  put_string(out, tensor->name);
  put_plain(out, ":{\"dtype\":");
  put_string(out, aot_state_dtype(tensor->dtype));
  put_plain(out, ",\"shape\":[");
  for (uint32_t axis = 0; axis < tensor->rank; axis++) {
    if (axis) put(out, ",", 1);
    put_number(out, (uint64_t)tensor->shape[axis]);
  }
  put_plain(out, "],\"data_offsets\":[");
  put_number(out, listing->offset);
  put(out, ",", 1);
  put_number(out, listing->offset += tensor->bytes);
  put_plain(out, "]}");
  return true;
}

/* The header into model->header behind 8 bytes for its length; its end, or null when it does not
 * fit. */
static char *build(aot *model, const aot_note *notes, size_t count) {
  struct text out = {model->header, model->header + model->header_bytes, false};
  put(&out, "\0\0\0\0\0\0\0\0", 8);
  put_plain(&out, "{\"__metadata__\":{\"" STATE_CRC "\":\"00000000\"");
  put_pair(&out, STATE_VERSION, STATE_FORMAT);
  char steps[24];
  snprintf(steps, sizeof steps, "%" PRId64, aot_steps(model));
  put_pair(&out, STATE_STEP, steps);
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    if (model->tensors[i].kind == AOT_HYPER) put_hyper(&out, &model->tensors[i]);
    if (model->tensors[i].role == AOT_COUNTER) put_counter(&out, &model->tensors[i]);
  }
  for (size_t i = 0; i < count; i++) put_pair(&out, notes[i].key, notes[i].value);
  put(&out, "}", 1);
  struct listing listing = {&out, 0};
  in_order(model, put_tensor, &listing);
  put(&out, "}", 1);
  while ((out.at - model->header) % 8 && !out.full) put(&out, " ", 1);
  if (out.full) return NULL;
  uint64_t length = (uint64_t)(out.at - model->header) - 8;
  for (int i = 0; i < 8; i++) model->header[i] = (char)(length >> 8 * i);
  return out.at;
}

static bool add_crc(aot_tensor *tensor, void *crc) {
  *(uint32_t *)crc = aot_crc32(*(uint32_t *)crc, tensor->data, (size_t)tensor->bytes);
  return true;
}

static bool write_data(aot_tensor *tensor, void *file) {
  return aot_write_all(*(int *)file, tensor->data, tensor->bytes);
}

static bool sync_file(int file) { return fsync(file) == 0 || errno == EINVAL || errno == ENOSYS; }

/* The rename itself must survive a power cut as well; best effort, as not every system can. */
static void sync_folder(const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  int file = open(folder, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!fsync(file);
  close(file);
}

static bool write_file(aot *model, const char *path, const char *end) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool done = aot_write_all(file, model->header, (uint64_t)(end - model->header)) &&
              in_order(model, write_data, &file) && sync_file(file);
  int reason = errno;
  if (close(file) != 0 && done) {
    done = false;
    reason = errno;
  }
  errno = reason;
  return done;
}

aot_status aot_save(aot *model, const char *path, const aot_note *notes, size_t count) {
  char temporary[PATH_MAX];
  if (!model->block || !path) return aot_fail(model, AOT_BAD_ARGUMENT, "nothing to save");
  if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary)
    return aot_fail(model, AOT_BAD_ARGUMENT, "the path of the checkpoint is too long");
  aot_status status = aot_backend_sync(model, false);
  if (status) return status;
  const char *end = build(model, notes, count);
  if (!end)
    return aot_fail(model, AOT_BAD_ARGUMENT, "the notes do not fit into the checkpoint's header");
  uint32_t crc = aot_crc32(0, model->header, (size_t)(end - model->header));
  in_order(model, add_crc, &crc);
  char digits[12];
  snprintf(digits, sizeof digits, "%08" PRIx32, crc);
  memcpy(model->header + 8 + sizeof "{\"__metadata__\":{\"" STATE_CRC "\":\"" - 1, digits, 8);
  if (!write_file(model, temporary, end) || rename(temporary, path) != 0) {
    int reason = errno;
    unlink(temporary);
    return aot_fail(model, AOT_IO, "cannot save %s: %s", path, strerror(reason));
  }
  sync_folder(path);
  return AOT_OK;
}
