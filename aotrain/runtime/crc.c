/* crc.c: bytes in, CRC-32 out (IEEE 802.3 polynomial 0xEDB88320, reflected), four bytes a round. */
#include <pthread.h>
#include <string.h>

#include "internal.h"

static uint32_t table[4][256];

static void fill(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    table[0][i] = crc;
  }
  for (int slice = 1; slice < 4; slice++)
    for (uint32_t i = 0; i < 256; i++)
      table[slice][i] = (table[slice - 1][i] >> 8) ^ table[0][table[slice - 1][i] & 255u];
}

uint32_t aot_crc32(uint32_t crc, const void *data, size_t bytes) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  const uint8_t *at = data;
  crc = ~crc;
  for (; bytes >= 4; bytes -= 4, at += 4) {
    uint32_t word =
        (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    crc ^= word;
    crc = table[3][crc & 255u] ^ table[2][(crc >> 8) & 255u] ^ table[1][(crc >> 16) & 255u] ^
          table[0][crc >> 24];
  }
  for (; bytes; bytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255u];
  return ~crc;
}
