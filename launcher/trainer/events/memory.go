package events

import (
	"cmp"
	"slices"
)

// Largest returns the name and the size of the largest part.
func (m Memory) Largest() (name string, size int64) {
	type part struct {
		name string
		size int64
	}
	most := slices.MaxFunc([]part{
		{"the weights", m.Weights}, {"the gradients", m.Gradients}, {"the optimizer's state", m.Optimizer},
		{"activations", m.Activations}, {"the copy that is saved while training continues", m.Snapshot},
		{"the program with its text and processes", m.Process},
	}, func(a, b part) int { return cmp.Compare(a.size, b.size) })
	return most.name, most.size
}

// Memory is an estimate of the memory of one rank, in bytes.
type Memory struct {
	// working weights with their quantized forms: this rank's experts, norms, and its share of the
	// dense weights, which exist once on a host
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"` // FP32, of the same weights
	// this rank's FP32 master weights and the vectors of its rule
	Optimizer int64 `json:"optimizer"`
	// what a pass saves for its backward pass, and the most scratch memory at once
	Activations int64 `json:"activations"`
	// copy of the optimizer's state that is saved while training continues
	Snapshot int64 `json:"snapshot"`
	// this rank's share of everything else in the process of goroutine ranks: see processBytes
	Process int64 `json:"process"`
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Optimizer + m.Activations + m.Snapshot + m.Process
}

// Plus adds two estimates, part by part. Each sum is capped like its parts.
func (m Memory) Plus(o Memory) Memory {
	return Memory{
		min(m.Weights+o.Weights, MostBytes), min(m.Gradients+o.Gradients, MostBytes), min(m.Optimizer+o.Optimizer, MostBytes),
		min(m.Activations+o.Activations, MostBytes), min(m.Snapshot+o.Snapshot, MostBytes),
		min(m.Process+o.Process, MostBytes),
	}
}

// MostBytes is beyond any machine, and small enough that sums of estimates do not overflow.
const MostBytes = 1 << 56

// Product multiplies sizes, which users choose. It is capped at mostBytes, so that sums of products
// do not overflow.
func Product(factors ...int64) int64 {
	p, estimate := int64(1), 1.0
	for _, f := range factors {
		p *= f
		estimate *= float64(f)
	}
	if estimate > MostBytes {
		return MostBytes
	}
	return p
}

// Times returns the memory of n ranks.
func (m Memory) Times(n int) Memory {
	by := int64(n)
	return Memory{
		Product(m.Weights, by), Product(m.Gradients, by), Product(m.Optimizer, by),
		Product(m.Activations, by), Product(m.Snapshot, by), Product(m.Process, by),
	}
}
