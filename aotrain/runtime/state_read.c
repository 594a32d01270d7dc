/* state_read.c: a checkpoint file in, the state out; everything is checked before a byte of it
 * changes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "json.h"
#include "state.h"

struct load {
  aot *model;
  const char *path;
  int file;
  uint64_t data_at, data_bytes; /* bytes in the file */
  uint64_t covered;             /* bytes of the data that a tensor claims */
  uint32_t guess;               /* the tensor that probably comes next */
  char *crc;                    /* where the header holds the checksum */
  bool ours;                    /* has a key of ours, so it must have the checksum */
  bool apply;                   /* second pass: metadata into the state */
  aot_note *notes;
  size_t note_count;
};

static aot_status malformed(struct load *load) {
  return aot_fail(load->model, AOT_BAD_STATE,
                  "%s is corrupted: its header is not what safetensors allows", load->path);
}

static aot_tensor *state_named(struct load *load, const char *name) {
  aot *model = load->model;
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    uint32_t index = (load->guess + i) % model->tensor_count;
    if (model->tensors[index].kind != AOT_STATE || strcmp(model->tensors[index].name, name) != 0)
      continue;
    load->guess = index + 1;
    return &model->tensors[index];
  }
  return NULL;
}

struct stored { /* a tensor's entry in the header */
  char dtype[8];
  uint64_t begin, end;
  uint32_t rank;
  bool same_shape;
};

static bool read_shape(struct json *in, const aot_tensor *tensor, struct stored *stored) {
  stored->same_shape = true;
  stored->rank = 0;
  if (!json_eat(in, '[')) return false;
  if (!json_eat(in, ']')) {
    do {
      uint64_t extent;
      if (!json_natural(in, &extent)) return false;
      if (stored->rank >= tensor->rank || (uint64_t)tensor->shape[stored->rank] != extent)
        stored->same_shape = false;
      stored->rank++;
    } while (json_eat(in, ','));
    if (!json_eat(in, ']')) return false;
  }
  if (stored->rank != tensor->rank) stored->same_shape = false;
  return true;
}

static bool read_offsets(struct json *in, struct stored *stored) {
  return json_eat(in, '[') && json_natural(in, &stored->begin) && json_eat(in, ',') &&
         json_natural(in, &stored->end) && json_eat(in, ']');
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} in any order, each once. */
static bool read_stored(struct json *in, const aot_tensor *tensor, struct stored *stored) {
  unsigned seen = 0;
  if (!json_eat(in, '{')) return false;
  do {
    char key[16];
    unsigned bit;
    if (!json_string(in, key, sizeof key) || !json_eat(in, ':')) return false;
    if (strcmp(key, "dtype") == 0)
      bit = json_string(in, stored->dtype, sizeof stored->dtype) ? 1 : 0;
    else if (strcmp(key, "shape") == 0) bit = read_shape(in, tensor, stored) ? 2 : 0;
    else if (strcmp(key, "data_offsets") == 0) bit = read_offsets(in, stored) ? 4 : 0;
    else bit = 0;
    if (!bit || (seen & bit)) return false;
    seen |= bit;
  } while (json_eat(in, ','));
  return seen == 7 && json_eat(in, '}');
}

static void print_shape(const aot_tensor *tensor, char *out, size_t size) {
  size_t used = (size_t)snprintf(out, size, "%s[", aot_state_dtype(tensor->dtype));
  for (uint32_t axis = 0; axis < tensor->rank && used < size; axis++)
    used += (size_t)snprintf(out + used, size - used, axis ? ",%" PRId64 : "%" PRId64,
                             tensor->shape[axis]);
  if (used < size) snprintf(out + used, size - used, "]");
}

static aot_status read_tensor(struct load *load, struct json *in, const char *name) {
  aot *model = load->model;
  aot_tensor *tensor = state_named(load, name);
  if (!tensor || tensor->role == AOT_COUNTER)
    return aot_fail(model, AOT_BAD_STATE, "%s holds a tensor '%s' that this model does not have",
                    load->path, name);
  struct stored stored = {.dtype = ""};
  if (!read_stored(in, tensor, &stored)) return malformed(load);
  if (!stored.same_shape || strcmp(stored.dtype, aot_state_dtype(tensor->dtype)) != 0) {
    char expected[256];
    print_shape(tensor, expected, sizeof expected);
    return aot_fail(model, AOT_BAD_STATE,
                    "tensor '%s' in %s is %s of rank %u, expected %s: the %s differs", name,
                    load->path, stored.dtype, stored.rank, expected,
                    stored.same_shape ? "dtype" : "shape");
  }
  if (stored.begin > stored.end || stored.end > load->data_bytes ||
      stored.end - stored.begin != tensor->bytes)
    return aot_fail(model, AOT_BAD_STATE, "tensor '%s' in %s lies outside the file: truncated?",
                    name, load->path);
  if (model->found[tensor->index] != UINT64_MAX)
    return aot_fail(model, AOT_BAD_STATE, "%s holds the tensor '%s' twice", load->path, name);
  model->found[tensor->index] = stored.begin;
  load->covered += tensor->bytes;
  return AOT_OK;
}

