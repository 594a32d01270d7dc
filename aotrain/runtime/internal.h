/* internal.h: what the library's files share. Nothing here is seen by users; aotrun.h is. */
#ifndef AOT_INTERNAL_H
#define AOT_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "aot_kernel_abi.h"
#include "aotrun.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "plan.bin and checkpoints are read as they lie in memory: little-endian only"
#endif

#define AOT_ALIGNMENT 64u /* bytes: aotrain/plan.py ALIGNMENT */

struct launch {
  aot_kernel_fn run;    /* of host.c */
  void **args;          /* pointers into the block, resolved once */
  const uint32_t *tensors; /* the same as tensor indices */
  const char *origin;
  uint32_t kernel, tensor_count;
};

struct entry {
  const char *name;
  struct launch *launches;
  uint32_t launch_count;
  aot_signature signature;
};

struct digest { /* of a file beside plan.bin */
  uint64_t bytes;
  uint32_t crc;
};

struct pool;

struct aot {
  char error[1024];

  uint8_t *tables; /* plan.bin without its constants; names point into it */
  aot_tensor *tensors;
  int64_t *dims;
  uint64_t *offsets; /* [tensors] bytes in the block */
  double *defaults;  /* [tensors], of HYPER */
  const char **kernels;
  struct entry *entries;
  struct launch *launches;
  void **args;
  uint32_t *arg_tensor; /* [args] tensor index */
  uint32_t *signature;  /* input and output indices of all entries */
  uint64_t arg_total;
  uint32_t tensor_count, kernel_count, entry_count, launch_count;
  const char *name;
  int64_t classes, ignored_label;
  uint64_t planned_bytes, thread_scratch;
  struct digest kernel_file, state_file;
  uint64_t constants_at; /* where constants start in plan.bin, bytes */

  void *block; /* what the host sees of it: all, or with a device its persistent part */
  uint64_t block_bytes, scratch_bytes, table_bytes;
  void *library; /* dlopen's */
  uint32_t threads;
  struct pool *pool;     /* of host.c */
  struct device *device; /* of vulkan.c */
  void (*trace)(void *user, const aot_launch *launch); /* null: not traced */
  void *trace_user;

  int64_t steps;            /* counted here when the plan has no "step" counter */
  aot_tensor *step_counter; /* int64 scalar or null */
  aot_tensor *loss;         /* output of train */
  struct entry *train, *eval, *predict;

  char *header;          /* of a checkpoint being read or written */
  uint64_t header_bytes; /* its capacity */
  uint64_t *found;       /* [tensors] where a checkpoint holds each, bytes */
};

/* error.c */
aot_status aot_fail(aot *model, aot_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* crc.c: CRC-32 (IEEE 802.3, as zlib's); start with 0. */
uint32_t aot_crc32(uint32_t crc, const void *data, size_t bytes);

/* file.c: `path` is "<folder>/<name>"; false when it does not fit. */
bool aot_join(char *path, size_t size, const char *folder, const char *name);
bool aot_read_at(int file, void *data, uint64_t bytes, uint64_t offset);
bool aot_write_all(int file, const void *data, uint64_t bytes);
/* Opens for reading and tells the size; -1 and errno when it cannot or it is no regular file. */
int aot_open_file(const char *path, uint64_t *bytes);
/* CRC of `bytes` bytes from `offset`, continued from `*crc`. */
bool aot_crc_file(int file, uint64_t offset, uint64_t bytes, uint32_t *crc);

/* plan.c: header and tables of plan.bin into the model; the file is left open for the constants. */
aot_status aot_plan_read(aot *model, int file, uint64_t file_bytes);
/* tables.c: the tables themselves, every index and size checked. */
aot_status aot_tables_parse(aot *model, const uint8_t *tables, uint64_t bytes);
uint32_t aot_item_bytes(aot_dtype dtype);

/* The backend: host.c, or vulkan.c where the artifact was compiled for it. */
/* Gives the block, zeros, 64-byte aligned: its host part in model->block. */
aot_status aot_backend_allocate(aot *model);
/* Connects the launches with what the loaded kernels.so exports. */
aot_status aot_backend_open(aot *model);
aot_status aot_backend_run(aot *model, const struct entry *entry);
/* The state, as the last run left it, in model->block; `written`: the host changes it there. */
aot_status aot_backend_sync(aot *model, bool written);
void aot_backend_close(aot *model);

/* pool.c */
struct pool *aot_pool_new(uint32_t threads, uint64_t scratch_bytes);
void aot_pool_free(struct pool *pool);
uint32_t aot_pool_threads(const struct pool *pool);
uint64_t aot_pool_bytes(const struct pool *pool);
/* Makes the calling thread the pool's first worker and back; denormals are zero between. */
struct caller { /* what aot_pool_leave restores */
  void *self;
  uint64_t fpu;
};
struct caller aot_pool_enter(struct pool *pool);
void aot_pool_leave(struct caller caller);
extern const aot_host aot_pool_host;
uint32_t aot_online_cores(void);

/* run.c */
int64_t aot_steps(const aot *model);
void aot_set_steps(aot *model, int64_t steps);

/* state_read.c, state_write.c */
const char *aot_state_dtype(aot_dtype dtype); /* safetensors' name: "F32" */
uint64_t aot_state_header_bound(const aot *model);

#endif
