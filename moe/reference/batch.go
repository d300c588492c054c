package reference

import "slices"

// sequences returns the batch of some of its sequences.
func (b *Batch) sequences(which []int) *Batch {
	part := *b
	part.Batch = len(which)
	cut := func(all []int32) (some []int32) {
		for _, s := range which {
			if all != nil {
				some = append(some, all[s*b.Seq:(s+1)*b.Seq]...)
			}
		}
		return some
	}
	part.IDs, part.Labels, part.Positions = cut(b.IDs), cut(b.Labels), cut(b.Positions)
	part.Documents, part.Mask = cut(b.documents()), cut(b.Mask)
	return &part
}

// documents returns the document of each token. Without them, and without a mask, positions that
// do not follow each other begin a document, as in transformers.
func (b *Batch) documents() []int32 {
	if b.Documents != nil || b.Positions == nil || b.Mask != nil {
		return b.Documents
	}
	documents := make([]int32, len(b.Positions))
	for i := 1; i < len(documents); i++ {
		documents[i] = documents[i-1]
		if i%b.Seq != 0 && b.Positions[i] != b.Positions[i-1]+1 {
			documents[i]++
		}
	}
	return documents
}

// choices returns the selected rows of a replayed choice as integers, or nil.
func (f *formula) choices(name string) []int {
	x, ok := f.call.Choices[name]
	if !ok {
		return nil
	}
	tokens := f.call.Batch.Batch * f.call.Batch.Seq
	if len(x.Data) != tokens*f.TopK {
		f.fail("%s has %d elements: expected %d of each of %d tokens", name, len(x.Data), f.TopK, tokens)
		return nil
	}
	rows := f.rows
	if rows == nil {
		rows = span(0, tokens)
	}
	var all []int
	for _, r := range rows {
		for _, v := range x.Data[r*f.TopK : (r+1)*f.TopK] {
			all = append(all, int(v))
		}
	}
	return all
}

// replayed returns the experts that the run chose: [tokens, TopK], or nil.
func (f *formula) replayed(gate string) []int {
	chosen := f.choices(gate + ".indices")
	if i := slices.IndexFunc(chosen, func(e int) bool { return e < 0 || e >= f.Experts }); i >= 0 {
		f.fail("%s.indices names expert %d of %d", gate, chosen[i], f.Experts)
		return nil
	}
	return chosen
}

// note keeps what the module computes besides its outputs.
func (f *formula) note(name string, values []float64, width int) {
	f.pass.Extra[name] = Tensor{Dims: []int{len(values) / max(width, 1), width}, Data: values}
}

func floats(values []int) []float64 {
	list := make([]float64, len(values))
	for i, v := range values {
		list[i] = float64(v)
	}
	return list
}

// buffer returns the values of a buffer.
func (f *formula) buffer(name string) []float64 {
	n := f.param(name)
	n.fixed = true
	return n.data
}

// Cut returns the port's columns of a tensor, [tokens, columns].
func (p Port) Cut(x Tensor, tokens int) Tensor {
	width := len(x.Data) / max(tokens, 1)
	if p.Hi == 0 || p.Hi > width {
		return x
	}
	cut := Tensor{Dims: []int{tokens, p.Hi - p.Lo}}
	for r := range tokens {
		cut.Data = append(cut.Data, x.Data[r*width+p.Lo:r*width+p.Hi]...)
	}
	return cut
}
