/* aotrun.h: a folder model.aot/ in, a training program in this process out. It is the manual, too.
 *
 * In four steps:
 *
 *   1. Open. All memory is allocated, all files are checked and all threads started here.
 *
 *        aot *model;
 *        if (aot_open("model.aot", NULL, &model)) { puts(aot_error(model)); aot_close(model); ... }
 *
 *   2. Write a batch, by copy or straight into the tensor's bytes.
 *
 *        aot_set(model, "x", images, sizeof images);          // float32 [batch, ...], C order
 *        aot_tensor y; aot_find(model, "y", &y); y.data ...   // the same without a copy
 *
 *   3. Run. A step is forward, loss, backward, optimizer and state update in one call.
 *
 *        float loss;
 *        aot_set_hyper(model, "lr", 1e-3);                    // stays until it is set again
 *        if (aot_step(model, &loss)) ...                      // AOT_NOT_FINITE: NaN or infinite
 *
 *   4. Keep the result: safetensors, weights under their ONNX names. Then close.
 *
 *        aot_save(model, "trained.safetensors", NULL, 0);
 *        aot_close(model);
 *
 * Rules: every function that can fail returns an aot_status and leaves a message for aot_error.
 * None exits, prints or, after aot_open, allocates. One handle belongs to one thread at a time; any
 * number of handles may be open. Pointers that the library hands out live until aot_close. */
#ifndef AOTRUN_H
#define AOTRUN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define AOT_API __attribute__((visibility("default")))
#else
#define AOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aot aot; /* an open artifact */

typedef enum aot_status {
  AOT_OK = 0,
  AOT_NOT_FINITE = 1, /* the step ran; its loss is NaN or infinite */
  AOT_BAD_ARTIFACT,   /* missing, truncated, corrupted, mixed from two, or for another machine */
  AOT_NEWER,          /* written by a newer version than this library reads */
  AOT_BAD_STATE,      /* a checkpoint that is damaged or belongs to another model */
  AOT_BAD_ARGUMENT,   /* no such tensor or entry point, a wrong size, a null pointer */
  AOT_IO,             /* the system refused to read, write or start a thread */
  AOT_MEMORY,         /* the block could not be allocated */
  AOT_KERNEL,         /* a kernel reported failure */
  AOT_BAD_LABEL,      /* a class index that the model does not have; nothing ran */
  AOT_DEVICE          /* no driver or device, one that lacks what the kernels need, or a lost one */
} aot_status;

/* Order and values are part of the file format. */
typedef enum aot_dtype {
  /* clang-format off */
  AOT_BOOL, AOT_INT8, AOT_UINT8, AOT_INT16, AOT_UINT16, AOT_FLOAT16, AOT_BFLOAT16,
  AOT_INT32, AOT_UINT32, AOT_FLOAT32, AOT_INT64, AOT_UINT64, AOT_FLOAT64
  /* clang-format on */
} aot_dtype;

typedef enum aot_kind {
  AOT_STATE,    /* parameters, slots, buffers, counters: saved in a checkpoint */
  AOT_CONSTANT, /* written once by aot_open */
  AOT_HYPER,    /* a float32 scalar: aot_set_hyper */
  AOT_INPUT,    /* a batch: yours to write before a run */
  AOT_OUTPUT,   /* yours to read after a run */
  AOT_TEMP      /* lives inside one run */
} aot_kind;

/* Of an AOT_STATE tensor. */
typedef enum aot_role {
  AOT_NO_ROLE,
  AOT_TRAINABLE,
  AOT_FROZEN,
  AOT_BUFFER, /* BatchNorm's running statistics */
  AOT_SLOT,   /* an optimizer's moment */
  AOT_COUNTER /* step and random state */
} aot_role;

typedef struct aot_launch { /* one kernel of a run, as a profile sees it */
  const char *entry, *kernel;
  const char *origin; /* the ONNX nodes that it came from */
  uint32_t index;     /* in the entry point's order */
  uint64_t ns;        /* wall time */
} aot_launch;

typedef struct aot_options {
  int threads; /* 0: AOTRUN_NUM_THREADS, else the cores that this process may use */
  /* Not null: called after every kernel, on the caller's thread. Profiles are made with it. */
  void (*trace)(void *user, const aot_launch *launch);
  void *user;
} aot_options;

