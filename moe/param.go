package moe

import (
	"hash/fnv"

	"spmoe/tensor"
)

// Param is one parameter tensor under its checkpoint name.
type Param struct {
	Name string
	Dims []int
	// weights that the forward pass reads, in the group's working type
	Work tensor.Tensor
	// FP32 gradient; the zero Tensor in a model for inference
	Grad tensor.Tensor
	Init Init
	// The number of linear layers that have equal shares of its rows; 0: one has all.
	Matrices int
	Part     PartKey // the part of the model that it belongs to
	Class    Class
	Heads    *HeadRows // of a projection that QK-clip scales
	// The optimizer leaves it as it is, and its gradient is not part of the norm.
	Frozen bool
}

// Len returns the number of elements.
func (p *Param) Len() int { return product(p.Dims) }

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// HeadRows describes the rows of a projection of queries or keys. The rows of a head are adjacent.
type HeadRows struct {
	// Top has the largest score of each head in the passes since ZeroGrad, or 0 if all are
	// negative; nil: scores are not recorded. [Group.ShareScores] makes it that of all ranks.
	Top []float32

	Rows int // of a head
	// The first Root rows take the root of the head's factor, because queries and keys both take
	// it. The next Whole rows take all of it: those of rotated queries, whose keys all heads share.
	Root, Whole int
}

// Fill writes elements [offset, offset+len(dst)) of the initial parameter. Each element is a
// function of seed, name and its index only, so any sharding gives the same model.
func (p *Param) Fill(dst []float32, offset int, seed uint64) {
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	key := mix(seed ^ mix(h.Sum64()))
	p.Init.fill(dst, key, uint64(offset))
}