/* "7 120" into the counter's elements; false when one is missing, too many or out of range. */
static bool read_counter(const aot_tensor *tensor, const char *text, bool apply) {
  struct json in = {text, text + strlen(text)};
  uint32_t item = aot_item_bytes(tensor->dtype);
  for (uint64_t at = 0; at < tensor->bytes; at += item) {
    uint64_t element;
    if (!json_natural(&in, &element) || (item < 8 && element >> 8 * item)) return false;
    if (apply)
      memcpy((uint8_t *)tensor->data + at, &element, item); /* little-endian, as the host is */
  }
  return json_end(&in);
}

static bool read_hex(const char *text, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < 8; i++) {
    const char *digits = "0123456789abcdef", *digit = text[i] ? strchr(digits, text[i]) : NULL;
    if (!digit) return false;
    *value = *value << 4 | (uint32_t)(digit - digits);
  }
  return text[8] == 0;
}

static aot_status read_hyper(struct load *load, const char *name, const char *value) {
  uint32_t bits;
  if (!read_hex(value, &bits)) return malformed(load);
  for (uint32_t i = 0; load->apply && i < load->model->tensor_count; i++) {
    aot_tensor *tensor = &load->model->tensors[i];
    if (tensor->kind == AOT_HYPER && strcmp(tensor->name, name) == 0)
      memcpy(tensor->data, &bits, sizeof bits);
  }
  return AOT_OK;
}

static aot_status read_steps(struct load *load, const char *value) {
  struct json in = {value, value + strlen(value)};
  uint64_t steps;
  if (!json_natural(&in, &steps) || !json_end(&in)) return malformed(load);
  if (load->apply) aot_set_steps(load->model, (int64_t)steps);
  return AOT_OK;
}

static aot_status read_pair(struct load *load, const char *key, const char *value) {
  aot *model = load->model;
  if (strcmp(key, STATE_CRC) == 0) return AOT_OK;
  if (strncmp(key, STATE_PREFIX, sizeof STATE_PREFIX - 1) == 0) load->ours = true;
  if (strcmp(key, STATE_VERSION) == 0 && strcmp(value, STATE_FORMAT) != 0)
    return aot_fail(model, AOT_NEWER, "%s has format version '%s', this loader reads " STATE_FORMAT,
                    load->path, value);
  if (strcmp(key, STATE_STEP) == 0) return read_steps(load, value);
  if (strncmp(key, STATE_HYPER, sizeof STATE_HYPER - 1) == 0)
    return read_hyper(load, key + sizeof STATE_HYPER - 1, value);
  aot_tensor *tensor = state_named(load, key);
  if (tensor && tensor->role == AOT_COUNTER) {
    if (!read_counter(tensor, value, load->apply))
      return aot_fail(model, AOT_BAD_STATE, "counter '%s' in %s has an impossible value '%s'", key,
                      load->path, value);
    model->found[tensor->index] = 0;
  }
  for (size_t i = 0; load->apply && i < load->note_count; i++)
    if (strcmp(load->notes[i].key, key) == 0)
      snprintf(load->notes[i].value, sizeof load->notes[i].value, "%.*s",
               (int)sizeof load->notes[i].value - 1, value);
  return AOT_OK;
}

static aot_status read_metadata(struct load *load, struct json *in) {
  char key[STATE_NAME_MAX], value[STATE_VALUE_MAX];
  if (!json_eat(in, '{')) return malformed(load);
  if (json_eat(in, '}')) return AOT_OK;
  do {
    if (!json_string(in, key, sizeof key) || !json_eat(in, ':')) return malformed(load);
    json_eat(in, ' ');
    const char *raw = in->at + 1;
    if (!json_string(in, value, sizeof value)) return malformed(load);
    if (strcmp(key, STATE_CRC) == 0) {
      if (in->at - raw != 9) return malformed(load);
      load->crc = load->model->header + (raw - load->model->header);
    }
    aot_status status = read_pair(load, key, value);
    if (status) return status;
  } while (json_eat(in, ','));
  return json_eat(in, '}') ? AOT_OK : malformed(load);
}

static aot_status read_header(struct load *load, const char *end) {
  struct json in = {load->model->header + 8, end};
  char name[STATE_NAME_MAX];
  if (!json_eat(&in, '{')) return malformed(load);
  if (!json_eat(&in, '}')) {
    do {
      if (!json_string(&in, name, sizeof name) || !json_eat(&in, ':')) return malformed(load);
      aot_status status = strcmp(name, "__metadata__") == 0 ? read_metadata(load, &in)
                                                            : read_tensor(load, &in, name);
      if (status) return status;
    } while (json_eat(&in, ','));
    if (!json_eat(&in, '}')) return malformed(load);
  }
  return json_end(&in) ? AOT_OK : malformed(load);
}

