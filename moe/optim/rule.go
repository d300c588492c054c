package optim

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/moe"
	"spmoe/tensor"
)

// A Rule is the algorithm of an optimizer: the state that it keeps of every weight, and how a step
// changes weights and state. Master weights, shards, clipping and collectives are the
// [Optimizer]'s.
type Rule interface {
	// Validate reports the first setting that cannot be.
	Validate() error
	// Vectors lists the state that the rule keeps besides the master weights: one element of each
	// vector per weight.
	Vectors() []Vector
	// WholeMatrices says whether an update needs all of a parameter, which one rank then owns.
	WholeMatrices() bool
	// Prepare returns the update of a step, which several threads may call at once, each for a run
	// of its own.
	Prepare(s Step) Update
}

// Vector describes one vector of an optimizer's state.
type Vector struct {
	Name  string       // in checkpoints, as PyTorch has it: "exp_avg"
	DType tensor.DType // FP32 or BF16
}

// MasterName is the name of the FP32 master weights, which every rule has.
const MasterName = "master"

// vectors lists the whole state that is kept of a weight: its master weight first. It panics unless
// every vector has a name of its own and a type that checkpoints hold.
func vectors(rule Rule) []Vector {
	all := []Vector{{MasterName, tensor.FP32}}
	for _, v := range rule.Vectors() {
		named := func(other Vector) bool { return other.Name == v.Name }
		if v.Name == "" || strings.Contains(v.Name, "/") || slices.ContainsFunc(all, named) {
			panic(fmt.Sprintf("optim: a state vector called %q: give each another name, without /", v.Name))
		}
		if v.DType != tensor.FP32 && v.DType != tensor.BF16 {
			panic(fmt.Sprintf("optim: state vector %s is %v: make it FP32 or BF16", v.Name, v.DType))
		}
		all = append(all, v)
	}
	return all
}

// BytesPerWeight returns the bytes of the whole state that is kept of a weight.
func BytesPerWeight(rule Rule) (n int) {
	for _, v := range vectors(rule) {
		n += v.DType.Size()
	}
	return n
}

// Step is what all updates of a step have in common.
type Step struct {
	LR        float64
	GradScale float64 // multiplies every gradient: it clips the global norm
	Number    int     // of the step, counted from 1
}

// Update makes the new state of a run of weights from the old one, and stores the new master
// weights, rounded, in Work.
type Update func(ex *tensor.Exec, r Run)

// Run is neighbouring weights, a whole parameter if the rule asks for whole matrices. All its
// tensors have one dimension and as many elements.
type Run struct {
	Param *moe.Param    // the parameter; nil unless the rule asks for whole matrices
	Grad  tensor.Tensor // FP32, summed over the ranks, not clipped
	Work  tensor.Tensor // FP32 or BF16

	dst, src state // of the whole shard
	lo, hi   int
}

// Master returns where the new FP32 master weights go and where the old ones are. Both may be the
// same memory.
func (r Run) Master() (dst, src tensor.Tensor) { return r.vector(0) }

// Vector does the same for vector i of the rule.
func (r Run) Vector(i int) (dst, src tensor.Tensor) { return r.vector(1 + i) }

func (r Run) vector(i int) (dst, src tensor.Tensor) {
	return r.dst[i].Slice(r.lo, r.hi), r.src[i].Slice(r.lo, r.hi)
}

// Round rounds the new master weights into Work, for an update that has not done so on its way.
func (r Run) Round(ex *tensor.Exec) {
	master, _ := r.Master()
	tensor.Convert(ex, r.Work.Mat(), master.Mat())
}
