package step

// The batch, the tokens of it that each rank has, and the parts of the step that are missing.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"spmoe/moe/reference"
)

func idsOf(micro int) key { return key{batchClass, "input_ids", Repeat{MicroBatch: micro}} }

// placeBatch cuts the batch into micro-batches, and finds the tokens of each rank in them.
func (f *Folder) placeBatch() error {
	for _, r := range f.all() {
		f.splitBatch(r)
	}
	for micro := range f.Info.MicroBatches {
		if err := f.placeTokens(micro); err != nil {
			return err
		}
	}
	return nil
}

// splitBatch cuts the fields of a batch into micro-batches, unless the rank has each by itself. A
// field with one row is for all sequences.
func (f *Folder) splitBatch(r *Rank) {
	many, sequences := f.Info.MicroBatches, 1
	if _, each := r.tensors[idsOf(1)]; each || f.Form == dumperForm {
		many = 1
	}
	if ids := r.tensors[idsOf(0)]; len(ids.dims) == 2 {
		sequences = ids.dims[0] / many
	}
	for k, e := range maps.Clone(r.tensors) {
		if k.class != batchClass || len(e.dims) == 0 || e.dims[0]%many != 0 {
			continue
		}
		for micro, rows := 0, e.dims[0]/many; micro < many; micro++ {
			of := e
			of.view = e.slice(0, micro*rows, rows)
			if len(e.dims) == 2 && rows == 1 {
				of.dims[0], of.strides[0] = sequences, 0
			}
			r.tensors[key{batchClass, k.name, Repeat{MicroBatch: k.MicroBatch + micro}}] = of
		}
	}
}

// tokensOf returns the positions of a rank's tokens in a micro-batch. If no placement.json has any,
// ranks have the batch in the order of their coordinate along dp, or else ep, with gaps between.
func (f *Folder) tokensOf(r *Rank, micro int) ([]int, error) {
	n, many, tokens := 0, f.Info.MicroBatches, r.positions
	if ids, ok := r.tensors[idsOf(micro)]; ok {
		n = product(ids.dims)
	} else if len(tokens) > 0 { // a later stage of a pipeline
		n = len(tokens) / many
	}
	positioned := slices.ContainsFunc(f.Ranks, func(r *Rank) bool { return len(r.positions) > 0 })
	switch {
	case positioned && len(tokens) == n*many:
		return slices.Clone(tokens[micro*n:][:n]), nil
	case positioned && len(tokens) == n:
		return slices.Clone(tokens), nil
	case positioned || r.split > 1:
		return nil, fmt.Errorf("rank %d: placement.json has positions of %d tokens, but the rank's batch has %d: expected the index in the flattened batch of each",
			r.Number, len(tokens), n)
	}
	along := "dp"
	if len(coordinates(f.Ranks, along)) == 1 {
		along = "ep"
	}
	parts := len(coordinates(f.Ranks, along))
	if ids, ok := f.first(idsOf(micro)); ok && n == 0 {
		if n = product(ids.dims); f.whole.tensors[idsOf(micro)].read != nil {
			n /= parts
		}
	}
	if n > 0 && parts > 1 {
		f.find("batch", "placement.json has no positions: ranks are taken to have the batch in the order of their coordinate along "+along, false)
	}
	tokens = make([]int, n)
	for t := range n {
		tokens[t] = r.Coordinate[along]<<32 + t
	}
	return tokens, nil
}

