// The token exchange of one MoE layer over MPI: what a program does whose library moves messages, not tokens.
//
// plain: every choice of a token travels, as a row of its own.
// dedup: a token travels once to each rank where it chose experts, and is copied there for each of them; on the way back these are
//        summed there. This is the stronger way: fewer bytes, but sums of a rank are rounded to BF16 before they travel.
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t bf16;

typedef struct {
  int tokens, hidden, slots;  // of each rank; hidden is a multiple of 64
  int experts;                // of all ranks together, the same number on each
} Shape;

// Choice is one expert of a token, as it travels beside the token's row.
typedef struct {
  int32_t expert;  // of those on the rank that it goes to; -1 ends a row's choices
  float weight;
} Choice;

// Buffer grows and lies in huge pages where the system has them.
typedef struct {
  void *data;
  size_t bytes;
} Buffer;

typedef struct {
  Shape shape;
  int ranks, rank, local;  // local: experts of each rank
  MPI_Datatype row, choices;
  int *topk;       // [tokens, slots]
  float *weights;  // [tokens, slots]
  bf16 *x, *out;   // [tokens, hidden]

  int *chosen, *arriving;             // plain: rows to each expert, [experts], and from each rank for each of ours, [ranks, local]
  int *sent, *sent_at, *got, *got_at;  // rows to and from each rank, and where they begin
  int *held;                          // [local], rows of each of this rank's experts
  int *next;                          // running places
  int *place;                         // [tokens, slots]: rows of packed: of each choice, or dedup: of each rank that a token goes to, ended by -1
  int received;                       // rows that arrived
  int regrouped;                      // rows that this rank's experts get, the sum of held
  Buffer packed, arrived;             // rows in order of destination, and of source
  Buffer rows;                        // [regrouped, hidden], in order of local expert, then source
  Buffer sent_choices, got_choices;   // [rows, slots]
  Buffer spread;                      // [received, slots]: rows that an arrived row was copied to
  double crossed;                     // bytes of rows that went to other ranks, in all exchanges
} Layer;

// row is row i of one of the layer's buffers of rows.
static inline bf16 *row(Buffer b, const Layer *l, size_t i) { return (bf16 *)b.data + i * l->shape.hidden; }

// layer_new makes a layer of random choices; free it with layer_free.
Layer *layer_new(Shape shape);
void layer_free(Layer *l);

// A dispatch fills rows; the combine that follows it fills out.
void plain_dispatch(Layer *l);
void plain_combine(Layer *l);
void dedup_dispatch(Layer *l);
void dedup_combine(Layer *l);

// negate_odd stands for experts that can be told apart: those with odd numbers negate their rows.
void negate_odd(Layer *l);

// sum_rows sets out to the sum of count rows, each times its weight, added in FP32 in this order and rounded once.
void sum_rows(bf16 *out, const bf16 *const rows[], const float weights[], int count, int hidden);

// begins sets at to where parts of so many rows begin, one after the other, and returns their sum.
int begins(int at[], const int rows[], int parts);

// rows_there sends the packed rows, of which others arrive; rows_back returns the arrived rows to where they were packed.
void rows_there(Layer *l);
void rows_back(Layer *l);

// reserve makes room for so many bytes; what was in the buffer is lost if it grows.
void *reserve(Buffer *b, size_t bytes);
void release(Buffer *b);
