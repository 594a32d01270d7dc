/* fpu.h: denormals are flushed to zero in the calling thread; the register that was is returned.
 *
 * A training step's tiny gradients otherwise cost some hundred cycles each. */
#ifndef AOT_FPU_H
#define AOT_FPU_H

#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>

static inline uint64_t aot_fpu_flush_denormals(void) {
  uint32_t before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u); /* FTZ | DAZ */
  return before;
}

static inline void aot_fpu_restore(uint64_t before) { _mm_setcsr((uint32_t)before); }

#elif defined(__aarch64__)

static inline void aot_fpu_restore(uint64_t before) {
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

static inline uint64_t aot_fpu_flush_denormals(void) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  aot_fpu_restore(before | (uint64_t)1 << 24); /* FZ */
  return before;
}

#else

static inline uint64_t aot_fpu_flush_denormals(void) { return 0; }
static inline void aot_fpu_restore(uint64_t before) { (void)before; }

#endif
#endif
