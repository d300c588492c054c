package moe

// Batch is the input of one pass of this rank.
type Batch struct {
	Inputs  []int32 // [sequences·Seq]
	Targets []int32 // [sequences·Seq]: the token after each input
	Seq     int     // tokens per sequence

	// First is optional. Its [sequences·Seq] elements are, for each token, the first position of
	// its sequence that the token attends to: the beginning of its document. Rotary positions
	// continue through the sequence, because attention depends on their differences only.
	First []int32

	// GlobalSequences is the number of sequences that one optimizer step averages over: those of
	// all ranks and of all gradient accumulation passes.
	GlobalSequences int

	// Seed and Step name the random numbers of stochastic rounding: those of the run and of this
	// step. A precision without it ignores them.
	Seed, Step uint32

	// More says that another pass of the same step follows. Until a pass without it, gradients are
	// incomplete: sums over some passes are elsewhere, and so are rows of routed experts.
	More bool

	// Shared says in an evaluation that the ranks of cp · tp have the same sequence, or none,
	// and share it. Training passes always do.
	Shared bool

	// Routes is optional: it records or replaces the choices of experts.
	Routes *Routes

	// LogProbs is optional, [sequences·Seq]: the pass sets it to the natural logarithm of the
	// probability of each target, from the prediction of the next token.
	LogProbs []float64
}

// Routes records or replaces the choices of experts of a pass. Its functions are called for each
// layer with experts, by the model's number of the layer, in the order of the forward pass. A
// recomputation does not record. The slices hold [tokens, topK] and must not be changed.
type Routes struct {
	// Replay, if not nil, returns distinct experts for each token of the batch, and their weights.
	// Nil weights are the router's own: the scores of these experts. The scores get
	// the gradient that they have if the router itself gives these weights to these experts. So a
	// pass that replays its own routes has its own bits. A recomputation calls Replay again, and it
	// must return the same.
	Replay func(layer int) (experts []int32, weights []float32)

	// Record, if not nil, receives what the pass uses. The slices are valid during the call.
	Record func(layer int, experts []int32, weights []float32)
}
