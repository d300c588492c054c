// Package pipeline has the schedules of pipeline parallelism, as data. It moves nothing and
// computes nothing: an executor runs its lists.
//
// A model is cut into stages, numbered from the embedding on. A batch is cut into micro-batches.
// A schedule says for each rank, action by action, which micro-batch passes which of its stages.
// Names and notation are those of torch.distributed.pipelining.
package pipeline

import (
	"fmt"
	"strconv"
)

// Kind is what an action does.
type Kind uint8

// The kinds. A backward pass is one action B, or I and later W.
const (
	Forward    Kind = iota // F
	Backward               // B: I and W at once
	InputGrad              // I: the gradient of the stage's input
	WeightGrad             // W: the gradient of the stage's weights
	ReduceGrad             // REDUCE_GRAD: the sum of a stage's gradients over ranks, after all micro-batches
)

var kindNames = [...]string{"F", "B", "I", "W", "REDUCE_GRAD"}

// String returns torch's name.
func (k Kind) String() string { return kindNames[k] }

// Action is one computation of a rank.
type Action struct {
	Stage      int
	Kind       Kind
	Microbatch int // 0 for ReduceGrad
}

// String returns the action in torch's notation, such as 3F0.
func (a Action) String() string {
	if a.Kind == ReduceGrad {
		return strconv.Itoa(a.Stage) + a.Kind.String()
	}
	return fmt.Sprintf("%d%v%d", a.Stage, a.Kind, a.Microbatch)
}

// Slot is what a rank does at once: nothing, which is a bubble; one action; or a forward and a
// backward pass of different micro-batches, whose work overlaps.
type Slot []Action

// IsPair reports whether the slot is a pair.
func (s Slot) IsPair() bool { return len(s) == 2 }

const overlapSuffix = "OVERLAP_F_B"

// String returns the slot in torch's notation, such as (0F7;7B3)OVERLAP_F_B. A bubble is empty.
func (s Slot) String() string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return s[0].String()
	}
	return fmt.Sprintf("(%v;%v)%s", s[0], s[1], overlapSuffix)
}
