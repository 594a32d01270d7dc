/* pool.c: a task function and a count in, the tasks run over a fixed set of threads.
 *
 * One 64-bit word, `ticket`, says which job is open and which task of it is next:
 *
 *   generation (32 bits) | tasks (16) | next (16)
 *
 * A thread claims a task by compare-and-swap on the whole word, so a thread that wakes late can
 * claim nothing of a job that has ended, and the job's fields that it has read belong to the task
 * it claims. Idle threads spin for some microseconds, as the next launch is usually near, then
 * sleep. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "fpu.h"
#include "internal.h"

enum { SPINS = 2000, TASKS_MAX = 0xFFFF };

typedef int (*task_fn)(int id, void *env, void *closure);

struct worker {
  struct pool *pool;
  uint8_t *scratch; /* [pool->scratch_bytes] a stack */
  uint64_t used;    /* bytes */
  bool in_task;     /* a parallel call from within a task runs serially */
  pthread_t thread;
};

struct pool {
  uint32_t threads, started;
  uint64_t scratch_bytes; /* a thread */
  uint8_t *scratch;
  struct worker *workers; /* [threads]; 0 is the caller's */

  _Atomic uint64_t ticket;
  _Atomic(task_fn) task;
  _Atomic(void *) closure;
  _Atomic int total, first; /* tasks of the whole call; id of the ticket's task 0 */
  _Atomic int result;
  _Atomic uint32_t done;

  pthread_mutex_t lock;
  pthread_cond_t work, finished;
  _Atomic uint32_t sleepers;
  _Atomic bool waiting; /* the caller sleeps until the job is done */
  _Atomic bool stop;
};

/* glibc would otherwise allocate a library's thread-locals at first use, which may be after
 * aot_open. */
#if defined(__GLIBC__)
static _Thread_local struct worker *self __attribute__((tls_model("initial-exec")));
#else
static _Thread_local struct worker *self;
#endif

static void relax_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static uint32_t ticket_tasks(uint64_t ticket) { return ticket >> 16 & 0xFFFF; }
static uint32_t ticket_next(uint64_t ticket) { return ticket & 0xFFFF; }
static bool claimable(uint64_t ticket) { return ticket_next(ticket) < ticket_tasks(ticket); }

/* Claims and runs tasks until the open job has none left. */
static void work(struct pool *pool, struct worker *worker) {
  uint64_t ticket = atomic_load(&pool->ticket);
  while (claimable(ticket)) {
    task_fn task = atomic_load(&pool->task);
    void *closure = atomic_load(&pool->closure);
    struct {
      void *unused;
      int32_t tasks;
    } env = {NULL, atomic_load(&pool->total)};
    int id = atomic_load(&pool->first) + (int)ticket_next(ticket);
    uint32_t tasks = ticket_tasks(ticket);
    if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
    worker->in_task = true;
    int result = task(id, &env, closure);
    worker->in_task = false;
    int none = 0;
    if (result) atomic_compare_exchange_strong(&pool->result, &none, result);
    if (atomic_fetch_add(&pool->done, 1) + 1 == tasks && atomic_load(&pool->waiting)) {
      pthread_mutex_lock(&pool->lock);
      pthread_cond_signal(&pool->finished);
      pthread_mutex_unlock(&pool->lock);
    }
    ticket = atomic_load(&pool->ticket);
  }
}

static void sleep_until_work(struct pool *pool) {
  for (int i = 0; i < SPINS; i++) {
    if (claimable(atomic_load_explicit(&pool->ticket, memory_order_relaxed)) ||
        atomic_load(&pool->stop))
      return;
    relax_cpu();
  }
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add(&pool->sleepers, 1);
  while (!claimable(atomic_load(&pool->ticket)) && !atomic_load(&pool->stop))
    pthread_cond_wait(&pool->work, &pool->lock);
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *argument) {
  self = argument;
  aot_fpu_flush_denormals();
  struct pool *pool = self->pool;
  while (!atomic_load(&pool->stop)) {
    work(pool, self);
    sleep_until_work(pool);
  }
  return NULL;
}

static void wait_done(struct pool *pool, uint32_t tasks) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load(&pool->done) == tasks) return;
    relax_cpu();
  }
  pthread_mutex_lock(&pool->lock);
  atomic_store(&pool->waiting, true);
  while (atomic_load(&pool->done) != tasks) pthread_cond_wait(&pool->finished, &pool->lock);
  atomic_store(&pool->waiting, false);
  pthread_mutex_unlock(&pool->lock);
}

