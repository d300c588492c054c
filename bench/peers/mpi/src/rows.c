// Memory for rows, and their weighted sum.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "layer.h"

void *reserve(Buffer *b, size_t bytes) {
  const size_t page = 2 << 20;
  if (bytes <= b->bytes) return b->data;
  release(b);
  b->bytes = (bytes + page - 1) / page * page;
  b->data = aligned_alloc(page, b->bytes);
  if (b->data == NULL) {
    fprintf(stderr, "no memory for %zu bytes: use fewer ranks or tokens\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  madvise(b->data, b->bytes, MADV_HUGEPAGE);
  memset(b->data, 0, b->bytes);
  return b->data;
}

void release(Buffer *b) {
  free(b->data);
  *b = (Buffer){0};
}

#if defined(__AVX512F__)  // a vector is as wide as a register: wider ones have no calling convention
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { BLOCK = 4 * LANES };
typedef bf16 narrow __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef float wide __attribute__((vector_size(4 * LANES)));

static inline wide load(const bf16 *p) { return (wide)(__builtin_convertvector(*(const narrow *)p, bits) << 16); }

static inline void store(bf16 *p, wide x) {  // to nearest, ties to even
  bits b = (bits)x;
  *(narrow *)p = __builtin_convertvector((b + 0x7fff + (b >> 16 & 1)) >> 16, narrow);
}

void sum_rows(bf16 *out, const bf16 *const rows[], const float weights[], int count, int hidden) {
  for (int at = 0; at < hidden; at += BLOCK) {
    wide sum[4] = {0};
    for (int i = 0; i < count; i++)
      for (int v = 0; v < 4; v++) sum[v] += load(rows[i] + at + v * LANES) * weights[i];
    for (int v = 0; v < 4; v++) store(out + at + v * LANES, sum[v]);
  }
}
