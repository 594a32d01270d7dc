/* pool_check.c: the thread pool alone: every task runs once, whatever the counts and the nesting. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { MOST = 200000 };

static _Atomic uint8_t ran[MOST];
static _Atomic int expected_tasks;

#define MUST(condition) (condition) ? (void)0 : (fprintf(stderr, "line %d\n", __LINE__), exit(1))

static int mark(int id, void *env, void *closure) {
  (void)closure;
  int32_t tasks;
  memcpy(&tasks, (char *)env + sizeof(void *), sizeof tasks);
  MUST(tasks == expected_tasks);
  atomic_fetch_add(&ran[id], 1);
  return 0;
}

static int fail_some(int id, void *env, void *closure) {
  (void)env, (void)closure;
  return id % 3 == 1 ? 5 : 0;
}

static int add(int id, void *env, void *closure) {
  (void)id, (void)env;
  atomic_fetch_add((_Atomic int *)closure, 1);
  return 0;
}

/* A parallel call from within a task, and a scratch stack of the task's own. */
static int nested(int id, void *env, void *closure) {
  (void)env;
  uint8_t *outer = aot_pool_host.scratch_push(100), *inner = aot_pool_host.scratch_push(28);
  MUST(outer && inner == outer + 128 && (uintptr_t)outer % 64 == 0);
  MUST(!aot_pool_host.scratch_push(1)); /* 192 bytes were promised */
  memset(outer, id, 100);
  int result = aot_pool_host.parallel(add, closure, 10);
  for (int i = 0; i < 100; i++) MUST(outer[i] == (uint8_t)id); /* no other task wrote here */
  aot_pool_host.scratch_pop(inner);
  aot_pool_host.scratch_pop(outer);
  return result;
}

static void run_marks(int tasks, int threads) {
  int effective = tasks > 0 ? tasks : threads;
  memset((void *)ran, 0, sizeof ran);
  expected_tasks = effective;
  MUST(aot_pool_host.parallel(mark, NULL, tasks) == 0);
  for (int id = 0; id < MOST; id++) MUST(ran[id] == (id < effective));
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 1;
  struct pool *pool = aot_pool_new((uint32_t)threads, 192);
  MUST(pool && aot_pool_threads(pool) == (uint32_t)threads);
  MUST(!aot_pool_host.scratch_push(1)); /* outside a run there is no stack */
  struct caller caller = aot_pool_enter(pool);
  static const int counts[] = {0, 1, 2, 3, 64, 65535, 65536, 199999};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_marks(counts[i], threads);
  MUST(aot_pool_host.parallel(fail_some, NULL, 100) == 5);
  static _Atomic int sum;
  MUST(aot_pool_host.parallel(nested, (void *)&sum, 50) == 0 && sum == 500);
  for (int round = 0; round < rounds; round++) { /* short jobs, one after the other */
    sum = 0;
    MUST(aot_pool_host.parallel(add, (void *)&sum, 1 + round % 9) == 0 && sum == 1 + round % 9);
  }
  aot_pool_leave(caller);
  aot_pool_free(pool);
  return 0;
}
