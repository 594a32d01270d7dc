/* convert.c: an array's rows in, an input's batch out; what would lose information is refused
 * beforehand. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

const char *dtype_name(aot_dtype dtype) {
  static const char *const names[] = {"bool",    "int8",     "uint8",  "int16",  "uint16",
                                      "float16", "bfloat16", "int32",  "uint32", "float32",
                                      "int64",   "uint64",   "float64"};
  return names[dtype];
}

uint32_t dtype_bytes(aot_dtype dtype) {
  static const uint8_t bytes[] = {1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};
  return bytes[dtype];
}

static bool is_signed(aot_dtype dtype) {
  return dtype == AOT_INT8 || dtype == AOT_INT16 || dtype == AOT_INT32 || dtype == AOT_INT64;
}

bool dtype_integer(aot_dtype dtype) {
  return is_signed(dtype) || dtype == AOT_UINT8 || dtype == AOT_UINT16 || dtype == AOT_UINT32 ||
         dtype == AOT_UINT64;
}

/* Element `index` of an integer array, two's complement in 64 bits. */
static int64_t integer_at(const struct array *array, uint64_t index) {
  uint32_t bytes = dtype_bytes(array->dtype), shift = 64 - 8 * bytes;
  uint64_t value = 0; /* little-endian, as the host is */
  memcpy(&value, array->data + index * bytes, bytes);
  return is_signed(array->dtype) ? (int64_t)(value << shift) >> shift : (int64_t)value;
}

static bool fits(int64_t value, aot_dtype from, aot_dtype to) {
  uint32_t bits = 8 * dtype_bytes(to);
  bool huge = from == AOT_UINT64 && value < 0; /* above INT64_MAX */
  if (!is_signed(to))
    return bits == 64 ? huge || value >= 0 : !huge && value >= 0 && value >> bits == 0;
  return !huge &&
         (bits == 64 || (value >= -(INT64_C(1) << (bits - 1)) && value < INT64_C(1) << (bits - 1)));
}

static void print_shape(char *out, size_t size, aot_dtype dtype, const int64_t *shape,
                        uint32_t rank, const char *first) {
  size_t used = (size_t)snprintf(out, size, "%s[%s", dtype_name(dtype), rank ? first : "");
  for (uint32_t axis = 1; axis < rank && used < size; axis++)
    used += (size_t)snprintf(out + used, size - used, ", %" PRId64, shape[axis]);
  if (used < size) snprintf(out + used, size - used, "]");
}

static uint64_t row_elements(const int64_t *shape, uint32_t rank) {
  uint64_t product = 1;
  for (uint32_t axis = 1; axis < rank; axis++) product *= (uint64_t)shape[axis];
  return product;
}

static bool same_rows(const struct column *column) {
  const aot_tensor *input = &column->input;
  const struct array *array = &column->array;
  if (array->pixels)
    return row_elements(input->shape, input->rank) == row_elements(array->shape, array->rank);
  return input->rank == array->rank &&
         (input->rank < 2 || memcmp(input->shape + 1, array->shape + 1,
                                    (input->rank - 1) * sizeof *array->shape) == 0);
}

static bool convertible(const struct column *column) {
  aot_dtype from = column->array.dtype, to = column->input.dtype;
  return from == to || (dtype_integer(from) && dtype_integer(to)) ||
         (column->array.pixels && to == AOT_FLOAT32);
}

static int check_values(const struct column *column, const aot_info *info, const char *file) {
  const struct array *array = &column->array;
  aot_dtype to = column->input.dtype;
  uint64_t width = row_elements(array->shape, array->rank),
           elements = array->bytes / dtype_bytes(array->dtype);
  bool label = column->label && info->classes > 0 && dtype_integer(to);
  if (!dtype_integer(array->dtype) || !dtype_integer(to) || (!label && array->dtype == to))
    return EXIT_DONE;
  for (uint64_t i = 0; i < elements; i++) {
    int64_t value = integer_at(array, i);
    if (!fits(value, array->dtype, to))
      return refuse(EXIT_INPUT, "AOT-D019", NULL,
                    "%s: row %" PRIu64 " of '%s' holds a value that %s cannot", file, i / width,
                    column->input.name, dtype_name(to));
    if (label && value != info->ignored_label && (value < 0 || value >= info->classes))
      return refuse(EXIT_INPUT, "AOT-D017", "labels are class indices that start at 0",
                    "%s: label %" PRId64 " in row %" PRIu64 " of '%s' is outside 0 .. %" PRId64,
                    file, value, i / width, column->input.name, info->classes - 1);
  }
  return EXIT_DONE;
}

int column_check(const struct column *column, const aot_info *info, const char *file) {
  const aot_tensor *input = &column->input;
  const struct array *array = &column->array;
  char found[256], expected[256];
  print_shape(found, sizeof found, array->dtype, array->shape, array->rank, "N");
  print_shape(expected, sizeof expected, input->dtype, input->shape, input->rank, "N");
  if (!array->rank != !input->rank || !same_rows(column))
    return refuse(EXIT_INPUT, "AOT-D014",
                  column->label && info->classes && array->rank == input->rank + 1
                      ? "labels are class indices: one_hot.argmax(1)"
                      : NULL,
                  "%s: the array for input '%s' is %s, expected %s",
                  file, input->name, found, expected);
  if (!convertible(column)) {
    char hint[64];
    snprintf(hint, sizeof hint, "convert it with .astype(np.%s)", dtype_name(input->dtype));
    return refuse(EXIT_INPUT, "AOT-D015", hint, "%s: the array for input '%s' is %s, expected %s",
                  file, input->name, found, expected);
  }
  return check_values(column, info, file);
}

static void convert_row(const struct column *column, uint64_t row, uint8_t *out,
                        uint64_t elements) {
  const struct array *array = &column->array;
  uint32_t from = dtype_bytes(array->dtype), to = dtype_bytes(column->input.dtype);
  if (array->dtype == column->input.dtype) {
    memcpy(out, array->data + row * elements * from, (size_t)(elements * to));
    return;
  }
  for (uint64_t i = 0; i < elements; i++) {
    if (column->input.dtype == AOT_FLOAT32) {
      float scaled = (float)array->data[row * elements + i] / 255.0f;
      memcpy(out + i * to, &scaled, to);
    } else {
      int64_t value = integer_at(array, row * elements + i);
      memcpy(out + i * to, &value, to); /* little-endian: the low bytes */
    }
  }
}

void column_gather(const struct column *column, const uint64_t *order, int64_t count) {
  const aot_tensor *input = &column->input;
  uint64_t elements = row_elements(input->shape, input->rank),
           bytes = elements * dtype_bytes(input->dtype);
  for (int64_t i = 0; i < (input->rank ? input->shape[0] : 1); i++)
    convert_row(column, input->rank ? order[i < count ? i : 0] : 0, (uint8_t *)input->data + (uint64_t)i * bytes,
                elements);
}
