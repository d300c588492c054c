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
	"strings"
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

// parseAction is the inverse of String.
func parseAction(text string) (a Action, err error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	if a.Stage, err = strconv.Atoi(text[:digits]); err != nil {
		return a, notAnAction(text)
	}
	name := text[digits:]
	if name == ReduceGrad.String() {
		a.Kind = ReduceGrad
		return a, nil
	}
	for k := Forward; k < ReduceGrad; k++ {
		if number, ok := strings.CutPrefix(name, k.String()); ok {
			a.Kind = k
			if a.Microbatch, err = strconv.Atoi(number); err != nil || number[0] == '+' || number[0] == '-' {
				return a, notAnAction(text)
			}
			return a, nil
		}
	}
	return a, notAnAction(text)
}

func notAnAction(text string) error {
	return fmt.Errorf("%.40q is not an action: give a stage, then F, B, I or W, then a micro-batch, as in 3F0", text)
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

// parseSlot is the inverse of String.
func parseSlot(text string) (s Slot, err error) {
	if text == "" {
		return nil, nil
	}
	parts := []string{text}
	if pair, ok := strings.CutSuffix(text, ")"+overlapSuffix); ok && strings.HasPrefix(pair, "(") {
		if parts = strings.Split(pair[1:], ";"); len(parts) != 2 {
			return nil, notAnAction(text)
		}
	}
	for _, part := range parts {
		a, err := parseAction(part)
		if err != nil {
			return nil, err
		}
		s = append(s, a)
	}
	if len(s) == 2 && (s[0].Kind != Forward || s[1].Kind != Backward) {
		return nil, fmt.Errorf("%.60q: only a forward and then a backward pass overlap, as in (0F7;7B3)%s", text, overlapSuffix)
	}
	return s, nil
}
