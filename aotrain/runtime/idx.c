/* idx.c: the bytes of an IDX file (MNIST's: big-endian header, then the elements) in, an array
 * out. */
#include <string.h>

#include "program.h"

bool idx_read(const uint8_t *bytes, uint64_t size, struct array *array, struct fault *fault) {
  if (size < 4 || bytes[0] || bytes[1] || bytes[3] > RANK_MAX || size < 4 + 4 * (uint64_t)bytes[3])
    return fault_set(fault, "AOT-D011", NULL, "not an IDX file, or truncated");
  if (bytes[2] != 0x08 && bytes[2] != 0x09)
    return fault_set(fault, "AOT-D011", "convert it to .npz",
                     "IDX type 0x%02x is not supported, only bytes are", bytes[2]);
  array->dtype = bytes[2] == 0x08 ? AOT_UINT8 : AOT_INT8;
  array->rank = bytes[3];
  array->pixels = array->dtype == AOT_UINT8;
  for (uint32_t axis = 0; axis < array->rank; axis++) {
    const uint8_t *at = bytes + 4 + 4 * axis;
    array->shape[axis] = (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
  }
  array->data = bytes + 4 + 4 * array->rank;
  if (!array_bytes(array, &array->bytes) || array->bytes > (uint64_t)(bytes + size - array->data))
    return fault_set(fault, "AOT-D011", NULL, "truncated: shorter than its header says");
  return true;
}
