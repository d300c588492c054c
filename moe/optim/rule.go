package optim

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/moe"
	"spmoe/tensor"
)

// A Rule is the algorithm of an optimizer: its state per weight, and how a step changes weights and
// state. The [Optimizer] handles master weights, shards, clipping and collectives.
type Rule interface {
	// Validate returns an error for the first invalid setting.
	Validate() error
	// Vectors lists the rule's state besides the master weights: one element of each vector per
	// weight.
	Vectors() []Vector
	// WholeMatrices reports whether an update needs a whole parameter, which one rank then owns.
	WholeMatrices() bool
	// Of returns the rule for parameters of a class: this one, or another one for classes to which
	// it does not apply. Rules are compared with ==.
	Of(c moe.Class) Rule
	// Prepare returns the update of a step. Several threads may call the update at once, each for
	// its own run.
	Prepare(s Step) Update
}

// Vector describes one vector of an optimizer's state.
type Vector struct {
	Name  string       // in checkpoints, as in PyTorch: "exp_avg"
	DType tensor.DType // FP32 or BF16
}

// MasterName is the name of the FP32 master weights, which every rule has.
const MasterName = "master"

// vectors lists the whole state per weight, with the master weight first. It panics unless every
// vector has a unique name and a type that checkpoints support.
func vectors(rule Rule) []Vector {
	all := []Vector{{MasterName, tensor.FP32}}
	for _, v := range rule.Vectors() {
		named := func(other Vector) bool { return other.Name == v.Name }
		if v.Name == "" || strings.Contains(v.Name, "/") || slices.ContainsFunc(all, named) {
			panic(fmt.Sprintf("optim: state vector %q: give each a unique name without /", v.Name))
		}
		if v.DType != tensor.FP32 && v.DType != tensor.BF16 {
			panic(fmt.Sprintf("optim: state vector %s is %v: make it FP32 or BF16", v.Name, v.DType))
		}
		all = append(all, v)
	}
	if len(all) > tensor.MostVectors {
		panic(fmt.Sprintf("optim: a state of %d vectors: give at most %d", len(all), tensor.MostVectors))
	}
	return all
}

// BytesPerWeight returns the bytes per weight of the whole state, for parameters that this rule
// itself updates: see [Rule.Of].
func BytesPerWeight(rule Rule) (n int) {
	for _, v := range vectors(rule) {
		n += v.DType.Size()
	}
	return n
}

// classes are all classes of weights.
var classes = [...]moe.Class{moe.Single, moe.Plain, moe.Linear, moe.Expert}

// MostBytesPerWeight returns the largest [BytesPerWeight] of any class of weights.
func MostBytesPerWeight(rule Rule) (most int) {
	for _, c := range classes {
		most = max(most, BytesPerWeight(rule.Of(c)))
	}
	return most
}

// Scratch returns the bytes in the arena of an Exec that the rule's update of a [rows, cols] matrix
// takes.
func Scratch(rule Rule, rows, cols int) float64 {
	if s, ok := rule.(interface{ Scratch(rows, cols int) float64 }); ok {
		return s.Scratch(rows, cols)
	}
	return 0
}

// Step holds what all updates of a step have in common.
type Step struct {
	LR        float64
	GradScale float64 // multiplies every gradient: it clips the global norm
	Number    int     // of the step, counted from 1
}

// Update computes the new state of a run of weights from the old one, and stores the new master
// weights, rounded, in Work.
type Update func(ex *tensor.Exec, r Run)

// Run is a range of adjacent weights, or a whole parameter if the rule asks for whole matrices. All
// its tensors have one dimension and the same length.
type Run struct {
	Param *moe.Param    // the parameter; nil unless the rule asks for whole matrices
	Grad  tensor.Tensor // FP32, summed over the ranks, not clipped
	Work  tensor.Tensor // FP32 or BF16
	// The update adds the checksums of the state that it reads and writes, of the gradient and of
	// Work. Round adds those of the new master weights and of Work.
	Sums *tensor.UpdateSums

	src    state // of the whole shard, where the run is [lo, hi)
	lo, hi int
	dst    state // where the run begins at dstLo
	dstLo  int
}

// Master returns the new FP32 master weights, to be written, and the old ones. Both may be the same
// memory.
func (r Run) Master() (dst, src tensor.Tensor) { return r.vector(0) }

// Vector returns the same for vector i of the rule.
func (r Run) Vector(i int) (dst, src tensor.Tensor) { return r.vector(1 + i) }

func (r Run) vector(i int) (dst, src tensor.Tensor) {
	return r.dst[i].Slice(r.dstLo, r.dstLo+r.hi-r.lo), r.src[i].Slice(r.lo, r.hi)
}

// sumsOf returns the checksums of a linear sum that updates vector number i of the state, from the
// gradient as the second summand if grad is set.
func (r Run) sumsOf(i int, grad bool) tensor.LinearSums {
	s := tensor.LinearSums{X: &r.Sums.Read[i], Dst: &r.Sums.Wrote[i]}
	if grad {
		s.Y = &r.Sums.Grad
	}
	return s
}

// Round rounds the new master weights to Work, for an update that has not done so itself.
func (r Run) Round(ex *tensor.Exec) {
	master, _ := r.Master()
	tensor.RoundWeights(ex, r.Work, master, &r.Sums.Work, &r.Sums.Wrote[0])
}
