package trainer

import (
	"spmoe/moe"
	"spmoe/tensor"
)

// Memory is an estimate of what one rank holds, in bytes.
type Memory struct {
	Weights     int64 // working weights: all replicated ones and this rank's experts, quantised copies included
	Gradients   int64 // FP32
	Optimizer   int64 // this rank's FP32 master weights and moments
	Activations int64 // of one forward and backward pass
	Snapshot    int64 // copy of the optimizer's state that is saved while training goes on
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Optimizer + m.Activations + m.Snapshot
}

// EstimateMemory returns what each of n ranks needs.
func (c Config) EstimateMemory(ranks int) Memory {
	n := c.Model.Count()
	experts := n.Routed / int64(ranks)
	precision, err := c.precision()
	if err != nil {
		precision = moe.Unquantized(tensor.FP32)
	}
	dtype := precision.DType
	held := n.Replicated + experts
	// A quantised matrix has a byte for each element in each of two directions.
	var codes int64
	if precision.Linears != nil {
		codes += 2 * (n.Replicated - 2*int64(c.Model.Vocab)*int64(c.Model.Dim))
	}
	if precision.Experts != nil {
		codes += 2 * experts
	}
	optimizer := product(n.Replicated/int64(ranks)+experts, 12)
	var snapshot int64
	if c.copies() {
		snapshot = optimizer
	}
	return Memory{
		Weights:     product(held, int64(dtype.Size())) + max(codes, 0),
		Gradients:   product(held, 4),
		Optimizer:   optimizer,
		Activations: product(int64(max(c.microBatch(ranks), 1)), int64(c.Seq), n.Activations, int64(dtype.Size())),
		Snapshot:    snapshot,
	}
}

// product multiplies sizes, which users choose: what is beyond any machine stays at 2^56, so
// that sums of products do not overflow.
func product(factors ...int64) int64 {
	const most = 1 << 56
	p, estimate := int64(1), 1.0
	for _, f := range factors {
		p *= f
		estimate *= float64(f)
	}
	if estimate > most {
		return most
	}
	return p
}

// Heap is the bytes of shared memory that a rank of the job may use if it is a process: room for an estimate that is too low, of which
// only what is used is taken.
func (j *Job) Heap() int64 { return 4*j.cfg.EstimateMemory(j.ranks).Total() + 1<<30 }

// Vault is the bytes of each rank that outlive it if it is a process: two states of the optimizer, whose parts are rounded up.
func (j *Job) Vault() int64 {
	const groups, multiple = 3, 4096
	state := j.cfg.EstimateMemory(j.ranks).Optimizer/4 + 3*groups*multiple
	return keeperBytes(j.cfg.Model, int(state))
}
