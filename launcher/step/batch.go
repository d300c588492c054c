package step

// The batch, which of its tokens each rank has, and what of the step is missing.

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"spmoe/moe/reference"
)

const batchClass Class = "batch"

// splitBatch cuts the fields of a batch into micro-batches, unless the rank has each by itself. A
// field with one row is for all sequences.
func (f *Folder) splitBatch(r *rank) {
	many := f.Info.MicroBatches
	if _, each := r.tensors[key{batchClass, "input_ids", Repeat{MicroBatch: 1}}]; each || f.Form == dumperForm {
		many = 1
	}
	sequences := 1
	if ids := r.tensors[key{class: batchClass, name: "input_ids"}]; len(ids.dims) == 2 {
		sequences = ids.dims[0] / many
	}
	for k, e := range maps.Clone(r.tensors) {
		if k.class != batchClass || len(e.dims) == 0 || e.dims[0]%many != 0 {
			continue
		}
		for micro, rows := 0, e.dims[0]/many; micro < many; micro++ {
			of := e
			of.view = e.slice(0, micro*rows, rows, 1)
			if len(e.dims) == 2 && rows == 1 {
				of.view = of.slice(0, 0, sequences, 0)
			}
			r.tensors[key{batchClass, k.name, Repeat{MicroBatch: k.MicroBatch + micro}}] = of
		}
	}
}

// placeTokens finds the tokens of each rank, and groups ranks that have the same. Without
// positions, sequences follow each other in the order of ranks.
func (f *Folder) placeTokens() error {
	for micro := range f.Info.MicroBatches {
		k := key{batchClass, "input_ids", Repeat{MicroBatch: micro}}
		var all []int
		next, starts := 0, map[string]int{}
		for _, r := range f.ranks {
			tokens, n, many := r.positions, product(r.tensors[k].dims), f.Info.MicroBatches
			if r.tensors[k].read == nil { // a later stage of a pipeline
				n = len(tokens) / many
			}
			switch {
			case len(tokens) == n*many:
				tokens = tokens[micro*n:][:n]
			case len(tokens) != n && len(tokens) > 0:
				return fmt.Errorf("rank %d: placement.json has positions of %d tokens: the rank's batch has %d", r.number, len(tokens), n)
			case len(tokens) == 0 && r.size("cp") > 1:
				return fmt.Errorf("rank %d: placement.json has no positions: sequences are split over cp, in parts that the reader has to know", r.number)
			case len(tokens) == 0:
				v, err := r.tensors[k].value()
				if err != nil {
					return err
				}
				ids := fmt.Sprint(v.Data)
				if _, ok := starts[ids]; !ok {
					starts[ids] = next
					next += n
				}
				for t := range n {
					tokens = append(tokens, starts[ids]+t)
				}
			}
			r.tokens = append(r.tokens, slices.Clone(tokens))
			all = append(all, tokens...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		if e, ok := f.whole.tensors[k]; ok {
			all = all[:0]
			for t := range product(e.dims) {
				all = append(all, t)
			}
		}
		f.tokens = append(f.tokens, len(all))
		groups, known := [][]*rank{}, map[string]int{}
		for _, r := range f.ranks {
			for i, t := range r.tokens[micro] {
				at, ok := slices.BinarySearch(all, t)
				if !ok {
					return fmt.Errorf("rank %d: placement.json has position %d: the batch has %d tokens", r.number, t, len(all))
				}
				r.tokens[micro][i] = at
			}
			name := fmt.Sprint(r.tokens[micro])
			if _, ok := known[name]; !ok {
				known[name] = len(groups)
				groups = append(groups, nil)
			}
			groups[known[name]] = append(groups[known[name]], r)
		}
		f.groups = append(f.groups, groups)
	}
	return nil
}

// size returns the size of a mesh dimension.
func (r *rank) size(name string) int {
	for _, a := range r.mesh {
		if a.name == name {
			return a.size
		}
	}
	return 1
}

// Batch returns the batch of a repeat.
func (f *Folder) Batch(of Repeat) (*reference.Batch, error) {
	repeat := Repeat{MicroBatch: of.MicroBatch}
	e, ok := f.first(key{batchClass, "input_ids", repeat})
	if !ok || len(e.dims) == 0 || product(e.dims) == 0 || len(e.dims) > 2 {
		return nil, fmt.Errorf("input_ids of micro-batch %d, [batch, seq]: %w", of.MicroBatch, ErrAbsent)
	}
	b := &reference.Batch{Seq: e.dims[len(e.dims)-1], LabelsShifted: f.Info.LabelsShifted, Reduction: f.Info.Reduction}
	if _, ok := f.whole.tensors[key{batchClass, "input_ids", repeat}]; !ok {
		b.Seq *= f.ranks[0].size("cp")
	}
	var starts []int32
	for name, to := range map[string]*[]int32{
		"input_ids": &b.IDs, "labels": &b.Labels, "position_ids": &b.Positions, "document_ids": &b.Documents, "attention_mask": &b.Mask, "cu_seqlens": &starts,
	} {
		k := key{batchClass, name, repeat}
		v, err := f.load(k, nil)
		if e, ok := f.first(k); !ok {
			continue
		} else if name != "cu_seqlens" && (len(v.Data) != f.tokens[of.MicroBatch] || v.DType[0] == 'F') || err != nil {
			f.find(Finding{Module: "batch", Says: fmt.Sprintf("%s is %v and was not read: expected an integer per token", name, e.dims)})
			continue
		}
		for _, x := range v.Data {
			*to = append(*to, int32(x))
		}
	}
	if outside := func(id int32) bool { return id < 0 || int(id) >= f.Model.Vocab }; len(b.IDs) == 0 || slices.ContainsFunc(b.IDs, outside) {
		return nil, fmt.Errorf("input_ids: expected tokens from 0 to %d, as many as placement.json says", f.Model.Vocab-1)
	}
	b.Batch = len(b.IDs) / b.Seq
	if b.Batch*b.Seq != len(b.IDs) {
		return nil, fmt.Errorf("input_ids has %d tokens, which are no sequences of %d", len(b.IDs), b.Seq)
	}
	if starts != nil && b.Documents == nil {
		b.Documents = make([]int32, len(b.IDs))
		for t := range b.Documents {
			b.Documents[t] = int32(sort.Search(len(starts), func(i int) bool { return starts[i] > int32(t) }))
		}
	}
	return b, nil
}

// RankTokens returns the tokens of each rank of a parallel run in a repeat, nil for one rank.
func (f *Folder) RankTokens(r Repeat) (list []RankTokens) {
	for _, of := range f.ranks {
		list = append(list, RankTokens{Rank: of.number, Coordinate: of.coordinate, Tokens: of.tokens[r.MicroBatch]})
	}
	return list
}

// Incomplete says what of the step is missing: ranks without a folder, and micro-batches without a
// batch. Without them, gradients of weights cannot be judged.
func (f *Folder) Incomplete() (missing []string) {
	for micro, n := range f.tokens {
		if n == 0 {
			missing = append(missing, fmt.Sprintf("input_ids of micro-batch %d", micro))
		}
	}
	if len(f.ranks) > 0 {
		for _, a := range f.ranks[0].mesh {
			if n := len(coordinates(f.ranks, a.name)); n < a.size {
				missing = append(missing, fmt.Sprintf("%d of the %d ranks along %s", a.size-n, a.size, a.name))
			}
		}
	}
	return missing
}
