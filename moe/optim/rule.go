package optim

import (
	"spmoe/moe"
	"spmoe/tensor"
)

// A Rule is the algorithm of an optimizer: its state per weight, and how a step changes weights and
// state. The [Optimizer] handles master weights, shards, clipping and collectives.
type Rule interface {
	// Validate returns an error for the first invalid setting.
	Validate() error
	// Vectors lists the rule's state besides the master weights: one element of each vector per
	// weight. There are less than [tensor.MostVectors], of unique names.
	Vectors() []Vector
	// WholeMatrices reports whether an update needs a whole parameter, which one rank then owns.
	WholeMatrices() bool
	// Of returns the rule for parameters of a class: this one, or another one for classes to which
	// it does not apply. Rules are compared with ==.
	Of(c moe.Class) Rule
	// Scratch returns the bytes in the arena of an Exec that the update of a [rows, cols] matrix
	// takes.
	Scratch(rows, cols int) float64
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

// vectors lists the whole state per weight, with the master weight first.
func vectors(rule Rule) []Vector {
	return append([]Vector{{MasterName, tensor.FP32}}, rule.Vectors()...)
}

// BytesPerWeight returns the bytes per weight of the whole state, for parameters that this rule
// itself updates: see [Rule.Of].
func BytesPerWeight(rule Rule) (n int) {
	for _, v := range vectors(rule) {
		n += v.DType.Size()
	}
	return n
}

// MostBytesPerWeight returns the largest [BytesPerWeight] of any class of weights.
func MostBytesPerWeight(rule Rule) (most int) {
	for _, c := range [...]moe.Class{moe.Single, moe.Plain, moe.Linear, moe.Expert} {
		most = max(most, BytesPerWeight(rule.Of(c)))
	}
	return most
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

// Run is a range of adjacent weights, or a whole parameter if the rule asks for whole matrices. Its
// tensors have one dimension and the same length.
type Run struct {
	Param *moe.Param    // the parameter; nil unless the rule asks for whole matrices
	Grad  tensor.Tensor // FP32, summed over the ranks, not clipped
	Work  tensor.Tensor // FP32 or BF16
	// The update adds the checksums of the state that it reads and writes, of the gradient and of
	// Work. Round adds those of the new master weights and of Work.
	Sums *tensor.UpdateSums

	dst, src state // of the whole shard, where the run is [lo, hi)
	lo, hi   int
}

// Master returns the new FP32 master weights, to be written, and the old ones. Both may be the same
// memory.
func (r Run) Master() (dst, src tensor.Tensor) { return r.vector(0) }

// Vector returns the same for vector i of the rule.
func (r Run) Vector(i int) (dst, src tensor.Tensor) { return r.vector(1 + i) }

func (r Run) vector(i int) (dst, src tensor.Tensor) {
	return r.dst[i].Slice(r.lo, r.hi), r.src[i].Slice(r.lo, r.hi)
}

// Round rounds the new master weights to Work, for an update that has not done so itself.
func (r Run) Round(ex *tensor.Exec) {
	master, _ := r.Master()
	tensor.RoundWeights(ex, r.Work, master, &r.Sums.Work, &r.Sums.Wrote[0])
}
