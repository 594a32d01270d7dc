/* crc.c: bytes in, CRC-32 out (IEEE 802.3 polynomial 0xEDB88320, reflected), eight bytes a round.
 *
 * M. Kounavis and F. Berry, "A Systematic Approach to Building High Performance Software-Based CRC
 * Generators", 2005: table[k][b] is the CRC of byte b followed by k zero bytes. */
#include <pthread.h>
#include <string.h>

#include "internal.h"

static uint32_t table[8][256];

static void fill(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    table[0][i] = crc;
  }
  for (int zeros = 1; zeros < 8; zeros++)
    for (uint32_t i = 0; i < 256; i++)
      table[zeros][i] = (table[zeros - 1][i] >> 8) ^ table[0][table[zeros - 1][i] & 255u];
}

static uint32_t four(uint32_t word, int zeros) {
  return table[zeros + 3][word & 255u] ^ table[zeros + 2][word >> 8 & 255u] ^
         table[zeros + 1][word >> 16 & 255u] ^ table[zeros][word >> 24];
}

uint32_t aot_crc32(uint32_t crc, const void *data, size_t bytes) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  const uint8_t *at = data;
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t words[2]; /* little-endian, as the host is */
    memcpy(words, at, sizeof words);
    crc = four(words[0] ^ crc, 4) ^ four(words[1], 0);
  }
  for (; bytes; bytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255u];
  return ~crc;
}
