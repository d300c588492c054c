package trainer

// This rank's share of the training text: the rows of a step and their micro-batches. A pass of all
// ranks together covers the next sequences of the global batch, so that steps with the same number
// of passes have the same bits for any number of ranks.

import (
	"slices"

	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// dataLoader reads the rows of one rank. It reads the next rows while a step computes.
type dataLoader struct {
	loader    *datasets.Ahead
	seq       int   // tokens per sequence
	batch     int   // sequences per step, all ranks together
	separator int32 // the token that ends a document
	// [sequences of this rank, seq+1] of the current step, pass after pass
	rows    []int32
	sum     uint64  // checksum of rows
	inputs  []int32 // [sequences per pass, seq]
	targets []int32
	// position at which each input's document begins; nil: attention is not restricted to documents
	first  []int32
	routes func(first, n int) *moe.Routes // of sequences of a step: see routeTable; nil: none
}

// newDataLoader returns the loader of one of the ranks for the given text.
func newDataLoader(cfg Config, text *datasets.Loader, separator int32, ranks int) *dataLoader {
	micro := cfg.RankBatch(ranks) * cfg.Seq
	d := &dataLoader{
		loader: datasets.NewAhead(text), seq: cfg.Seq, batch: cfg.Batch, separator: separator,
		rows:   make([]int32, cfg.Batch/cfg.dataRanks(ranks)*(cfg.Seq+1)),
		inputs: make([]int32, micro), targets: make([]int32, micro),
	}
	if cfg.DocumentMask {
		d.first = make([]int32, micro)
	}
	return d
}

// load loads this rank's part of the global batch that follows some tokens. again says that memory
// has changed: what was read ahead may be wrong.
func (d *dataLoader) load(ex *tensor.Exec, tokens int64, again bool) error {
	defer ex.Enter(ex.Enter(profile.Data))
	d.loader.Continue(d.position(tokens), again)
	err := d.loader.Next(d.rows)
	d.sum = datasets.Checksum(d.rows)
	return err
}

// position returns the position of the loader after some tokens.
func (d *dataLoader) position(tokens int64) int64 { return tokens / int64(d.seq) }

// intact reports whether the rows are those that were loaded.
func (d *dataLoader) intact() bool { return datasets.Checksum(d.rows) == d.sum }

// constants lists the memory that does not change.
func (d *dataLoader) constants(list func(name string, values ...any)) {
	list("the settings of the loader", &d.seq, &d.batch, &d.separator)
	list("the settings of the loader", d.loader.Constants()...)
}

// micro returns the maximum number of sequences per pass.
func (d *dataLoader) micro() int { return len(d.inputs) / d.seq }

// passes returns the number of micro-batches per step: the same on all ranks.
func (d *dataLoader) passes() int {
	return (len(d.rows)/(d.seq+1) + d.micro() - 1) / d.micro()
}

// stepDraws names the random numbers of a step: see moe.Batch.
type stepDraws struct{ seed, step uint32 }

// microBatch returns pass number i of the current step. It is valid until the next call.
func (d *dataLoader) microBatch(i int, draws stepDraws) moe.Batch {
	size := d.micro() * (d.seq + 1)
	lo, hi := i*size, min((i+1)*size, len(d.rows))
	b := d.split(d.rows[lo:hi], d.batch)
	b.More, b.Seed, b.Step = hi < len(d.rows), draws.seed, draws.step
	if d.routes != nil {
		b.Routes = d.routes(i*d.micro(), len(b.Inputs)/d.seq)
	}
	return b
}

// microBatches returns all passes of the current step.
func (d *dataLoader) microBatches(draws stepDraws) (all []moe.Batch) {
	for i := range d.passes() {
		b := d.microBatch(i, draws)
		b.Inputs, b.Targets, b.First = slices.Clone(b.Inputs), slices.Clone(b.Targets), slices.Clone(b.First)
		all = append(all, b)
	}
	return all
}

// split splits rows, [n, seq+1], into inputs and targets, which are valid until the next call.
func (d *dataLoader) split(rows []int32, globalSequences int) moe.Batch {
	n := len(rows) / (d.seq + 1)
	for i := range n {
		row := rows[i*(d.seq+1):]
		copy(d.inputs[i*d.seq:], row[:d.seq])
		copy(d.targets[i*d.seq:], row[1:d.seq+1])
	}
	b := moe.Batch{Inputs: d.inputs[:n*d.seq], Targets: d.targets[:n*d.seq], Seq: d.seq, GlobalSequences: globalSequences}
	if d.first != nil {
		b.First = d.first[:n*d.seq]
		datasets.DocumentStarts(b.First, b.Inputs, d.seq, d.separator)
	}
	return b
}
