package moe

// Stages of a pipeline. A model can be cut into parts that run on different ranks. A whole model is
// one stage, and has the same code.
//
// Parameters have the names of the whole model, and layers its numbers. The sequences of a batch
// pass the stages one after the other, and each stage gets the same Batch.

import "spmoe/tensor"

// Stage is a part of a model: layers [First, End), which may be none.
type Stage struct {
	First, End int
	Ahead      int  // of these, the last ones that predict further ahead: see Config.MTPLayers
	Embed      bool // begins with the embedding
	Predict    bool // ends with the norms before the head, the head and the loss
}

// Whole returns the stage that is the whole model.
func (c Config) Whole() Stage { return Stage{0, c.AllLayers(), c.MTPLayers, true, true} }

// Boundary holds what stages pass to each other for a batch: activations on the way forwards, and
// their gradients on the way back. Tensors are [tokens, dim] of the model's working type.
type Boundary struct {
	Hidden   tensor.Tensor // from each stage to the next
	Embedded tensor.Tensor // embedded targets, from the first stage to that with layers that predict further ahead
	Ahead    tensor.Tensor // the hidden state for that prediction, from its stage to the last one
}
