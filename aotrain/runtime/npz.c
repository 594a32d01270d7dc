/* npz.c: the bytes of a .npz (a zip of .npy files, stored) in, arrays that point into them out.
 *
 * PKWARE APPNOTE 6.3: the end record points to the central directory, whose entries point to local
 * headers, behind which the data lies. Zip64 fields are read where the short ones are all ones. */
#include <stdio.h>
#include <string.h>

#include "program.h"

struct zip {
  const uint8_t *bytes;
  uint64_t size;
};

struct member {
  uint64_t method, crc, packed, unpacked, local; /* `local`: offset of the local header */
  const uint8_t *name;
  uint64_t name_bytes;
};

static const char ZIPPED[] = "write it with np.savez instead of np.savez_compressed";

static uint64_t little(const uint8_t *at, unsigned bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | at[bytes];
  return value;
}

static bool inside(const struct zip *zip, uint64_t offset, uint64_t bytes) {
  return offset <= zip->size && bytes <= zip->size - offset;
}

/* Offset and entries of the central directory. */
static bool find_directory(const struct zip *zip, uint64_t *offset, uint64_t *entries) {
  for (uint64_t back = 22; back <= zip->size && back <= 22 + 65535; back++) {
    uint64_t at = zip->size - back;
    const uint8_t *end = zip->bytes + at;
    if (memcmp(end, "PK\5\6", 4) != 0) continue;
    *entries = little(end + 10, 2);
    *offset = little(end + 16, 4);
    if (at < 20 || memcmp(end - 20, "PK\6\7", 4) != 0) return true;
    uint64_t wide = little(end - 12, 8); /* zip64 end record */
    if (!inside(zip, wide, 56) || memcmp(zip->bytes + wide, "PK\6\6", 4) != 0) return false;
    *entries = little(zip->bytes + wide + 32, 8);
    *offset = little(zip->bytes + wide + 48, 8);
    return true;
  }
  return false;
}

/* Replaces fields that are all ones by those of the zip64 extra field (id 1), which come in this
 * order. */
static bool widen(struct member *member, const uint8_t *extra, uint64_t bytes) {
  while (bytes >= 4) {
    uint64_t id = little(extra, 2), length = little(extra + 2, 2);
    if (length > bytes - 4) return false;
    const uint8_t *field = extra + 4, *end = field + length;
    uint64_t *wide[] = {&member->unpacked, &member->packed, &member->local};
    for (int i = 0; id == 1 && i < 3; i++) {
      if (*wide[i] != 0xFFFFFFFFu) continue;
      if (end - field < 8) return false;
      *wide[i] = little(field, 8);
      field += 8;
    }
    extra += 4 + length;
    bytes -= 4 + length;
  }
  return true;
}

static bool next_member(const struct zip *zip, uint64_t *at, struct member *member) {
  const uint8_t *entry = zip->bytes + *at;
  if (!inside(zip, *at, 46) || memcmp(entry, "PK\1\2", 4) != 0) return false;
  uint64_t name = little(entry + 28, 2), extra = little(entry + 30, 2),
           comment = little(entry + 32, 2);
  if (!inside(zip, *at + 46, name + extra + comment)) return false;
  *member = (struct member){little(entry + 10, 2),
                            little(entry + 16, 4),
                            little(entry + 20, 4),
                            little(entry + 24, 4),
                            little(entry + 42, 4),
                            entry + 46,
                            name};
  *at += 46 + name + extra + comment;
  return widen(member, entry + 46 + name, extra);
}

static const uint8_t *member_data(const struct zip *zip, const struct member *member) {
  if (!inside(zip, member->local, 30) || memcmp(zip->bytes + member->local, "PK\3\4", 4) != 0)
    return NULL;
  const uint8_t *header = zip->bytes + member->local;
  uint64_t data = member->local + 30 + little(header + 26, 2) + little(header + 28, 2);
  return inside(zip, data, member->packed) ? zip->bytes + data : NULL;
}

static bool read_member(const struct zip *zip, const struct member *member, struct array *array,
                        struct fault *fault) {
  uint64_t length = member->name_bytes;
  if (length > 4 && memcmp(member->name + length - 4, ".npy", 4) == 0) length -= 4;
  if (length >= sizeof array->name) length = sizeof array->name - 1;
  memcpy(array->name, member->name, (size_t)length);
  array->name[length] = 0;
  if (member->method != 0)
    return fault_set(fault, "AOT-D012", ZIPPED, "array '%s' is compressed", array->name);
  const uint8_t *data = member_data(zip, member);
  if (!data || member->packed != member->unpacked)
    return fault_set(fault, "AOT-D011", NULL, "array '%s' lies outside the file: truncated?",
                     array->name);
  if (aot_crc32(0, data, (size_t)member->packed) != member->crc)
    return fault_set(fault, "AOT-D011", NULL,
                     "array '%s' is corrupted: its checksum does not match", array->name);
  struct fault inner;
  if (npy_read(data, member->packed, array, &inner)) return true;
  return fault_set(fault, inner.code, inner.hint, "array '%s': %s", array->name, inner.text);
}

bool npz_read(const uint8_t *bytes, uint64_t size, struct array *arrays, uint32_t *count,
              struct fault *fault) {
  struct zip zip = {bytes, size};
  uint64_t at, entries;
  if (!find_directory(&zip, &at, &entries))
    return fault_set(fault, "AOT-D011", NULL, "not a .npz, or truncated");
  for (uint64_t i = 0; i < entries; i++) {
    struct member member;
    if (!next_member(&zip, &at, &member))
      return fault_set(fault, "AOT-D011", NULL, "its zip directory is damaged");
    if (*count == ARRAYS_MAX)
      return fault_set(fault, "AOT-D011", NULL, "more than %d arrays", ARRAYS_MAX);
    if (!read_member(&zip, &member, &arrays[*count], fault)) return false;
    ++*count;
  }
  return true;
}
