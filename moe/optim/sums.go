package optim

// Checksums of the state at rest. The update reads the state and writes it, so its kernels take the
// checksum of what they read, which must be that of what the step before has written. The same
// holds for working weights, from their publication to the next update: a comparison reads them
// once.

import "spmoe/tensor"

// shardSums are the checksums of a shard.
type shardSums struct {
	state   [2][tensor.MostVectors]uint32 // of the vectors of each copy
	work    uint32                        // of the working weights that were published: see published
	grad    *uint32                       // of the summed gradients; nil: not known
	changed []string                      // what had changed when an update read it
	update  tensor.UpdateSums             // of the current update
}

// compare compares what an update of copy before to copy after has read, and records what it has
// written.
func (s *shard) compare(before, after int) {
	u := &s.sums.update
	for i, v := range vectors(s.rule) {
		if u.Read[i].Swap(0) != s.sums.state[before][i] {
			s.sums.changed = append(s.sums.changed, s.nameOf(v))
		}
		s.sums.state[after][i] = u.Wrote[i].Swap(0)
	}
	if grad := u.Grad.Swap(0); s.sums.grad != nil && grad != *s.sums.grad {
		s.sums.changed = append(s.sums.changed, "summed gradients of the "+s.group.Name+" group")
	}
	s.sums.work = u.Work.Swap(0)
}

// Changed returns the names of what the last update has read and found different from what was
// written: vectors of [Optimizer.Summed], or summed gradients. The state that it wrote is wrong.
func (o *Optimizer) Changed() (names []string) {
	for _, s := range o.shards {
		names, s.sums.changed = append(names, s.sums.changed...), nil
	}
	return names
}

// Summed is memory with the checksum that it had when it was written.
type Summed struct {
	Name string
	Kind string // of a vector of the state, as in checkpoints
	Data tensor.Tensor
	Sum  *uint32
}

// NewSummed returns memory with room for its checksum.
func NewSummed(name string, data tensor.Tensor) Summed {
	return Summed{Name: name, Data: data, Sum: new(uint32)}
}

// Summed yields every vector of the newest state of this rank, in a fixed order, with a name such
// as "exp_avg of the dense group". A caller that sets the state, otherwise than by Apply and Skip,
// sets the checksums too.
func (o *Optimizer) Summed(yield func(Summed) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		for v, vector := range vectors(s.rule) {
			if !yield(Summed{s.nameOf(vector), vector.Name, s.states[o.now][v], &s.sums.state[o.now][v]}) {
				return
			}
		}
	}
}

// Padding yields the elements of the newest state that belong to no parameter, by kind of state. A
// checkpoint does not have them.
func (o *Optimizer) Padding(yield func(kind string, data tensor.Tensor) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		for v, vector := range vectors(s.rule) {
			state, end := s.states[o.now][v], 0
			for p := range s.parts {
				if p.lo > end && !yield(vector.Name, state.Slice(end, p.lo)) {
					return
				}
				end = p.hi
			}
			if state.Len() > end && !yield(vector.Name, state.Slice(end, state.Len())) {
				return
			}
		}
	}
}

// Published yields the working weights that this rank compares: those that it published itself, and
// those of peers that have other copies. They do not include groups with quantized weights.
func (o *Optimizer) Published(yield func(Summed) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		if s.group.Quantized() {
			continue
		}
		lo, hi := s.lo, s.hi
		if s.peers != nil {
			lo, hi = s.division.First, s.division.End()
		}
		if !yield(Summed{s.group.Name + " weights", "", s.group.Work.Slice(lo, hi), &s.sums.work}) {
			return
		}
	}
}

// Gradients yields this rank's parts of the summed gradients, after Reduce.
func (o *Optimizer) Gradients(yield func(name string, grad tensor.Tensor) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		grad := s.grad()
		for p := range s.parts {
			if !yield(p.param.Name, grad.Slice(p.lo, p.hi)) {
				return
			}
		}
	}
}

// ExpectGradients makes Apply compare the gradients that it reads with their checksums: those of
// the parts that Gradients yields.
func (o *Optimizer) ExpectGradients(sums []uint32) {
	for _, s := range o.shards {
		s.sums.grad = new(uint32)
		for range s.parts {
			*s.sums.grad, sums = *s.sums.grad+sums[0], sums[1:]
		}
	}
}
