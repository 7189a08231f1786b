/* The protocol of minitvm/codegen/pool_regions.py in C, for ThreadSanitizer, which can't look into
   code that LLVM made: the same words and memory orders, with delays at the critical places.

       cc -O1 -g -fsanitize=thread -pthread pool_model.c -o pool_model && ./pool_model 20000

   A region's context lies on the stack of its caller and is plain memory: whoever touches that of a
   region that is over, or a result before it is complete, is a race that the sanitizer reports. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, PIECES = 16, CELLS = 64 };
typedef struct { int *cells, add; } context_type;
typedef void region_type(context_type *, int64_t, int64_t);
typedef struct { _Alignas(64) _Atomic uint32_t word; _Atomic uint64_t claim; } slot_type;

static slot_type slots[THREADS];
static region_type *_Atomic region_field;
static context_type *_Atomic context_field;
static _Atomic int64_t extent_field, pieces_field, threads_field, left;
static uint32_t epoch_now;
static _Atomic int stop;

static void delay(unsigned *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  if (*seed >> 24 < 4) sched_yield();
  for (unsigned n = *seed >> 26; n > 40; n--) atomic_signal_fence(memory_order_seq_cst);
}

static int take(_Atomic uint64_t *claim, uint32_t epoch, int front, uint64_t *from, uint64_t *to,
                unsigned *seed) {
  uint64_t word = atomic_load_explicit(claim, memory_order_acquire);
  for (;;) {
    uint64_t begin = word >> 16 & 65535, end = word & 65535, count = (end - begin + 1) / 2;
    if ((uint32_t)(word >> 32) != epoch || begin >= end) return 0;
    delay(seed);
    if (atomic_compare_exchange_strong_explicit(claim, &word, front ? word + (count << 16)
                                                                    : word - count,
                                                memory_order_acq_rel, memory_order_acquire)) {
      *from = front ? begin : end - count;
      *to = *from + count;
      return 1;
    }
  }
}

static int64_t work(int64_t number, uint32_t epoch, unsigned *seed) {
  region_type *region = atomic_load_explicit(&region_field, memory_order_relaxed);
  context_type *context = atomic_load_explicit(&context_field, memory_order_relaxed);
  int64_t extent = atomic_load_explicit(&extent_field, memory_order_relaxed);
  int64_t pieces = atomic_load_explicit(&pieces_field, memory_order_relaxed);
  int64_t threads = atomic_load_explicit(&threads_field, memory_order_relaxed), done = 0;
  for (int64_t turn = 0; turn < threads; turn++) {
    int64_t whose = number + turn >= threads ? number + turn - threads : number + turn;
    uint64_t from, to;
    while (take(&slots[whose].claim, epoch, turn == 0, &from, &to, seed)) {
      region(context, from * extent / pieces, to * extent / pieces);
      delay(seed);
      done += to - from;
    }
  }
  return done;
}

static uint32_t await(int64_t number, uint32_t known) {
  uint32_t word;
  while ((word = atomic_load_explicit(&slots[number].word, memory_order_acquire)) == known)
    sched_yield();
  return word;
}

static void *worker(void *argument) {
  int64_t number = (intptr_t)argument, done;
  unsigned seed = 17 * number;
  for (uint32_t epoch = 0; !atomic_load(&stop);) {
    epoch = await(number, epoch);
    delay(&seed);
    if ((done = work(number, epoch, &seed)) && atomic_fetch_sub(&left, done) == done)
      atomic_store(&slots[0].word, epoch);
  }
  return NULL;
}

static void share(region_type *region, context_type *context, int64_t extent, int64_t threads) {
  static unsigned seed = 1;
  int64_t pieces = extent < threads * PIECES ? extent : threads * PIECES;
  uint32_t epoch = ++epoch_now;
  atomic_store_explicit(&region_field, region, memory_order_relaxed);
  atomic_store_explicit(&context_field, context, memory_order_relaxed);
  atomic_store_explicit(&extent_field, extent, memory_order_relaxed);
  atomic_store_explicit(&pieces_field, pieces, memory_order_relaxed);
  atomic_store_explicit(&threads_field, threads, memory_order_relaxed);
  atomic_store_explicit(&left, pieces + 1, memory_order_relaxed);
  uint32_t known = atomic_load_explicit(&slots[0].word, memory_order_acquire);
  for (int64_t n = 0; n < threads; n++) {
    uint64_t range = (uint64_t)(n * pieces / threads) << 16 | (n + 1) * pieces / threads;
    atomic_store_explicit(&slots[n].claim, (uint64_t)epoch << 32 | range, memory_order_release);
    if (n) atomic_store(&slots[n].word, epoch);
  }
  int64_t all = work(0, epoch, &seed) + 1;
  if (atomic_fetch_sub(&left, all) != all) await(0, known);
}

static void add(context_type *context, int64_t begin, int64_t end) {
  for (; begin < end; begin++) context->cells[begin] += context->add;
}

static int run(int turn, int *cells) {
  context_type context = {cells, turn % 7};
  share(add, &context, 1 + turn % CELLS, 2 + turn % (THREADS - 1));
  return context.add;
}

int main(int argc, char **argv) {
  static int cells[CELLS], wanted[CELLS];
  pthread_t threads[THREADS];
  int turn, turns = argc > 1 ? atoi(argv[1]) : 20000;
  for (intptr_t n = 1; n < THREADS; n++) pthread_create(&threads[n], NULL, worker, (void *)n);
  for (turn = 0; turn < turns; turn++) {
    int added = run(turn, cells);
    for (int i = 0; i < 1 + turn % CELLS; i++) wanted[i] += added;
    for (int i = 0; i < CELLS; i++)
      if (cells[i] != wanted[i]) return printf("turn %d, cell %d\n", turn, i), 1;
  }
  atomic_store(&stop, 1);
  for (int n = 1; n < THREADS; n++) {
    atomic_store(&slots[n].word, epoch_now + 1);
    pthread_join(threads[n], NULL);
  }
  return 0;
}
