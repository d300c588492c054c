package state

// Memory that lasts, with the checksums that it had when it was written. See also optim.Summed.

import (
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Memory lists the memory of a rank that passes read and do not write. Working weights are not in
// it if the optimizer has their checksums.
type Memory struct {
	Constants []optim.Summed // rotary tables, then Biases
	Biases    []optim.Summed // of the selection, which the end of a step moves
	Quantized []optim.Summed // working weights, which the update publishes
}

// NewMemory lists the memory of a rank, without checksums.
func NewMemory(s *TrainState) (m Memory) {
	for _, model := range s.Models() {
		for _, t := range model.Tables() {
			m.Constants = append(m.Constants, optim.NewSummed("a rotary table", t))
		}
	}
	tables := len(m.Constants)
	for _, route := range s.Balancer.Routings {
		m.Constants = append(m.Constants, optim.NewSummed("the selection biases of "+route.Name, route.Bias))
	}
	m.Biases = m.Constants[tables:]
	for _, group := range s.Groups() {
		if !group.Quantized() {
			continue
		}
		add := func(t tensor.Tensor) bool {
			m.Quantized = append(m.Quantized, optim.NewSummed(group.Name+" weights", t))
			return true
		}
		group.OwnWeights(add)
	}
	return m
}
