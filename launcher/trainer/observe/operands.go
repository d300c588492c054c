package observe

// The quantization error of the operands of a step, summed over its passes for the record.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// operand identifies an operand of a step.
type operand struct {
	layer  int
	linear string
	kind   moe.Operand
}

// operandPart is this rank's part of an operand.
type operandPart struct {
	format mx.Format
	QuantizationError
}

// OperandMeter measures the operands of the recorded steps.
type OperandMeter struct {
	ex      *tensor.Exec
	models  []*moe.Model
	first   bool                // of the ranks with the same models
	every   int                 // steps between records; 0: none
	disturb func(moe.Quantized) // see [Job]; may be nil
	sums    map[operand]*operandPart
	spent   time.Duration // on measuring, in the current step
}

// NewOperandMeter creates a meter that measures a step in every steps. It starts to disturb what
// the models quantize, if disturb is not nil.
func NewOperandMeter(every int, disturb func(moe.Quantized), ex *tensor.Exec, models []*moe.Model, first bool) *OperandMeter {
	m := &OperandMeter{
		ex:      ex,
		models:  models,
		first:   first,
		every:   every,
		disturb: disturb,
		sums:    map[operand]*operandPart{},
	}
	m.observe(false)
	return m
}

func (m *OperandMeter) before(step int) {
	m.spent = 0
	m.observe(m.every > 0 && recordsSums(m.every, step))
}

// observe makes the models show what they quantize, if it is to be disturbed or measured.
func (m *OperandMeter) observe(measured bool) {
	var show func(q moe.Quantized)
	if m.disturb != nil || measured {
		show = func(q moe.Quantized) {
			if m.disturb != nil && !q.Elsewhere {
				m.disturb(q)
			}
			if measured && !q.Again && !q.Received {
				m.add(q)
			}
		}
	}
	for _, model := range m.models {
		model.ObserveQuantized(show)
	}
}

// add adds an operand to the sums of the step. It counts what all ranks have once.
func (m *OperandMeter) add(q moe.Quantized) {
	defer m.ex.Enter(m.ex.Enter(profile.Rest)) // the profiler excludes this
	begin := time.Now()
	key := operand{q.Layer, q.Linear, q.Operand}
	if m.sums[key] == nil {
		m.sums[key] = &operandPart{format: q.Format}
	}
	if q.Local || m.first {
		m.sums[key].add(Measure(m.ex, q))
	}
	m.spent += time.Since(begin)
}

// Discard drops the operands of an attempt that will be repeated.
func (m *OperandMeter) Discard() { clear(m.sums) }

// take returns and clears the operands of the step, in the order of the record, which is the same
// on all ranks.
func (m *OperandMeter) take() (keys []operand, sums []operandPart) {
	for key := range m.sums {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b operand) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), strings.Compare(a.linear, b.linear), cmp.Compare(a.kind, b.kind))
	})
	for _, key := range keys {
		sums = append(sums, *m.sums[key])
	}
	clear(m.sums)
	return keys, sums
}
