/* fuzz.c: a reader's name, a good file, a count and a seed in; mutated copies through the reader.
 *
 * Built with sanitizers: a bad access ends the process. Prints how many copies were accepted. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "program.h"

volatile int interrupted;

static uint64_t state;

static uint64_t draw(uint64_t bound) { /* xorshift64* (Vigna, 2016) */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1Du % bound;
}

/* A mutated copy in a block of exactly its size, so that reading past the end is caught. */
static uint8_t *mutate(const uint8_t *good, uint64_t size, uint64_t *mutated_size) {
  static const uint64_t values[] = {
      0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
  uint64_t kept = draw(8) ? size : draw(size + 1);
  uint8_t *copy = malloc(kept + !kept);
  memcpy(copy, good, kept);
  for (uint64_t edits = draw(4) + (kept == size); kept && edits; edits--) {
    uint64_t at = draw(kept), width = (uint64_t)1 << draw(4),
             value = draw(3) ? values[draw(9)] : draw(UINT64_MAX);
    if (width > kept - at) width = kept - at;
    if (draw(4) == 0) copy[at] = good[draw(size)]; /* structure survives more often */
    else memcpy(copy + at, &value, width);
  }
  *mutated_size = kept;
  return copy;
}

static bool read_tables(const uint8_t *bytes, uint64_t size) {
  aot *model = calloc(1, sizeof *model);
  bool accepted = aot_tables_parse(model, bytes, size) == AOT_OK;
  aot_close(model);
  return accepted;
}

static bool read_through_file(const char *reader, const uint8_t *bytes, uint64_t size, aot *open) {
  char path[] = "fuzz-XXXXXX";
  int file = mkstemp(path);
  if (file < 0 || !aot_write_all(file, bytes, size)) abort();
  bool accepted;
  if (strcmp(reader, "state") == 0) {
    aot_note note = {.key = "aotrun.seed"};
    accepted = aot_load(open, path, &note, 1) == AOT_OK;
  } else {
    aot *model = calloc(1, sizeof *model);
    accepted = aot_plan_read(model, file, size) == AOT_OK;
    aot_close(model);
  }
  close(file);
  unlink(path);
  return accepted;
}

static bool read_array(const char *reader, const uint8_t *bytes, uint64_t size) {
  static struct array arrays[ARRAYS_MAX];
  struct fault fault = {.text = ""};
  uint32_t count = 0;
  bool accepted;
  if (strcmp(reader, "npz") == 0) accepted = npz_read(bytes, size, arrays, &count, &fault);
  else {
    accepted = (strcmp(reader, "npy") == 0 ? npy_read : idx_read)(bytes, size, arrays, &fault);
    count = accepted;
  }
  uint32_t crc = 0;
  for (uint32_t i = 0; accepted && i < count; i++)
    crc = aot_crc32(crc, arrays[i].data, arrays[i].bytes); /* touches all bytes */
  if (!accepted && !*fault.text) abort();                  /* a refusal says why */
  return accepted;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  const char *reader = argv[1];
  uint64_t size, cases = strtoull(argv[3], NULL, 10), accepted = 0;
  state = strtoull(argv[4], NULL, 10) * 2 + 1;
  int file = aot_open_file(argv[2], &size);
  if (file < 0) return 2;
  uint8_t *good = malloc(size);
  if (!aot_read_at(file, good, size, 0)) return 2;
  aot *open = NULL;
  if (argc > 5 && aot_open(argv[5], NULL, &open)) return 3;
  bool through_file = strcmp(reader, "state") == 0 || strcmp(reader, "plan") == 0;
  for (uint64_t i = 0; i < cases; i++) {
    uint64_t mutated_size;
    uint8_t *mutated = mutate(good, size, &mutated_size);
    if (strcmp(reader, "tables") == 0) accepted += read_tables(mutated, mutated_size);
    else if (through_file) accepted += read_through_file(reader, mutated, mutated_size, open);
    else accepted += read_array(reader, mutated, mutated_size);
    free(mutated);
  }
  aot_close(open);
  free(good);
  printf("%llu of %llu accepted\n", (unsigned long long)accepted, (unsigned long long)cases);
  return 0;
}
