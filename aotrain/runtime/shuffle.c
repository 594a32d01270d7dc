/* shuffle.c: (rows, seed, epoch) in, a permutation out: Fisher-Yates over SplitMix64 (Steele et
 * al., 2014).
 *
 * The order follows from its arguments alone, so a resumed run continues where it stopped. */
#include "program.h"

static uint64_t next(uint64_t *state) {
  uint64_t mixed = *state += 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return mixed ^ mixed >> 31;
}

/* Uniform in [0, bound), by rejection. */
static uint64_t below(uint64_t *state, uint64_t bound) {
  uint64_t limit = UINT64_MAX - UINT64_MAX % bound, draw;
  do draw = next(state);
  while (draw >= limit);
  return draw % bound;
}

void shuffle(uint64_t *order, int64_t rows, uint64_t seed, uint64_t epoch) {
  uint64_t state = seed;
  state = next(&state) ^ epoch;
  for (int64_t i = 0; i < rows; i++) order[i] = (uint64_t)i;
  for (int64_t i = rows - 1; i > 0; i--) {
    uint64_t other = below(&state, (uint64_t)i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}
