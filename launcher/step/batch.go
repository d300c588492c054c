package step

// The batch, from one file or from the parts of the ranks, and which of its tokens each rank has.

import (
	"fmt"
	"slices"

	"spmoe/moe/reference"
)

const batchClass Class = "batch"

// Batch returns the batch of a repeat.
func (f *Folder) Batch(r Repeat) (*reference.Batch, error) {
	if r.MicroBatch < len(f.batches) && f.batches[r.MicroBatch] != nil {
		return f.batches[r.MicroBatch], nil
	}
	return nil, fmt.Errorf("input_ids of micro-batch %d: %w", r.MicroBatch, ErrAbsent)
}

// field returns a field of a micro-batch, one number per token, and nil if the rank does not have
// it. A file has fields of each micro-batch (input_ids@mb1), or one with all micro-batches in order.
func (f *Folder) field(r *rank, name string, micro int, tokens, seq int) ([]int32, []int, error) {
	e, ok := r.tensors[key{batchClass, name, Repeat{MicroBatch: micro}}]
	parts, at := 1, 0
	if _, each := r.tensors[key{batchClass, name, Repeat{MicroBatch: 1}}]; !each && f.Form != dumperForm {
		e, ok = r.tensors[key{batchClass, name, Repeat{}}]
		parts, at = f.Info.MicroBatches, micro
	}
	if !ok {
		return nil, nil, nil
	}
	v, err := e.value()
	if err != nil {
		return nil, nil, err
	}
	n, numbers := len(v.Data)/parts, []int32{}
	if n*parts != len(v.Data) {
		return numbers, e.dims, nil
	}
	for _, x := range v.Data[at*n:][:n] {
		if float64(int32(x)) != x {
			return nil, nil, fmt.Errorf("%s: %s has %g: expected an integer of 32 bits", e.file, name, x)
		}
		numbers = append(numbers, int32(x))
	}
	for n == seq && n > 0 && len(numbers) < tokens { // one row stands for all
		numbers = append(numbers, numbers[:n]...)
	}
	return numbers, e.dims, nil
}

// localBatch reads a micro-batch of a rank, and returns nil if the rank has no input_ids.
func (f *Folder) localBatch(r *rank, micro int) (*reference.Batch, error) {
	ids, dims, err := f.field(r, "input_ids", micro, 0, 0)
	if ids == nil || err != nil {
		return nil, err
	}
	if len(ids) == 0 || len(dims) == 0 || len(dims) > 2 {
		return nil, fmt.Errorf("input_ids is %v: expected [batch, seq] of each of %d micro-batches", dims, f.Info.MicroBatches)
	}
	b := &reference.Batch{IDs: ids, Seq: dims[len(dims)-1], LabelsShifted: f.Info.LabelsShifted, Reduction: f.Info.Reduction}
	b.Batch = len(ids) / b.Seq
	if b.Batch*b.Seq != len(ids) {
		return nil, fmt.Errorf("input_ids is %v: %d micro-batches divide sequences", dims, f.Info.MicroBatches)
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= f.Model.Vocab }); i >= 0 {
		return nil, fmt.Errorf("input_ids has %d for token %d: the vocabulary has %d", ids[i], i, f.Model.Vocab)
	}
	for i, to := range fields(b)[1:] {
		name := []string{"labels", "position_ids", "document_ids", "attention_mask"}[i]
		if *to, dims, err = f.field(r, name, micro, len(ids), b.Seq); err != nil {
			return nil, err
		}
		if *to != nil && len(*to) != len(ids) {
			f.find(Finding{Module: "batch", Says: fmt.Sprintf("%s is %v and was not read: expected a number per token", name, dims)})
			*to = nil
		}
	}
	starts, _, err := f.field(r, "cu_seqlens", micro, 0, 0)
	if err == nil && starts != nil {
		b.Documents, err = documents(starts, len(ids))
	}
	return b, err
}

// documents numbers the documents that begin at starts. The last start is the number of tokens.
func documents(starts []int32, tokens int) (numbers []int32, err error) {
	if len(starts) == 0 || !slices.IsSorted(starts) || starts[0] != 0 || int(starts[len(starts)-1]) != tokens {
		return nil, fmt.Errorf("cu_seqlens: expected starts of documents from 0, in order, and the number of tokens, %d, at the end", tokens)
	}
	for i := range starts[1:] {
		numbers = append(numbers, slices.Repeat([]int32{int32(i)}, int(starts[i+1]-starts[i]))...)
	}
	return numbers, nil
}

func fields(b *reference.Batch) []*[]int32 {
	return []*[]int32{&b.IDs, &b.Labels, &b.Positions, &b.Documents, &b.Mask}
}

// loadBatches reads the micro-batches, and finds the tokens of each rank.
func (f *Folder) loadBatches() error {
	for micro := range f.Info.MicroBatches {
		whole, err := f.localBatch(f.whole, micro)
		if err != nil {
			return err
		}
		var locals []*reference.Batch
		for _, r := range f.ranks {
			local, err := f.localBatch(r, micro)
			if err != nil {
				return fmt.Errorf("rank %d: %w", r.number, err)
			}
			locals = append(locals, local)
		}
		if err := f.placeTokens(micro, locals); err != nil {
			return err
		}
		if whole == nil && len(locals) > 0 {
			if whole, err = f.joinBatch(micro, locals); err != nil {
				return err
			}
		}
		f.batches = append(f.batches, whole)
	}
	return nil
}

