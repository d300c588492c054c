package trainer

import "spmoe/tensor"

// Memory is an estimate of what one rank holds, in bytes.
type Memory struct {
	Weights     int64 // working weights: all replicated ones and this rank's experts
	Gradients   int64 // FP32
	Optimizer   int64 // this rank's FP32 master weights and moments
	Activations int64 // of one forward and backward pass
}

// Total returns the sum.
func (m Memory) Total() int64 { return m.Weights + m.Gradients + m.Optimizer + m.Activations }

// EstimateMemory returns what each of n ranks needs.
func (c Config) EstimateMemory(ranks int) Memory {
	n := c.Model.Count()
	experts := n.Routed / int64(ranks)
	dtype, err := c.DType()
	if err != nil {
		dtype = tensor.FP32
	}
	held := n.Replicated + experts
	tokens := int64(max(c.microBatch(ranks), 1)) * int64(c.Seq)
	return Memory{
		Weights:     held * int64(dtype.Size()),
		Gradients:   held * 4,
		Optimizer:   (n.Replicated/int64(ranks) + experts) * 12,
		Activations: tokens * n.Activations * int64(dtype.Size()),
	}
}
