// Package datasets turns text into the token rows that a rank trains on.
//
// A [Corpus] is read once and shared by all ranks of a process. It consists of text, or of rows of
// JSONL and Parquet files, see [Load]. The hash of their text splits documents into
// training and validation (held-out) documents. A [Tokenizer] makes a [Stream] of each side.
// [WriteTokens] does so once and for all, in a file that all processes of a machine map into
// memory, and [Mix] joins several streams in given shares. [Load] does all of this for the paths
// that a user gives.
//
// Over the training stream every rank runs its own [Loader], behind an [Ahead] that reads while it
// computes. The global batches are the same for any number of ranks. The loader's [State], a few
// numbers, resumes a run without repeating or skipping a token. Over the validation stream
// [Windows] picks the fixed rows of an evaluation.
package datasets
