// Package datasets turns text into the token rows that a rank trains on.
//
// A [Corpus] is read once and shared by all ranks of a process. It is split into training and held-out documents by
// the hash of their names. A [Tokenizer] makes a [Stream] of each side. Over the training stream every rank runs its
// own [Loader]: the global batches are the same for any number of ranks, and its [State], a few numbers, resumes a run
// without repeating or skipping a token. Over the held-out stream [Windows] picks the fixed rows of an evaluation.
package datasets
