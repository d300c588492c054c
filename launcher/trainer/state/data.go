package state

// This rank's share of the training text: the rows of a step and their micro-batches. A pass of all
// ranks together covers the next sequences of the global batch, so that steps with the same number
// of passes have the same bits for any number of ranks.

import (
	"slices"

	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// DataLoader reads the rows of one rank. It reads the next rows while a step computes.
type DataLoader struct {
	Loader    *datasets.Ahead
	Seq       int   // tokens per sequence
	Batch     int   // sequences per step, all ranks together
	separator int32 // the token that ends a document
	// [sequences of this rank, seq+1] of the current step, pass after pass
	Rows    []int32
	Sizes   []int   // sequences of this rank in each pass of a step, the most first
	Inputs  []int32 // [sequences of the largest pass, seq]
	Targets []int32
	// position at which each input's document begins; nil: attention is not restricted to documents
	first  []int32
	Routes func(first, n int) *moe.Routes // of sequences of a step: see routeTable; nil: none
}

// NewDataLoader returns the loader of one of the ranks for the given text.
func NewDataLoader(cfg config.Config, text *datasets.Loader, separator int32, ranks int) *DataLoader {
	micro := cfg.RankBatch(ranks) * cfg.Seq
	d := &DataLoader{
		Loader: datasets.NewAhead(text), Seq: cfg.Seq, Batch: cfg.Batch, separator: separator,
		Rows:  make([]int32, cfg.Batch/cfg.DataRanks(ranks)*(cfg.Seq+1)),
		Sizes: cfg.PassSizes(ranks), Inputs: make([]int32, micro), Targets: make([]int32, micro),
	}
	if cfg.DocumentMask {
		d.first = make([]int32, micro)
	}
	return d
}

// Load loads this rank's part of the global batch that follows some tokens. again says that memory
// has changed: what was read ahead may be wrong.
func (d *DataLoader) Load(ex *tensor.Exec, tokens int64, again bool) error {
	defer ex.Enter(ex.Enter(profile.Data))
	d.Loader.Continue(d.position(tokens), again)
	return d.Loader.Next(d.Rows)
}

// position returns the position of the loader after some tokens.
func (d *DataLoader) position(tokens int64) int64 { return tokens / int64(d.Seq) }

// Micro returns the maximum number of sequences per pass.
func (d *DataLoader) Micro() int { return len(d.Inputs) / d.Seq }

// Passes returns the number of micro-batches per step: the same on all ranks.
func (d *DataLoader) Passes() int { return len(d.Sizes) }

// StepDraws names the random numbers of a step: see moe.Batch.
type StepDraws struct{ Seed, Step uint32 }

// MicroBatch returns pass number i of the current step. It is valid until the next call.
func (d *DataLoader) MicroBatch(i int, draws StepDraws) moe.Batch {
	first := 0
	for _, n := range d.Sizes[:i] {
		first += n
	}
	lo, hi := first*(d.Seq+1), (first+d.Sizes[i])*(d.Seq+1)
	b := d.Split(d.Rows[lo:hi], d.Batch)
	b.More, b.Seed, b.Step = hi < len(d.Rows), draws.Seed, draws.Step
	if d.Routes != nil {
		b.Routes = d.Routes(first, d.Sizes[i])
	}
	return b
}

// MicroBatches returns all passes of the current step.
func (d *DataLoader) MicroBatches(draws StepDraws) (all []moe.Batch) {
	for i := range d.Passes() {
		b := d.MicroBatch(i, draws)
		b.Inputs = slices.Clone(b.Inputs)
		b.Targets = slices.Clone(b.Targets)
		b.First = slices.Clone(b.First)
		all = append(all, b)
	}
	return all
}

// Split splits rows, [n, seq+1], into inputs and targets, which are valid until the next call.
func (d *DataLoader) Split(rows []int32, globalSequences int) moe.Batch {
	n := len(rows) / (d.Seq + 1)
	for i := range n {
		row := rows[i*(d.Seq+1):]
		copy(d.Inputs[i*d.Seq:], row[:d.Seq])
		copy(d.Targets[i*d.Seq:], row[1:d.Seq+1])
	}
	b := moe.Batch{
		Inputs:          d.Inputs[:n*d.Seq],
		Targets:         d.Targets[:n*d.Seq],
		Seq:             d.Seq,
		GlobalSequences: globalSequences,
	}
	if d.first != nil {
		b.First = d.first[:n*d.Seq]
		datasets.DocumentStarts(b.First, b.Inputs, d.Seq, d.separator)
	}
	return b
}