static void run_job(struct pool *pool, struct worker *caller, uint32_t tasks) {
  atomic_store(&pool->done, 0);
  uint64_t generation = (atomic_load(&pool->ticket) >> 32) + 1;
  atomic_store(&pool->ticket, generation << 32 | (uint64_t)tasks << 16);
  if (atomic_load(&pool->sleepers)) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
  }
  work(pool, caller);
  wait_done(pool, tasks);
}

static int serial(task_fn task, void *closure, int tasks) {
  struct {
    void *unused;
    int32_t tasks;
  } env = {NULL, tasks};
  int result = 0;
  for (int id = 0; id < tasks; id++) {
    int failed = task(id, &env, closure);
    if (!result) result = failed;
  }
  return result;
}

static int parallel(task_fn task, void *closure, int tasks) {
  struct worker *caller = self;
  struct pool *pool = caller ? caller->pool : NULL;
  if (tasks <= 0) tasks = pool ? (int)pool->started + 1 : 1;
  if (!pool || pool->started == 0 || caller->in_task || tasks == 1)
    return serial(task, closure, tasks);
  atomic_store(&pool->task, task);
  atomic_store(&pool->closure, closure);
  atomic_store(&pool->total, tasks);
  atomic_store(&pool->result, 0);
  for (int first = 0; first < tasks; first += TASKS_MAX) {
    int part = tasks - first < TASKS_MAX ? tasks - first : TASKS_MAX;
    atomic_store(&pool->first, first);
    run_job(pool, caller, (uint32_t)part);
  }
  return atomic_load(&pool->result);
}

static uint64_t aligned(uint64_t bytes) {
  return (bytes + AOT_ALIGNMENT - 1) / AOT_ALIGNMENT * AOT_ALIGNMENT;
}

static void *scratch_push(uint64_t bytes) {
  if (!self || bytes > self->pool->scratch_bytes) return NULL;
  uint64_t size = aligned(bytes);
  if (size > self->pool->scratch_bytes - self->used) return NULL;
  void *scratch = self->scratch + self->used;
  self->used += size;
  return scratch;
}

static void scratch_pop(void *scratch) {
  if (self && scratch) self->used = (uint64_t)((uint8_t *)scratch - self->scratch);
}

const aot_host aot_pool_host = {parallel, scratch_push, scratch_pop};

uint32_t aot_online_cores(void) {
#if defined(__linux__)
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return (uint32_t)CPU_COUNT(&cores);
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (uint32_t)online : 1;
}

struct pool *aot_pool_new(uint32_t threads, uint64_t scratch_bytes) {
  struct pool *pool = calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->finished, NULL);
  pool->threads = threads;
  pool->scratch_bytes = scratch_bytes > UINT64_MAX / 2 ? scratch_bytes : aligned(scratch_bytes);
  pool->workers = calloc(threads, sizeof *pool->workers);
  uint64_t all;
  if (__builtin_mul_overflow(pool->scratch_bytes, threads, &all) || all > SIZE_MAX / 2)
    all = SIZE_MAX / 2;
  pool->scratch = aligned_alloc(AOT_ALIGNMENT, (size_t)(all ? aligned(all) : AOT_ALIGNMENT));
  if (!pool->workers || !pool->scratch) {
    aot_pool_free(pool);
    return NULL;
  }
  for (uint32_t i = 0; i < threads; i++) {
    pool->workers[i].pool = pool;
    pool->workers[i].scratch = pool->scratch + i * pool->scratch_bytes;
  }
  for (uint32_t i = 1; i < threads;
       i++) { /* a thread that cannot start leaves its work to the others */
    if (pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]) != 0) break;
    pool->started++;
  }
  return pool;
}

void aot_pool_free(struct pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  atomic_store(&pool->stop, true);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->work);
  pthread_cond_destroy(&pool->finished);
  free(pool->scratch);
  free(pool->workers);
  free(pool);
}

uint32_t aot_pool_threads(const struct pool *pool) { return pool->started + 1; }

uint64_t aot_pool_bytes(const struct pool *pool) { return pool->scratch_bytes * pool->threads; }

struct caller aot_pool_enter(struct pool *pool) {
  struct caller caller = {self, aot_fpu_flush_denormals()};
  self = &pool->workers[0];
  self->used = 0;
  return caller;
}

void aot_pool_leave(struct caller caller) {
  self = caller.self;
  aot_fpu_restore(caller.fpu);
}
