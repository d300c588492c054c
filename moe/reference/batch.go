package reference

// Batch is what the step trained on. All slices are [Batch·Seq].
type Batch struct {
	Batch, Seq    int
	IDs, Labels   []int32 // label -100: no target
	LabelsShifted bool    // label i is the target of token i, not that of token i-1
	Positions     []int32 // nil: 0, 1, … in each sequence
	Documents     []int32 // tokens see their own document only; nil: by Positions, or one
	Mask          []int32 // 0: padding; nil: none
	Reduction     string  // "mean" over all targets (also ""), "sum", or "sequence": mean of means
}

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

// next returns the target of each token.
func (b *Batch) next(labels []int32) []int32 {
	if b.LabelsShifted {
		return b.shifted(labels, 0)
	}
	return b.shifted(labels, 1)
}

// rolled returns the labels rolled around each sequence.
func (b *Batch) rolled(by int) []int32 {
	rolled := make([]int32, len(b.Labels))
	for i := range rolled {
		rolled[i] = b.Labels[i/b.Seq*b.Seq+(i%b.Seq+by+b.Seq)%b.Seq]
	}
	return rolled
}

// shifted returns the values of the tokens some places later in each sequence, or -100.
func (b *Batch) shifted(values []int32, by int) []int32 {
	later := make([]int32, len(values))
	for i := range later {
		later[i] = -100
		if at := i%b.Seq + by; at >= 0 && at < b.Seq {
			later[i] = values[i+by]
		}
	}
	return later
}

// ahead returns the ids of the tokens some places later. Labels say what follows a sequence, if
// they are shifted; else nothing does, and the id is 0.
func (b *Batch) ahead(ids []int32, by int) []int32 {
	for range by {
		later := b.shifted(ids, 1)
		for i := b.Seq - 1; i < len(later); i += b.Seq {
			later[i] = 0
			if b.LabelsShifted && by == 1 {
				later[i] = max(b.Labels[i], 0)
			}
		}
		ids = later
	}
	return ids
}
