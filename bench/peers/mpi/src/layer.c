// A layer's operands: tokens, the experts that they choose, and room for their rows.
#include "layer.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t h) {
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
  h = (h ^ h >> 27) * 0x94d049bb133111eb;
  return h ^ h >> 31;
}

static void *numbers(size_t count) {
  Buffer b = {0};
  return reserve(&b, 4 * count);
}

// choose gives every token experts of its own, all sets of them being equally likely, with weights that sum to one.
static void choose(Layer *l) {
  Shape s = l->shape;
  int *deck = numbers(s.experts);
  for (int e = 0; e < s.experts; e++) deck[e] = e;
  for (int i = 0; i < s.tokens * s.slots; i++) {
    int slot = i % s.slots, other = slot + mix((uint64_t)l->rank << 32 | i) % (s.experts - slot);
    int e = deck[other];
    deck[other] = deck[slot];
    l->topk[i] = deck[slot] = e;
    l->weights[i] = 1.0f / s.slots;
  }
  free(deck);
}

Layer *layer_new(Shape s) {
  Layer *l = calloc(1, sizeof *l);
  l->shape = s;
  MPI_Comm_size(MPI_COMM_WORLD, &l->ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &l->rank);
  l->local = s.experts / l->ranks;
  MPI_Type_contiguous(s.hidden, MPI_UINT16_T, &l->row);
  MPI_Type_contiguous(s.slots * sizeof(Choice), MPI_BYTE, &l->choices);
  MPI_Type_commit(&l->row);
  MPI_Type_commit(&l->choices);
  size_t choices = (size_t)s.tokens * s.slots, elements = (size_t)s.tokens * s.hidden;
  l->topk = numbers(choices), l->weights = numbers(choices), l->place = numbers(choices);
  l->chosen = numbers(s.experts), l->arriving = numbers(s.experts), l->next = numbers(s.experts);
  l->held = numbers(l->local);
  l->sent = numbers(l->ranks), l->sent_at = numbers(l->ranks), l->got = numbers(l->ranks), l->got_at = numbers(l->ranks);
  l->x = numbers(elements / 2), l->out = numbers(elements / 2);
  choose(l);
  // Whole numbers of five bits: also times up to eight equal weights of 1/2, 1/4 or 1/8, rounding changes none.
  for (size_t i = 0; i < elements; i++) {
    float value = 1 + mix((uint64_t)l->rank << 40 ^ i) % 31;
    uint32_t u;
    memcpy(&u, &value, 4);
    l->x[i] = u >> 16;
  }
  return l;
}

void layer_free(Layer *l) {
  void *plain[] = {l->topk, l->weights, l->place, l->chosen, l->arriving, l->next, l->held, l->sent, l->sent_at, l->got, l->got_at, l->x, l->out};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) free(plain[i]);
  Buffer *all[] = {&l->packed, &l->arrived, &l->rows, &l->sent_choices, &l->got_choices, &l->spread};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
  MPI_Type_free(&l->row);
  MPI_Type_free(&l->choices);
  free(l);
}

void negate_odd(Layer *l) {
  int first = l->rank * l->local;
  bf16 *row = l->rows.data;
  for (int e = 0; e < l->local; e++) {
    size_t n = (size_t)l->held[e] * l->shape.hidden;
    if ((first + e) % 2 != 0)
      for (size_t i = 0; i < n; i++) row[i] ^= 0x8000;
    row += n;
  }
}

int begins(int at[], const int rows[], int parts) {
  int sum = 0;
  for (int i = 0; i < parts; i++) at[i] = sum, sum += rows[i];
  return sum;
}

static void count_crossing(Layer *l) {
  for (int r = 0; r < l->ranks; r++)
    if (r != l->rank) l->crossed += 2.0 * l->shape.hidden * l->sent[r];
}

void rows_there(Layer *l) {
  MPI_Alltoallv(l->packed.data, l->sent, l->sent_at, l->row, l->arrived.data, l->got, l->got_at, l->row, MPI_COMM_WORLD);
  count_crossing(l);
}

void rows_back(Layer *l) {
  MPI_Alltoallv(l->arrived.data, l->got, l->got_at, l->row, l->packed.data, l->sent, l->sent_at, l->row, MPI_COMM_WORLD);
  count_crossing(l);
}
