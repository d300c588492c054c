package optim

// Seals protect the state in memory. A seal is the checksum of some elements of a vector. It is
// made when an update writes the elements, and compared when the next update reads them, both while
// they are in the caches. So every step checks every element, and memory is read and written once.

import (
	"bytes"
	"slices"
	"sync/atomic"

	"spmoe/internal/seal"
	"spmoe/tensor"
)

const (
	sealLen = seal.Len
	// sealedRun is the number of weights that are checked, updated and sealed together. Two copies
	// of their state fit into a second-level cache.
	sealedRun = 8 * sealLen
	// sealWork is the cost of hashing an element, in operations of a matrix product.
	sealWork = 8
)

// seals are those of one vector: number i covers elements [i·sealLen, (i+1)·sealLen).
type seals []uint64

// changes are what was found changed of a shard: sets of the numbers of its vectors, and of
// gradVector for its summed gradients.
type changes struct{ repaired, lost atomic.Uint64 }

const gradVector = 63

// add records the result of a check.
func (c *changes) add(vector int, repaired, lost bool) {
	if repaired {
		c.repaired.Or(1 << vector)
	}
	if lost {
		c.lost.Or(1 << vector)
	}
}

// Seal seals the newest state as it is. From then on, each update checks the state that it reads.
// Only this optimizer may change the state until the next call of Seal.
func (o *Optimizer) Seal() {
	o.sealed = true
	for i := range o.shards {
		s := &o.shards[i]
		s.gradSeals = make(seals, sealsIn(s.len()))
		for c := range o.copies {
			for len(s.seals[c]) < len(s.states[c]) {
				s.seals[c] = append(s.seals[c], make(seals, sealsIn(s.len())))
			}
		}
		o.forSeals(s, o.now, writeSeals)
	}
}

// Sealed reports whether the state has seals.
func (o *Optimizer) Sealed() bool { return o.sealed }

// Unseal drops all seals: others may change the state again.
func (o *Optimizer) Unseal() { o.sealed = false }

// Verify checks the newest state, if it is sealed. Changes has the result.
func (o *Optimizer) Verify() {
	if !o.sealed {
		return
	}
	for i := range o.shards {
		o.forSeals(&o.shards[i], o.now, checkSeals)
	}
}

// Changes returns the names of what was found changed since the last call: vectors of State, or
// summed gradients. A vector is repaired if each seal that did not match differed by one byte: the
// seal then tells its old value. Otherwise it is lost.
func (o *Optimizer) Changes() (repaired, lost []string) {
	for i := range o.shards {
		s := &o.shards[i]
		gone := s.found.lost.Swap(0)
		lost = append(lost, o.names(s, gone)...)
		repaired = append(repaired, o.names(s, s.found.repaired.Swap(0)&^gone)...)
	}
	return repaired, lost
}

// names names the elements of a set of changes.
func (o *Optimizer) names(s *shard, set uint64) (names []string) {
	if set == 0 {
		return nil
	}
	for i, v := range vectors(s.rule) {
		if set>>i&1 == 1 {
			names = append(names, s.nameOf(v))
		}
	}
	if set>>gradVector == 1 {
		names = append(names, "summed gradients of the "+s.group.Name+" group")
	}
	return names
}

// Digests appends a checksum of the seals of each vector, in the order of State. It appends nothing
// if the state is not sealed.
func (o *Optimizer) Digests(to []uint64) []uint64 {
	if !o.sealed {
		return to
	}
	for i := range o.shards {
		for _, list := range o.shards[i].seals[o.now] {
			to = append(to, seal.Digest(list))
		}
	}
	return to
}

// SavedSeals returns copies of the seals of each vector, in the order of State, of the elements
// that Pieces yields. The last seal of a vector with padding is made here, from elements that match
// their own seal. It returns nil if the state is not sealed.
func (o *Optimizer) SavedSeals() (all [][]uint64) {
	if !o.sealed {
		return nil
	}
	for i := range o.shards {
		s := &o.shards[i]
		n := 0 // elements without padding
		for p := range s.parts {
			n = p.hi
		}
		for v, t := range s.states[o.now] {
			own := slices.Clone(s.seals[o.now][v][:sealsIn(n)])
			if last := len(own) - 1; n < s.len() && last >= 0 && n < (last+1)*sealLen {
				x, size := bytes.Clone(sealedBytes(t, last, last+1)), t.DType().Size()
				if _, lost := seal.Check(x, &own[last]); !lost {
					own[last] = seal.Of(x[:(n-last*sealLen)*size])
				}
			}
			all = append(all, own)
		}
	}
	return all
}

// Differing returns the names of the vectors whose digests differ from given ones of this state.
func (o *Optimizer) Differing(digests []uint64) (names []string) {
	have, i := o.Digests(nil), 0
	for name := range o.State {
		if have[i] != digests[i] {
			names = append(names, name)
		}
		i++
	}
	return names
}

// sealsIn returns the number of seals of n elements.
func sealsIn(n int) int { return seal.Count(n) }

