/* npy.c: the bytes of a .npy file in (NumPy's format 1 to 3), an array that points into them
 * out. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

struct text {
  const char *at, *end;
};

bool fault_set(struct fault *fault, const char *code, const char *hint, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(fault->text, sizeof fault->text, format, values);
  va_end(values);
  fault->code = code;
  fault->hint = hint;
  return false;
}

bool array_bytes(const struct array *array, uint64_t *bytes) {
  *bytes = dtype_bytes(array->dtype);
  for (uint32_t axis = 0; axis < array->rank; axis++)
    if (array->shape[axis] < 0 ||
        __builtin_mul_overflow(*bytes, (uint64_t)array->shape[axis], bytes))
      return false;
  return true;
}

static void skip_space(struct text *in) {
  while (in->at < in->end && (*in->at == ' ' || *in->at == '\n')) in->at++;
}

static bool eat(struct text *in, const char *word) {
  skip_space(in);
  size_t length = strlen(word);
  if ((size_t)(in->end - in->at) < length || memcmp(in->at, word, length) != 0) return false;
  in->at += length;
  return true;
}

static bool quoted(struct text *in, char *out, size_t size) {
  if (!eat(in, "'")) return false;
  for (size_t used = 0; in->at < in->end && used < size; used++) {
    out[used] = *in->at++;
    if (out[used] != '\'') continue;
    out[used] = 0;
    return true;
  }
  return false;
}

/* (60000, 28, 28) or (10,) or () */
static bool read_shape(struct text *in, struct array *array) {
  array->rank = 0;
  if (!eat(in, "(")) return false;
  while (!eat(in, ")")) {
    const char *first;
    int64_t extent = 0;
    skip_space(in);
    for (first = in->at; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
      if (__builtin_mul_overflow(extent, 10, &extent) ||
          __builtin_add_overflow(extent, *in->at - '0', &extent))
        return false;
    if (in->at == first || array->rank == RANK_MAX) return false;
    array->shape[array->rank++] = extent;
    if (!eat(in, ",")) return eat(in, ")");
  }
  return true;
}

static bool read_dtype(const char *descr, aot_dtype *dtype) {
  static const struct {
    char code[3];
    aot_dtype dtype;
  } known[] = {{"b1", AOT_BOOL},    {"i1", AOT_INT8},    {"u1", AOT_UINT8},  {"i2", AOT_INT16},
               {"u2", AOT_UINT16},  {"f2", AOT_FLOAT16}, {"i4", AOT_INT32},  {"u4", AOT_UINT32},
               {"f4", AOT_FLOAT32}, {"i8", AOT_INT64},   {"u8", AOT_UINT64}, {"f8", AOT_FLOAT64}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(descr + 1, known[i].code) == 0 && (descr[0] == '<' || descr[0] == '|')) {
      *dtype = known[i].dtype;
      return true;
    }
  return false;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } with the keys in any order. */
static bool read_dictionary(struct text *in, struct array *array, char *descr, size_t size,
                            bool *fortran) {
  unsigned seen = 0;
  char key[32];
  if (!eat(in, "{")) return false;
  while (!eat(in, "}")) {
    if (!quoted(in, key, sizeof key) || !eat(in, ":")) return false;
    if (strcmp(key, "descr") == 0 && quoted(in, descr, size)) seen |= 1;
    else if (strcmp(key, "fortran_order") == 0 &&
             ((*fortran = eat(in, "True")) || eat(in, "False")))
      seen |= 2;
    else if (strcmp(key, "shape") == 0 && read_shape(in, array)) seen |= 4;
    else return false;
    if (!eat(in, ",")) return eat(in, "}") && seen == 7;
  }
  return seen == 7;
}

/* Where the dictionary lies; false for a bad magic, an unknown version, or a header outside the
 * file. */
static bool find_dictionary(const uint8_t *bytes, uint64_t size, struct text *in) {
  if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3) return false;
  uint64_t prefix = bytes[6] == 1 ? 10 : 12;
  uint64_t length = bytes[8] | (uint64_t)bytes[9] << 8;
  if (bytes[6] > 1) length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
  if (length > size - prefix) return false;
  in->at = (const char *)bytes + prefix;
  in->end = in->at + length;
  return true;
}

bool npy_read(const uint8_t *bytes, uint64_t size, struct array *array, struct fault *fault) {
  struct text in;
  char descr[32] = "";
  bool fortran = false;
  array->pixels = false;
  if (!find_dictionary(bytes, size, &in))
    return fault_set(fault, "AOT-D011", NULL, "not a .npy array, or truncated");
  array->data = (const uint8_t *)in.end;
  if (!read_dictionary(&in, array, descr, sizeof descr, &fortran))
    return fault_set(fault, "AOT-D011", "save plain arrays, no objects or records",
                     "its .npy header cannot be read");
  if (!read_dtype(descr, &array->dtype))
    return fault_set(fault, "AOT-D011", "save bool, integer or float arrays in little-endian order",
                     "dtype '%s' is not supported", descr);
  if (fortran && array->rank > 1)
    return fault_set(fault, "AOT-D011", "save np.ascontiguousarray(array)",
                     "the array is in Fortran order");
  if (!array_bytes(array, &array->bytes) || array->bytes > (uint64_t)(bytes + size - array->data))
    return fault_set(fault, "AOT-D011", NULL, "truncated: shorter than its shape says");
  return true;
}
