package trainer

// This rank's share of the training text: the rows of a step, and the micro-batches that they are
// cut into.

import (
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// dataLoader reads the rows of one rank. The next ones are read while a step computes.
type dataLoader struct {
	loader    *datasets.Ahead
	seq       int     // tokens of a sequence
	batch     int     // sequences of a step, all ranks together
	separator int32   // the token that ends a document
	rows      []int32 // [sequences of this rank, seq+1], of the step under way
	inputs    []int32 // [most sequences of a pass, seq]
	targets   []int32
	first     []int32 // position at which each input's document begins; nil: attention does not stop there
}

// newDataLoader returns the loader of one of the ranks, whose text is given.
func newDataLoader(cfg Config, text *datasets.Loader, separator int32, ranks int) *dataLoader {
	micro := cfg.microBatch(ranks) * cfg.Seq
	d := &dataLoader{
		loader: datasets.NewAhead(text), seq: cfg.Seq, batch: cfg.Batch, separator: separator,
		rows:   make([]int32, cfg.Batch/ranks*(cfg.Seq+1)),
		inputs: make([]int32, micro), targets: make([]int32, micro),
	}
	if cfg.DocumentMask {
		d.first = make([]int32, micro)
	}
	return d
}

// load takes this rank's part of the next global batch.
func (d *dataLoader) load(ex *tensor.Exec) error {
	defer ex.Enter(ex.Enter(profile.Data))
	return d.loader.Next(d.rows)
}

// micro returns the most sequences of a pass.
func (d *dataLoader) micro() int { return len(d.inputs) / d.seq }

// passes returns the number of micro-batches of a step.
func (d *dataLoader) passes() int {
	return (len(d.rows)/(d.seq+1) + d.micro() - 1) / d.micro()
}

// microBatch returns number i of the passes of the step under way. It is valid until the next one.
func (d *dataLoader) microBatch(i int) moe.Batch {
	size := d.micro() * (d.seq + 1)
	lo, hi := i*size, min((i+1)*size, len(d.rows))
	b := d.split(d.rows[lo:hi], d.batch)
	b.More = hi < len(d.rows)
	return b
}

// split splits rows: [n, seq+1] into inputs and targets, which are valid until the next call.
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
