// A token travels once to each rank where it chose experts, its choices beside it, and is copied there for each of them.
#include <string.h>

#include "layer.h"

// agree tells every rank how many rows it gets from here.
static void agree(Layer *l) {
  Shape s = l->shape;
  int *last = l->next;  // token that was counted last, by rank
  for (int r = 0; r < l->ranks; r++) l->sent[r] = 0, last[r] = -1;
  for (int i = 0; i < s.tokens * s.slots; i++) {
    int r = l->topk[i] / l->local;
    if (last[r] != i / s.slots) l->sent[r]++, last[r] = i / s.slots;
  }
  MPI_Alltoall(l->sent, 1, MPI_INT, l->got, 1, MPI_INT, MPI_COMM_WORLD);
  begins(l->sent_at, l->sent, l->ranks);
  l->received = begins(l->got_at, l->got, l->ranks);
}

// pack writes each token's row and choices into the part of every rank that it goes to. place lists its rows, ended by -1.
static void pack(Layer *l) {
  Shape s = l->shape;
  Choice *sent = l->sent_choices.data;
  memcpy(l->next, l->sent_at, sizeof(int) * l->ranks);
  int count[l->ranks];
  for (int t = 0; t < s.tokens; t++) {
    int *place = l->place + t * s.slots, rows = 0;
    memset(count, 0, sizeof count);
    for (int k = 0; k < s.slots; k++) {
      int e = l->topk[t * s.slots + k], r = e / l->local;
      if (count[r] == 0) {
        place[rows++] = l->next[r]++;
        memcpy(row(l->packed, l, place[rows - 1]), l->x + (size_t)t * s.hidden, 2 * (size_t)s.hidden);
      }
      Choice *c = sent + (size_t)(l->next[r] - 1) * s.slots + count[r]++;
      *c = (Choice){e % l->local, l->weights[t * s.slots + k]};
      if (count[r] < s.slots) c[1].expert = -1;
    }
    if (rows < s.slots) place[rows] = -1;
  }
}

// spread copies the rows that arrived for each of their choices, in the order of local experts.
static void spread(Layer *l) {
  Shape s = l->shape;
  const Choice *got = l->got_choices.data;
  size_t choices = (size_t)l->received * s.slots;
  int *at = reserve(&l->spread, sizeof(int) * choices);
  memset(l->held, 0, sizeof(int) * l->local);
  for (int i = 0; i < l->received; i++)
    for (int k = 0; k < s.slots && got[i * s.slots + k].expert >= 0; k++) l->held[got[i * s.slots + k].expert]++;
  l->regrouped = begins(l->next, l->held, l->local);
  reserve(&l->rows, 2 * (size_t)s.hidden * l->regrouped);
  for (int i = 0; i < l->received; i++)
    for (int k = 0; k < s.slots && got[i * s.slots + k].expert >= 0; k++) {
      int to = at[i * s.slots + k] = l->next[got[i * s.slots + k].expert]++;
      memcpy(row(l->rows, l, to), row(l->arrived, l, i), 2 * (size_t)s.hidden);
    }
}

void dedup_dispatch(Layer *l) {
  Shape s = l->shape;
  size_t bytes = 2 * (size_t)s.hidden, choices = sizeof(Choice) * s.slots;
  agree(l);
  int sent = l->sent_at[l->ranks - 1] + l->sent[l->ranks - 1];
  reserve(&l->packed, bytes * sent), reserve(&l->arrived, bytes * l->received);
  reserve(&l->sent_choices, choices * sent), reserve(&l->got_choices, choices * l->received);
  pack(l);
  MPI_Alltoallv(l->sent_choices.data, l->sent, l->sent_at, l->choices, l->got_choices.data, l->got, l->got_at, l->choices, MPI_COMM_WORLD);
  rows_there(l);
  spread(l);
}

void dedup_combine(Layer *l) {
  Shape s = l->shape;
  const Choice *got = l->got_choices.data;
  const int *at = l->spread.data;
  const bf16 *rows[s.slots];
  float weights[s.slots];
  for (int i = 0; i < l->received; i++) {
    int n = 0;
    for (; n < s.slots && got[i * s.slots + n].expert >= 0; n++) {
      rows[n] = row(l->rows, l, at[i * s.slots + n]);
      weights[n] = got[i * s.slots + n].weight;
    }
    sum_rows(row(l->arrived, l, i), rows, weights, n, s.hidden);
  }
  rows_back(l);
  for (int k = 0; k < s.slots; k++) weights[k] = 1;
  for (int t = 0; t < s.tokens; t++) {
    int n = 0;
    for (; n < s.slots && l->place[t * s.slots + n] >= 0; n++) rows[n] = row(l->packed, l, l->place[t * s.slots + n]);
    sum_rows(l->out + (size_t)t * s.hidden, rows, weights, n, s.hidden);
  }
}