// placeTokens sets the tokens of each rank in a micro-batch, and groups ranks that have the same.
// Without positions, sequences follow each other in the order of ranks.
func (f *Folder) placeTokens(micro int, locals []*reference.Batch) error {
	var all []int
	next, starts := 0, map[string]int{}
	for i, r := range f.ranks {
		tokens, err := f.positionsOf(r, locals[i], micro)
		if err != nil {
			return fmt.Errorf("rank %d: placement.json: %w", r.number, err)
		}
		if local := locals[i]; tokens == nil && local != nil {
			ids := fmt.Sprint(local.IDs)
			start, known := starts[ids]
			if !known {
				start = next
				starts[ids] = start
				next += len(local.IDs)
			}
			for t := range local.IDs {
				tokens = append(tokens, start+t)
			}
		}
		r.tokens = append(r.tokens, slices.Clone(tokens))
		all = append(all, tokens...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	groups, known := [][]*rank{}, map[string]int{}
	for _, r := range f.ranks {
		for i, t := range r.tokens[micro] {
			r.tokens[micro][i], _ = slices.BinarySearch(all, t)
		}
		name := fmt.Sprint(r.tokens[micro])
		if _, ok := known[name]; !ok {
			known[name] = len(groups)
			groups = append(groups, nil)
		}
		groups[known[name]] = append(groups[known[name]], r)
	}
	f.groups = append(f.groups, groups)
	return nil
}

// positionsOf returns the places of a rank's tokens in the flattened batch, and nil if
// placement.json does not say them. local is nil for a later stage of a pipeline.
func (f *Folder) positionsOf(r *rank, local *reference.Batch, micro int) ([]int, error) {
	positions, many := r.positions, f.Info.MicroBatches
	if local == nil {
		return positions[micro*(len(positions)/many):][:len(positions)/many], nil
	}
	n := len(local.IDs)
	if count := 0; len(r.spans) > 0 {
		for _, span := range r.spans {
			count += span[2] - span[1]
		}
		last := 0
		if count != n && count != n*many {
			last = 1 // spans include their last token
		}
		for _, span := range r.spans {
			for t := span[1]; t < span[2]+last && len(positions) <= n*many; t++ {
				positions = append(positions, span[0]*local.Seq*r.size("cp")+t)
			}
		}
	}
	switch {
	case len(positions) == n*many:
		return positions[micro*n:][:n], nil
	case len(positions) == n:
		return positions, nil
	case len(positions) > 0:
		return nil, fmt.Errorf("it has the positions of %d tokens: the rank's batch has %d", len(positions), n)
	case r.size("cp") > 1:
		return nil, fmt.Errorf("it has no positions: sequences are split over cp, in parts that the reader has to know")
	}
	return nil, nil
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

// joinBatch makes the batch of the parts of the ranks.
func (f *Folder) joinBatch(micro int, locals []*reference.Batch) (*reference.Batch, error) {
	whole, total := &reference.Batch{}, 0
	for _, r := range f.ranks {
		total = max(total, slices.Max(append(r.tokens[micro], -1))+1)
	}
	for i, r := range f.ranks {
		local := locals[i]
		if local == nil {
			continue
		}
		whole.Seq, whole.LabelsShifted, whole.Reduction = local.Seq*r.size("cp"), local.LabelsShifted, local.Reduction
		from := fields(local)
		for j, to := range fields(whole) {
			if *from[j] != nil && *to == nil {
				*to = make([]int32, total)
			}
			for k, x := range *from[j] {
				(*to)[r.tokens[micro][k]] = x
			}
		}
	}
	if whole.IDs == nil {
		return nil, nil
	}
	whole.Batch = total / whole.Seq
	if whole.Batch*whole.Seq != total {
		return nil, fmt.Errorf("the ranks have %d tokens, which are no sequences of %d", total, whole.Seq)
	}
	return whole, nil
}

// RankTokens returns the tokens of each rank of a parallel run in a repeat, nil for one rank.
func (f *Folder) RankTokens(r Repeat) (list []RankTokens) {
	for _, of := range f.ranks {
		if r.MicroBatch < len(of.tokens) {
			list = append(list, RankTokens{Rank: of.number, Coordinate: of.coordinate, Tokens: of.tokens[r.MicroBatch]})
		}
	}
	return list
}

// Incomplete says what of the step is missing: ranks without a folder, and micro-batches without a
// batch. Without them, gradients of weights cannot be judged.
func (f *Folder) Incomplete() (missing []string) {
	for micro, b := range f.batches {
		if b == nil {
			missing = append(missing, fmt.Sprintf("input_ids of micro-batch %d", micro))
		}
	}
	have := map[axis]bool{}
	for _, r := range f.ranks {
		for _, a := range r.mesh {
			have[axis{a.name, r.coordinate[a.name]}] = true
		}
	}
	for _, r := range f.ranks[:min(len(f.ranks), 1)] {
		for _, a := range r.mesh {
			for c := range a.size {
				if !have[axis{a.name, c}] {
					missing = append(missing, fmt.Sprintf("the ranks with %s %d", a.name, c))
				}
			}
		}
	}
	return missing
}
