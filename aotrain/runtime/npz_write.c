/* npz_write.c: arrays in, an uncompressed .npz out, by way of a temporary name; up to 4 GiB. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

struct entry {
  char header[512]; /* of the .npy */
  uint64_t header_bytes, bytes, crc, offset;
};

static void little(uint8_t *at, unsigned bytes, uint64_t value) {
  for (unsigned i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static void npy_header(const struct array *array, struct entry *entry) {
  static const char *const codes[] = {"|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "",
                                      "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"};
  char *text = entry->header + 10;
  size_t size = sizeof entry->header - 74;
  size_t used = (size_t)snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                 codes[array->dtype]);
  for (uint32_t axis = 0; axis < array->rank; axis++)
    used += (size_t)snprintf(text + used, size - used, "%" PRId64 ",", array->shape[axis]);
  used += (size_t)snprintf(text + used, size - used, "), }");
  while ((10 + used + 1) % 64) text[used++] = ' ';
  text[used++] = '\n';
  memcpy(entry->header, "\x93NUMPY\1\0", 8);
  little((uint8_t *)entry->header + 8, 2, used);
  entry->header_bytes = 10 + used;
  entry->bytes = entry->header_bytes + array->bytes;
  entry->crc = aot_crc32(aot_crc32(0, entry->header, (size_t)entry->header_bytes), array->data,
                         (size_t)array->bytes);
}

/* The 26 bytes that local header and directory share. */
static void common(uint8_t *at, const struct entry *entry, size_t name_bytes) {
  little(at, 2, 20);             /* version that can read it */
  little(at + 2, 2, 1u << 11);   /* names are UTF-8 */
  little(at + 4, 2, 0);          /* stored */
  little(at + 6, 4, 0x00210000); /* 1980-01-01: no time stamp */
  little(at + 10, 4, entry->crc);
  little(at + 14, 4, entry->bytes);
  little(at + 18, 4, entry->bytes);
  little(at + 22, 2, name_bytes);
  little(at + 24, 2, 0);
}

static bool put_member(FILE *out, const struct array *array, struct entry *entry) {
  uint8_t local[30] = {'P', 'K', 3, 4};
  common(local + 4, entry, strlen(array->name) + 4);
  return fwrite(local, 1, 30, out) == 30 && fprintf(out, "%s.npy", array->name) > 0 &&
         fwrite(entry->header, 1, (size_t)entry->header_bytes, out) == entry->header_bytes &&
         fwrite(array->data, 1, (size_t)array->bytes, out) == array->bytes;
}

static bool put_directory(FILE *out, const struct array *arrays, const struct entry *entries,
                          uint32_t count, uint64_t start) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint8_t record[46] = {'P', 'K', 1, 2, 20};
    common(record + 6, &entries[i], strlen(arrays[i].name) + 4);
    little(record + 42, 4, entries[i].offset);
    if (fwrite(record, 1, 46, out) != 46 || fprintf(out, "%s.npy", arrays[i].name) < 0)
      return false;
    bytes += 46 + strlen(arrays[i].name) + 4;
  }
  uint8_t end[22] = {'P', 'K', 5, 6};
  little(end + 8, 2, count);
  little(end + 10, 2, count);
  little(end + 12, 4, bytes);
  little(end + 16, 4, start);
  return fwrite(end, 1, 22, out) == 22;
}

static bool put_all(FILE *out, const struct array *arrays, struct entry *entries, uint32_t count,
                    uint64_t start) {
  for (uint32_t i = 0; i < count; i++)
    if (!put_member(out, &arrays[i], &entries[i])) return false;
  return put_directory(out, arrays, entries, count, start) && fflush(out) == 0 &&
         fsync(fileno(out)) == 0;
}

bool npz_write(const char *path, const struct array *arrays, uint32_t count, struct fault *fault) {
  static struct entry entries[PAIRS_MAX];
  char temporary[PATH_MAX];
  uint64_t at = 0;
  for (uint32_t i = 0; i < count; i++) {
    npy_header(&arrays[i], &entries[i]);
    entries[i].offset = at;
    at += 30 + strlen(arrays[i].name) + 4 + entries[i].bytes;
  }
  if (at > UINT32_MAX - (1u << 20))
    return fault_set(fault, "AOT-D021", "predict in parts", "outputs above 4 GiB");
  if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= PATH_MAX)
    return fault_set(fault, "AOT-D021", NULL, "the path is too long");
  FILE *out = fopen(temporary, "wb");
  if (!out) return fault_set(fault, "AOT-D021", NULL, "cannot write: %s", strerror(errno));
  bool done = put_all(out, arrays, entries, count, at);
  int reason = errno;
  if (fclose(out) != 0 && done) done = false, reason = errno;
  if (done && rename(temporary, path) != 0) done = false, reason = errno;
  if (done) return true;
  unlink(temporary);
  return fault_set(fault, "AOT-D021", NULL, "cannot write: %s", strerror(reason));
}