typedef struct aot_info {
  const char *name;       /* of the model */
  uint32_t tensors;       /* aot_get_tensor takes 0 .. tensors-1 */
  uint32_t threads;       /* that run kernels, the caller's included */
  uint64_t block_bytes;   /* allocated for all tensors: the plan's peak, not a byte more */
  uint64_t scratch_bytes; /* allocated for all threads' scratch stacks, or to exchange with a device */
  uint64_t table_bytes;   /* allocated for the plan's tables and the checkpoint header */
  int64_t step;           /* training steps that the state has seen */
  int64_t classes;        /* the target holds class indices 0 .. classes-1; 0: it does not */
  int64_t ignored_label;  /* a label that is left out of the loss; INT64_MIN: none */
} aot_info;

typedef struct aot_tensor {
  const char *name;     /* ONNX name; "optim.<slot>.<parameter>" for slots */
  const int64_t *shape; /* [rank] */
  uint32_t rank;
  uint32_t index; /* in the plan */
  aot_dtype dtype;
  aot_kind kind;
  aot_role role;
  uint64_t bytes; /* dense, C order */
  void *data;     /* 64-byte aligned, in the block; TEMP has none on a device */
} aot_tensor;

typedef struct aot_signature { /* of an entry point; tensor indices in the order of the model */
  const uint32_t *inputs, *outputs;
  uint32_t input_count, output_count;
} aot_signature;

/* Of aot_eval, over the rows that count. */
typedef struct aot_result {
  float loss;      /* mean */
  int64_t correct; /* right predictions; -1: the model is no classifier */
  int64_t count;   /* predictions;       -1: the model is no classifier */
} aot_result;

typedef struct aot_note { /* a line of your own in a checkpoint: data seed, file name, ... */
  char key[32];
  char value[96];
} aot_note;

/* Opens the folder. `options` may be null. `*model` is set in any case and must be closed: after a
 * failure it serves aot_error and aot_close alone. */
AOT_API aot_status aot_open(const char *folder, const aot_options *options, aot **model);
AOT_API void aot_close(aot *model); /* null is allowed */

/* Of the last failure: "AOT-A010: <what is wrong>", perhaps "\nhint: <what to do>"; never null. */
AOT_API const char *aot_error(const aot *model);

AOT_API aot_status aot_describe(aot *model, aot_info *info);
/* On a GPU, asking for a state tensor makes the bytes of all state those that the last run left; what
 * is written there before the next run counts. Ask again after it. */
AOT_API aot_status aot_get_tensor(aot *model, uint32_t index, aot_tensor *tensor);
/* By name; TEMP tensors have no name to find. */
AOT_API aot_status aot_find(aot *model, const char *name, aot_tensor *tensor);
/* `entry` is "train", "eval" or "predict". */
AOT_API aot_status aot_entry(aot *model, const char *entry, aot_signature *signature);

/* Copy a whole tensor in (input, state) or out (any but TEMP); `bytes` must be its size. */
AOT_API aot_status aot_set(aot *model, const char *name, const void *data, uint64_t bytes);
AOT_API aot_status aot_get(aot *model, const char *name, void *data, uint64_t bytes);
AOT_API aot_status aot_set_hyper(aot *model, const char *name, double value);

/* One training step over the inputs as they stand. `loss` may be null. */
AOT_API aot_status aot_step(aot *model, float *loss);
/* Only the first `rows` of the batch count; 0: all of them. State is left as it is. */
AOT_API aot_status aot_eval(aot *model, int32_t rows, aot_result *result);
/* Then read the outputs, which carry their ONNX names. */
AOT_API aot_status aot_predict(aot *model);

/* Writes all of the state, hyperparameters and `notes` to a temporary name beside `path`, syncs it
 * and renames it: `path` is the old file or the new one, never a mixture. One writer a path at a
 * time. */
AOT_API aot_status aot_save(aot *model, const char *path, const aot_note *notes, size_t count);
/* The inverse. Everything is checked before the first byte of the state changes. Fills the value of
 * each note whose key the file has, and empties the others. */
AOT_API aot_status aot_load(aot *model, const char *path, aot_note *notes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