// placeTokens finds the tokens of each rank in a micro-batch, and groups ranks that have the same.
func (f *Folder) placeTokens(micro int) error {
	var all []int
	positioned := false
	for _, r := range f.Ranks {
		tokens, err := f.tokensOf(r, micro)
		if err != nil {
			return err
		}
		r.Tokens = append(r.Tokens, tokens)
		all = append(all, tokens...)
		positioned = positioned || len(r.positions) > 0
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if e, ok := f.whole.tensors[idsOf(micro)]; ok && (positioned || product(e.dims) != len(all)) {
		all = make([]int, product(e.dims))
		for t := range all {
			all[t] = t
		}
	}
	var groups [][]*Rank
	for _, r := range f.Ranks {
		for i, t := range r.Tokens[micro] {
			at, ok := slices.BinarySearch(all, t)
			if !ok {
				return fmt.Errorf("rank %d: placement.json has position %d: the batch has %d tokens", r.Number, t, len(all))
			}
			r.Tokens[micro][i] = at
		}
		same := func(group []*Rank) bool { return slices.Equal(group[0].Tokens[micro], r.Tokens[micro]) }
		if at := slices.IndexFunc(groups, same); at >= 0 {
			groups[at] = append(groups[at], r)
		} else {
			groups = append(groups, []*Rank{r})
		}
	}
	f.tokens, f.groups = append(f.tokens, len(all)), append(f.groups, groups)
	return nil
}

// Batch returns the batch of a repeat.
func (f *Folder) Batch(of Repeat) (*reference.Batch, error) {
	e, ok := f.first(idsOf(of.MicroBatch))
	if !ok || len(e.dims) == 0 || len(e.dims) > 2 || product(e.dims) == 0 {
		return nil, fmt.Errorf("input_ids of micro-batch %d, [batch, seq]: %w", of.MicroBatch, ErrAbsent)
	}
	b := &reference.Batch{Seq: e.dims[len(e.dims)-1], LabelsShifted: f.Info.LabelsShifted, Reduction: f.Info.Reduction}
	if _, ok := f.whole.tensors[idsOf(of.MicroBatch)]; !ok {
		b.Seq *= f.Ranks[0].split
	}
	var starts []int32
	fields := map[string]*[]int32{
		"input_ids": &b.IDs, "labels": &b.Labels, "position_ids": &b.Positions, "document_ids": &b.Documents,
		"attention_mask": &b.Mask, "cu_seqlens": &starts,
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		of := Repeat{MicroBatch: of.MicroBatch}
		if e, ok = f.first(key{batchClass, name, of}); !ok {
			continue
		}
		v, err := f.Read(batchClass, name, of)
		other := func(x float64) bool { return float64(int32(x)) != x }
		if err != nil || len(v.Data) != f.tokens[of.MicroBatch] && name != "cu_seqlens" || slices.ContainsFunc(v.Data, other) {
			unread := fmt.Sprintf("%s is %s of %v and was not read: expected an integer per token", name, e.dtype, e.dims)
			if f.find("batch", unread, false); name == "input_ids" {
				return nil, errors.New(unread)
			}
			continue
		}
		for _, x := range v.Data {
			*fields[name] = append(*fields[name], int32(x))
		}
	}
	b.Batch = len(b.IDs) / b.Seq
	outside := func(id int32) bool { return id < 0 || int(id) >= f.Model.Vocab }
	if len(b.IDs) == 0 || b.Batch*b.Seq != len(b.IDs) || slices.ContainsFunc(b.IDs, outside) {
		return nil, fmt.Errorf("input_ids has %d tokens: expected sequences of %d tokens from 0 to %d", len(b.IDs), b.Seq, f.Model.Vocab-1)
	}
	if b.Documents == nil && starts != nil {
		for t := range b.IDs { // the number of the last start that is not behind it
			b.Documents = append(b.Documents, int32(sort.Search(len(starts), func(i int) bool { return int(starts[i]) > t })))
		}
	}
	return b, nil
}

// Incomplete lists the missing parts of the step: ranks without a folder, and micro-batches without
// a batch. Without them, gradients of weights cannot be judged.
func (f *Folder) Incomplete() (missing []string) {
	for micro, n := range f.tokens {
		if n == 0 {
			missing = append(missing, fmt.Sprintf("input_ids of micro-batch %d", micro))
		}
	}
	if have := max(len(f.Ranks), 1); have < f.Info.Ranks {
		missing = append(missing, fmt.Sprintf("%d of %d ranks", f.Info.Ranks-have, f.Info.Ranks))
	}
	return missing
}
