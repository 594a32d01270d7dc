/* plan.c: plan.bin in, the model's tables out.
 *
 * The file, little-endian:
 *
 *   0   magic "AOTPLAN\0"
 *   8   u32 version
 *   12  u32 CRC-32 of bytes 16 to the end
 *   16  u64 bytes of the file
 *   24  u64 where the tables end and the constants start
 *   32  tables (tables.c), then the constants' bytes in tensor order
 *
 * aotrain/artifact/planfile.py writes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { HEADER = 32, VERSION = 1 };

static uint64_t little(const uint8_t *at, unsigned bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | at[bytes];
  return value;
}

static aot_status check_header(aot *model, const uint8_t *header, uint64_t file_bytes) {
  if (memcmp(header, "AOTPLAN", 8) != 0)
    return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is not a plan");
  uint64_t version = little(header + 8, 4), bytes = little(header + 16, 8),
           tables = little(header + 24, 8);
  if (version != VERSION)
    return aot_fail(model, AOT_NEWER,
                    "plan.bin has format version %llu, this loader reads %d\n"
                    "hint: compile the model again, or use the loader that came with the artifact",
                    (unsigned long long)version, VERSION);
  if (bytes != file_bytes)
    return aot_fail(model, AOT_BAD_ARTIFACT,
                    "plan.bin has %llu bytes, its header says %llu: truncated?",
                    (unsigned long long)file_bytes, (unsigned long long)bytes);
  if (tables < HEADER || tables > file_bytes)
    return aot_fail(model, AOT_BAD_ARTIFACT,
                    "plan.bin is corrupted: its tables end outside the file");
  return AOT_OK;
}

aot_status aot_plan_read(aot *model, int file, uint64_t file_bytes) {
  uint8_t header[HEADER];
  if (file_bytes < HEADER)
    return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is truncated: %llu bytes",
                    (unsigned long long)file_bytes);
  if (!aot_read_at(file, header, HEADER, 0))
    return aot_fail(model, AOT_IO, "cannot read plan.bin: %s", strerror(errno));
  aot_status status = check_header(model, header, file_bytes);
  if (status) return status;

  uint32_t crc = 0;
  if (!aot_crc_file(file, 16, file_bytes - 16, &crc))
    return aot_fail(model, AOT_IO, "cannot read plan.bin: %s", strerror(errno));
  if (crc != little(header + 12, 4))
    return aot_fail(model, AOT_BAD_ARTIFACT, "plan.bin is corrupted: its checksum does not match");

  model->constants_at = little(header + 24, 8);
  uint64_t bytes = model->constants_at - HEADER;
  model->tables = malloc(bytes ? bytes : 1);
  if (!model->tables)
    return aot_fail(model, AOT_MEMORY, "cannot allocate %llu bytes for the plan's tables",
                    (unsigned long long)bytes);
  model->table_bytes += bytes;
  if (!aot_read_at(file, model->tables, bytes, HEADER))
    return aot_fail(model, AOT_IO, "cannot read plan.bin: %s", strerror(errno));
  return aot_tables_parse(model, model->tables, bytes);
}