static aot_status check_complete(struct load *load) {
  aot *model = load->model;
  for (uint32_t i = 0; i < model->tensor_count; i++)
    if (model->tensors[i].kind == AOT_STATE && model->found[i] == UINT64_MAX)
      return aot_fail(model, AOT_BAD_STATE, "%s lacks the tensor '%s'", load->path,
                      model->tensors[i].name);
  if (load->covered != load->data_bytes)
    return aot_fail(model, AOT_BAD_STATE, "%s is corrupted: %" PRIu64 " bytes belong to no tensor",
                    load->path, load->data_bytes - load->covered);
  return AOT_OK;
}

static aot_status check_crc(struct load *load) {
  if (!load->crc) return load->ours ? malformed(load) : AOT_OK; /* another tool's file has none */
  char digits[9] = "";
  memcpy(digits, load->crc, 8);
  memcpy(load->crc, "00000000", 8);
  uint32_t crc = aot_crc32(0, load->model->header, (size_t)load->data_at), expected;
  memcpy(load->crc, digits, 8);
  if (!aot_crc_file(load->file, load->data_at, load->data_bytes, &crc))
    return aot_fail(load->model, AOT_IO, "cannot read %s: %s", load->path, strerror(errno));
  if (!read_hex(digits, &expected) || crc != expected)
    return aot_fail(load->model, AOT_BAD_STATE, "%s is corrupted: its checksum does not match",
                    load->path);
  return AOT_OK;
}

/* Length and text of the header into model->header. */
static aot_status fetch_header(struct load *load, uint64_t file_bytes) {
  aot *model = load->model;
  uint8_t prefix[8];
  if (file_bytes < 8)
    return aot_fail(model, AOT_BAD_STATE, "%s is truncated: %" PRIu64 " bytes", load->path,
                    file_bytes);
  if (!aot_read_at(load->file, prefix, 8, 0))
    return aot_fail(model, AOT_IO, "cannot read %s: %s", load->path, strerror(errno));
  uint64_t length = 0;
  for (int i = 8; i--;) length = length << 8 | prefix[i];
  if (length > file_bytes - 8)
    return aot_fail(model, AOT_BAD_STATE,
                    "%s is truncated or no safetensors file: its header ends outside it",
                    load->path);
  if (length > model->header_bytes - 8)
    return aot_fail(model, AOT_BAD_STATE,
                    "%s has a header of %" PRIu64 " bytes: not a state of this model", load->path,
                    length);
  load->data_at = 8 + length;
  load->data_bytes = file_bytes - load->data_at;
  if (!aot_read_at(load->file, model->header, load->data_at, 0))
    return aot_fail(model, AOT_IO, "cannot read %s: %s", load->path, strerror(errno));
  return AOT_OK;
}

static aot_status check_file(struct load *load, uint64_t file_bytes) {
  aot_status status = fetch_header(load, file_bytes);
  if (!status) status = read_header(load, load->model->header + load->data_at);
  if (!status) status = check_complete(load);
  return status ? status : check_crc(load);
}

static aot_status apply(struct load *load) {
  aot *model = load->model;
  for (uint32_t i = 0; i < model->tensor_count; i++) {
    aot_tensor *tensor = &model->tensors[i];
    if (tensor->kind != AOT_STATE || tensor->role == AOT_COUNTER) continue;
    if (!aot_read_at(load->file, tensor->data, tensor->bytes, load->data_at + model->found[i]))
      return aot_fail(model, AOT_IO, "cannot read %s, and the state is now incomplete: %s",
                      load->path, strerror(errno));
  }
  for (uint32_t i = 0; i < model->tensor_count; i++) model->found[i] = UINT64_MAX;
  for (size_t i = 0; i < load->note_count; i++) load->notes[i].value[0] = 0;
  load->apply = true;
  load->covered = 0;
  return read_header(load, model->header + load->data_at);
}

aot_status aot_load(aot *model, const char *path, aot_note *notes, size_t count) {
  if (!model->block || !path) return aot_fail(model, AOT_BAD_ARGUMENT, "nothing to load");
  struct load load = {.model = model, .path = path, .notes = notes, .note_count = count};
  uint64_t bytes;
  load.file = aot_open_file(path, &bytes);
  if (load.file < 0) return aot_fail(model, AOT_IO, "cannot open %s: %s", path, strerror(errno));
  for (uint32_t i = 0; i < model->tensor_count; i++) model->found[i] = UINT64_MAX;
  aot_status status = check_file(&load, bytes);
  if (!status) status = aot_backend_sync(model, true);
  if (!status) status = apply(&load);
  close(load.file);
  return status;
}
