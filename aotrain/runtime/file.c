/* file.c: paths and descriptors in, whole reads and writes out; signals and short counts are
 * handled here. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

bool aot_join(char *path, size_t size, const char *folder, const char *name) {
  int needed = snprintf(path, size, "%s/%s", folder, name);
  return needed > 0 && (size_t)needed < size;
}

bool aot_read_at(int file, void *data, uint64_t bytes, uint64_t offset) {
  uint8_t *at = data;
  while (bytes) {
    size_t part = bytes < (1u << 30) ? (size_t)bytes : 1u << 30;
    ssize_t got = pread(file, at, part, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO; /* shorter than fstat said */
    if (got <= 0) return false;
    at += got;
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return true;
}

bool aot_write_all(int file, const void *data, uint64_t bytes) {
  const uint8_t *at = data;
  while (bytes) {
    ssize_t put = write(file, at, bytes < (1u << 30) ? (size_t)bytes : 1u << 30);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    if (put <= 0) return false;
    at += put;
    bytes -= (uint64_t)put;
  }
  return true;
}

int aot_open_file(const char *path, uint64_t *bytes) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
  if (file < 0) return -1;
  struct stat status;
  int failed = fstat(file, &status) != 0;
  if (!failed && !S_ISREG(status.st_mode)) {
    failed = 1;
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  }
  if (failed) {
    int reason = errno;
    close(file);
    errno = reason;
    return -1;
  }
  *bytes = (uint64_t)status.st_size;
  return file;
}

bool aot_crc_file(int file, uint64_t offset, uint64_t bytes, uint32_t *crc) {
  uint8_t part[16384];
  while (bytes) {
    uint64_t size = bytes < sizeof part ? bytes : sizeof part;
    if (!aot_read_at(file, part, size, offset)) return false;
    *crc = aot_crc32(*crc, part, (size_t)size);
    offset += size;
    bytes -= size;
  }
  return true;
}