// sealedBytes returns the elements of a vector that seals [lo, hi) cover.
func sealedBytes(t tensor.Tensor, lo, hi int) []byte {
	return t.Slice(min(lo*sealLen, t.Len()), min(hi*sealLen, t.Len())).Bytes()
}

// write makes the seals of x, from number first on.
func (s seals) write(first int, x []byte, elementSize int) {
	for size := sealLen * elementSize; len(x) > 0; first++ {
		n := min(size, len(x))
		s[first] = seal.Of(x[:n])
		x = x[n:]
	}
}

// check compares x with its seals, from number first on. It restores what it can.
func (s seals) check(first int, x []byte, elementSize int) (repaired, lost bool) {
	for size := sealLen * elementSize; len(x) > 0; first++ {
		n := min(size, len(x))
		ok, gone := seal.Check(x[:n], &s[first])
		repaired, lost = repaired || !ok && !gone, lost || gone
		x = x[n:]
	}
	return repaired, lost
}

// sealedCopy is copy number i of a shard's state.
type sealedCopy struct {
	s *shard
	i int
}

// forSeals calls body for ranges of the seals of a copy, on all threads.
func (o *Optimizer) forSeals(s *shard, i int, body func(_ *tensor.Exec, c sealedCopy, lo, hi int)) {
	elements := s.len() * len(s.states[i])
	tensor.Parallel(o.ex, sealsIn(s.len()), elements*sealWork, sealedCopy{s, i}, body)
}

func writeSeals(_ *tensor.Exec, c sealedCopy, lo, hi int) {
	for v, t := range c.s.states[c.i] {
		c.s.seals[c.i][v].write(lo, sealedBytes(t, lo, hi), t.DType().Size())
	}
}

func checkSeals(_ *tensor.Exec, c sealedCopy, lo, hi int) {
	for v, t := range c.s.states[c.i] {
		repaired, lost := c.s.seals[c.i][v].check(lo, sealedBytes(t, lo, hi), t.DType().Size())
		c.s.found.add(v, repaired, lost)
	}
}

// writeGradSeals seals the summed gradients of a shard. checkGradSeals checks them when the update
// reads them.
func writeGradSeals(_ *tensor.Exec, c sealedCopy, lo, hi int) {
	c.s.gradSeals.write(lo, sealedBytes(c.s.grad(), lo, hi), gradBytes)
}

func checkGradSeals(_ *tensor.Exec, c sealedCopy, lo, hi int) {
	repaired, lost := c.s.gradSeals.check(lo, sealedBytes(c.s.grad(), lo, hi), gradBytes)
	c.s.found.add(gradVector, repaired, lost)
}

// gradBytes is the size of an element of a gradient: FP32.
const gradBytes = 4

// sealedUpdate is the update of weights [lo, hi) of a shard whose state is sealed. lo is a multiple
// of sealLen, and hi is one or the end of the shard.
type sealedUpdate struct {
	update Update
	from   sealedCopy // may be the copy that is written
	to     int
	lo, hi int
	work   tensor.Tensor // [hi-lo]
}

// run makes the update on all threads of ex.
func (u sealedUpdate) run(ex *tensor.Exec) {
	elements := (u.hi - u.lo) * len(u.from.s.states[u.to])
	tensor.Parallel(ex, sealsIn(u.hi-u.lo), elements*sealWork, u, updateSealed)
}

// updateSealed updates the weights of seals [lo, hi), counted from the first of the update. It
// checks, updates and seals some weights at a time. Another copy of the state is written past the
// caches, because the next step reads it.
func updateSealed(ex *tensor.Exec, u sealedUpdate, lo, hi int) {
	s, apart := u.from.s, u.from.i != u.to
	dst := s.states[u.to]
	if apart {
		dst = u.scratch(ex)
		defer tensor.StreamingFence()
	}
	last := min(u.lo+hi*sealLen, u.hi)
	for begin := u.lo + lo*sealLen; begin < last; begin += sealedRun {
		end := min(begin+sealedRun, last)
		r := Run{
			Grad: s.grad().Slice(begin, end), Work: u.work.Slice(begin-u.lo, end-u.lo),
			src: s.states[u.from.i], lo: begin, hi: end, dst: dst, dstLo: begin,
		}
		if apart {
			r.dstLo = 0
		}
		checkSeals(ex, u.from, begin/sealLen, sealsIn(end))
		checkGradSeals(ex, u.from, begin/sealLen, sealsIn(end))
		u.update(ex, r)
		for v, t := range dst {
			x := t.Slice(r.dstLo, r.dstLo+end-begin).Bytes()
			s.seals[u.to][v].write(begin/sealLen, x, t.DType().Size())
			if apart {
				tensor.CopyStreaming(s.states[u.to][v].Slice(begin, end).Bytes(), x)
			}
		}
	}
}

// scratch returns memory for the state of one run.
func (u sealedUpdate) scratch(ex *tensor.Exec) (s state) {
	for _, t := range u.from.s.states[u.to] {
		s = append(s, ex.New(t.DType(), sealedRun))
	}
	return s
}
