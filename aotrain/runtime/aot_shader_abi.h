/* aot_shader_abi.h: what kernels.so and the loader agree on in an artifact for a Vulkan device.
 *
 * The library exports one symbol, `aot_shaders`: data, no code. Kernel k of the plan is the
 * dispatches first[k] .. first[k + 1] - 1, in this order, each after the one before is done. */
#ifndef AOT_SHADER_ABI_H
#define AOT_SHADER_ABI_H

#include <stdint.h>

#define AOT_SHADER_ABI 1u

enum { AOT_PUSH_CONSTANTS = 32 }; /* words: what every device takes */

enum { /* optional features that the shaders use */
  AOT_SHADER_INT64 = 1,
  AOT_SHADER_FLOAT64 = 2,
  AOT_SHADER_STORAGE8 = 4
};

/* Push constant i is where tensor args[i] of the launch starts, in words of 4 bytes of the block,
 * which is storage buffer 0 of set 0. */
typedef struct aot_dispatch {
  const uint32_t *words; /* SPIR-V; its entry point is "main" */
  const uint32_t *args;  /* [arg_count] positions in the plan's Launch.args */
  uint32_t word_count, arg_count;
  uint32_t across, down; /* workgroups */
} aot_dispatch;

typedef struct aot_shader_library {
  uint32_t abi;      /* AOT_SHADER_ABI */
  uint32_t features; /* AOT_SHADER_... */
  uint32_t count;    /* number of kernels */
  uint32_t threads;  /* at most, in a workgroup */
  const uint32_t *first;
  const aot_dispatch *dispatches;
} aot_shader_library;

extern const aot_shader_library aot_shaders;

#endif
