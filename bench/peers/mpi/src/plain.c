// Every choice travels: counts, rows packed in expert order, one all-to-all-v, and a copy into the order of local experts.
#include <string.h>

#include "layer.h"

// agree tells every rank how many rows each of its experts gets from here.
static void agree(Layer *l) {
  Shape s = l->shape;
  memset(l->chosen, 0, sizeof(int) * s.experts);
  for (int i = 0; i < s.tokens * s.slots; i++) l->chosen[l->topk[i]]++;
  MPI_Alltoall(l->chosen, l->local, MPI_INT, l->arriving, l->local, MPI_INT, MPI_COMM_WORLD);
  memset(l->held, 0, sizeof(int) * l->local);
  for (int r = 0; r < l->ranks; r++) {
    l->sent[r] = l->got[r] = 0;
    for (int e = 0; e < l->local; e++) {
      int n = l->arriving[r * l->local + e];
      l->sent[r] += l->chosen[r * l->local + e], l->got[r] += n, l->held[e] += n;
    }
  }
  begins(l->sent_at, l->sent, l->ranks);
  l->received = l->regrouped = begins(l->got_at, l->got, l->ranks);
}

// regroup copies the rows that arrived into the order of local experts, or back.
static void regroup(Layer *l, int there) {
  size_t bytes = 2 * (size_t)l->shape.hidden;
  memcpy(l->next, l->got_at, sizeof(int) * l->ranks);
  for (int e = 0, to = 0; e < l->local; e++)
    for (int r = 0; r < l->ranks; r++) {
      int n = l->arriving[r * l->local + e];
      bf16 *arrived = row(l->arrived, l, l->next[r]), *grouped = row(l->rows, l, to);
      memcpy(there ? grouped : arrived, there ? arrived : grouped, n * bytes);
      l->next[r] += n, to += n;
    }
}

void plain_dispatch(Layer *l) {
  Shape s = l->shape;
  size_t bytes = 2 * (size_t)s.hidden;
  agree(l);
  reserve(&l->packed, bytes * s.tokens * s.slots), reserve(&l->arrived, bytes * l->received), reserve(&l->rows, bytes * l->regrouped);
  begins(l->next, l->chosen, s.experts);
  for (int i = 0; i < s.tokens * s.slots; i++) {
    l->place[i] = l->next[l->topk[i]]++;
    memcpy(row(l->packed, l, l->place[i]), l->x + (size_t)(i / s.slots) * s.hidden, bytes);
  }
  rows_there(l);
  regroup(l, 1);
}

void plain_combine(Layer *l) {
  Shape s = l->shape;
  regroup(l, 0);
  rows_back(l);
  const bf16 *rows[s.slots];
  for (int t = 0; t < s.tokens; t++) {
    for (int k = 0; k < s.slots; k++) rows[k] = row(l->packed, l, l->place[t * s.slots + k]);
    sum_rows(l->out + (size_t)t * s.hidden, rows, l->weights + t * s.slots, s.slots, s.hidden);
  }
}
