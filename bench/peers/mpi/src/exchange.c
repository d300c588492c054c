// Measures over MPI what `launcher bench exchange` measures of the engine: the barrier, the all-reduce and a layer's token
// exchange. Prints a line of JSON for each result. Times are medians of rounds, after one that warms up.
//
//   exchange PREFIX ROUNDS OPERATION...   PREFIX begins the results' names; operations: barrier, all_reduce_64MiB (any size),
//                                         exchange_4096x2048_top8 (tokens of a rank, hidden size, experts of a token)
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "layer.h"

// The libraries' single copies between processes go through these two in place of the C library's, so that they can be counted.
static double single_copied;

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m, unsigned long flags) {
  ssize_t bytes = syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
  if (bytes > 0) single_copied += bytes;
  return bytes;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n, const struct iovec *to, unsigned long m, unsigned long flags) {
  ssize_t bytes = syscall(SYS_process_vm_writev, pid, from, n, to, m, flags);
  if (bytes > 0) single_copied += bytes;
  return bytes;
}

static const char *prefix;
static int rounds, ranks, rank;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Time is how long an operation takes, in microseconds.
typedef struct {
  double span;     // from the first rank's start to the last one's end; all ranks read the same clock
  double slowest;  // the longest time between a rank's own start and end
} Time;

