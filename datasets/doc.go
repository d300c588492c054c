// Package datasets turns text into the token rows that a rank trains on.
//
// A [Corpus] is read once and shared by all ranks of a process: text, or rows of JSONL, Parquet and
// Arrow files, see [Open]. It is split into training and held-out documents by the hash of their
// names. A [Tokenizer] makes a [Stream] of each side; [WriteTokens] does so once and for all, in a
// file that all processes of a machine map into memory, and [Mix] joins several streams in given
// shares. [Load] is all of that for what a user names.
//
// Over the training stream every rank runs its own [Loader], behind an [Ahead] that reads while it
// computes: the global batches are the same for any number of ranks, and its [State], a few
// numbers, resumes a run without repeating or skipping a token. Over the held-out stream [Windows]
// picks the fixed rows of an evaluation.
package datasets