static Time timed(void (*operation)(void *), void *argument, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = now();
  for (int i = 0; i < calls; i++) operation(argument);
  double end = now(), most[3] = {-start, end, end - start};
  MPI_Allreduce(MPI_IN_PLACE, most, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return (Time){(most[0] + most[1]) * 1e6 / calls, most[2] * 1e6 / calls};
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double total(double x) {
  MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return x;
}

static double median(const double sorted[]) { return (sorted[(rounds - 1) / 2] + sorted[rounds / 2]) / 2; }

// report prints a result: its times, the bytes of a rank, the results that were wrong on all ranks.
static void report(const char *name, const Time times[], double bytes, double wrong) {
  double span[rounds], slowest[rounds];
  for (int i = 0; i < rounds; i++) span[i] = times[i].span, slowest[i] = times[i].slowest;
  qsort(span, rounds, sizeof *span, ascending);
  qsort(slowest, rounds, sizeof *slowest, ascending);
  if (rank != 0) return;
  printf("{\"name\":\"%s_%s\",\"value\":%.3f,\"unit\":\"us\",\"slowest_us\":%.3f,", prefix, name, median(span), median(slowest));
  printf("\"bytes\":%.0f,\"wrong\":%.0f,\"quartiles_us\":[%.3f,%.3f]}\n", bytes, wrong, span[rounds / 4], span[rounds * 3 / 4]);
}

static void wait_for_all(void *unused) { MPI_Barrier(MPI_COMM_WORLD); }

static void barrier(void) {
  Time times[rounds];
  // Some libraries take whole slices of the scheduler if there are more ranks than cores.
  int calls = 20e3 / timed(wait_for_all, NULL, 10).span;
  calls = calls < 1 ? 1 : calls > 200 ? 200 : calls;
  for (int i = 0; i < rounds; i++) times[i] = timed(wait_for_all, NULL, calls);
  report("barrier", times, 0, 0);
}

typedef struct {
  float *data;
  int count;
} Floats;

static void sum_all(void *argument) {
  Floats *f = argument;
  MPI_Allreduce(MPI_IN_PLACE, f->data, f->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_reduce(const char *name, int mib) {
  Buffer b = {0};
  Floats f = {reserve(&b, (size_t)mib << 20), mib << 18};
  Time times[rounds];
  double wrong = 0;
  timed(sum_all, &f, 1);
  for (int i = 0; i < rounds; i++) times[i] = timed(sum_all, &f, 1);
  for (int i = 0; i < f.count; i++) f.data[i] = i % 1000 + rank;
  sum_all(&f);
  for (int i = 0; i < f.count; i++) wrong += f.data[i] != i % 1000 * ranks + ranks * (ranks - 1) / 2;
  report(name, times, 4.0 * f.count, total(wrong));
  release(&b);
}

static void run_plain_dispatch(void *l) { plain_dispatch(l); }
static void run_plain_combine(void *l) { plain_combine(l); }
static void run_dedup_dispatch(void *l) { dedup_dispatch(l); }
static void run_dedup_combine(void *l) { dedup_combine(l); }

static void (*const operations[2][2])(void *) = {{run_plain_dispatch, run_plain_combine}, {run_dedup_dispatch, run_dedup_combine}};

// wrong_tokens counts elements that are not as they were: with experts that do nothing every token must come back as it went;
// if odd experts negate, times a sum of signs.
static double wrong_tokens(Layer *l, int way) {
  Shape s = l->shape;
  double wrong = 0;
  for (int negate = 0; negate < 2; negate++) {
    operations[way][0](l);
    if (negate) negate_odd(l);
    memset(l->out, 0xff, 2 * (size_t)s.tokens * s.hidden);
    operations[way][1](l);
    for (size_t t = 0; t < (size_t)s.tokens; t++) {
      float signs = 0;
      for (int k = 0; k < s.slots; k++) signs += negate && l->topk[t * s.slots + k] % 2 ? -1 : 1;
      for (size_t i = t * s.hidden; i < (t + 1) * s.hidden; i++) {
        uint32_t x = (uint32_t)l->x[i] << 16, y = (uint32_t)l->out[i] << 16;
        float went, came;
        memcpy(&went, &x, 4), memcpy(&came, &y, 4);
        wrong += !(came == went * signs / s.slots);
      }
    }
  }
  return total(wrong);
}

// exchange measures a layer there and back, both ways in turns. single_copy is the bytes that the library had the system copy from
// process to process, over those of the rows that went to other ranks; it is more than 1 if a rank's own rows go that way too.
static void exchange(const char *name, Shape s) {
  const char *kinds[] = {"", "dedup_"}, *operation_names[] = {"dispatch", "combine", "round_trip"};
  Time times[2][3][rounds];
  Layer *l = layer_new(s);
  double wrong[2] = {wrong_tokens(l, 0), wrong_tokens(l, 1)};
  l->crossed = single_copied = 0;
  for (int i = 0; i < rounds; i++)
    for (int way = 0; way < 2; way++) {
      for (int op = 0; op < 2; op++) times[way][op][i] = timed(operations[way][op], l, 1);
      Time there = times[way][0][i], back = times[way][1][i];
      times[way][2][i] = (Time){there.span + back.span, there.slowest + back.slowest};
    }
  double crossed = total(l->crossed), copied = total(single_copied);
  for (int way = 0; way < 2; way++)
    for (int op = 0; op < 3; op++) {
      char text[256];
      snprintf(text, sizeof text, "%s%s_%s", kinds[way], operation_names[op], name);
      report(text, times[way][op], 2.0 * s.hidden * s.tokens * s.slots * (op == 2 ? 2 : 1), wrong[way]);
    }
  if (rank == 0) printf("{\"name\":\"%s_single_copy_%s\",\"value\":%.4f,\"unit\":\"x\"}\n", prefix, name, crossed > 0 ? copied / crossed : 0);
  layer_free(l);
}

static void refuse(const char *what, const char *given) {
  if (rank == 0) fprintf(stderr, "exchange: %s: %s\n", given, what);
  MPI_Finalize();
  exit(2);
}

// library prints which MPI this is.
static void library(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, "\n,\"\\")] = 0;
  for (char *c = text; *c != 0; c++)
    if (*c == '\t') *c = ' ';
  if (rank == 0) printf("{\"name\":\"%s_library\",\"library\":\"%s\"}\n", prefix, text);
}

// run measures one operation.
static void run(const char *text) {
  Shape s;
  int mib, end = 0;
  if (strcmp(text, "barrier") == 0) {
    barrier();
  } else if (sscanf(text, "all_reduce_%dMiB%n", &mib, &end) == 1 && text[end] == 0) {
    if (mib < 1 || mib > 4096) refuse("give a size of 1 to 4096 MiB", text);
    all_reduce(text, mib);
  } else if (sscanf(text, "exchange_%dx%d_top%d%n", &s.tokens, &s.hidden, &s.slots, &end) == 3 && text[end] == 0) {
    s.experts = (64 + ranks - 1) / ranks * ranks;
    if (s.tokens < 1 || s.hidden < 64 || s.hidden % 64 != 0) refuse("give 1 or more tokens, of a multiple of 64 elements", text);
    if (s.slots < 1 || s.slots > 8 || (s.slots & (s.slots - 1)) != 0) refuse("give 1, 2, 4 or 8 experts a token, so that the check is exact", text);
    exchange(strchr(text, '_') + 1, s);
  } else {
    refuse("give barrier, all_reduce_64MiB or exchange_4096x2048_top8, or other sizes", text);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc < 4 || (rounds = atoi(argv[2])) < 1 || rounds > 1000) refuse("usage: exchange PREFIX ROUNDS OPERATION..., of 1 to 1000 rounds", argv[0]);
  prefix = argv[1];
  library();
  for (int i = 3; i < argc; i++) run(argv[i]);
  MPI_Finalize();
}
