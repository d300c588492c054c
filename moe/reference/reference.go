// Package reference computes each kind of layer of a mixture-of-experts model from its formula,
// forward and backward, in float64. It is a second implementation: it shares nothing with the
// layers that train. It runs a module on any input, so that another program's training step can be
// judged module by module. On request it rounds as that program does, and makes one known mistake.
package reference

// Tensor is a dense row-major array.
type Tensor struct {
	Dims []int
	Data []float64
}

// Port is a tensor that a module reads or makes, and its gradient. The names are those of a step
// folder: model.layers.3.self_attn.input and model.layers.3.self_attn.grad_input.
type Port struct {
	Name, Grad string
	// The port is columns [Lo, Hi) of that tensor, or all if Hi is 0.
	Lo, Hi int
}

// Kind is a kind of module.
type Kind string

const (
	Embedding Kind = "embedding" // a row for each token
	Norm      Kind = "norm"      // of the hidden state, a latent, or each head
	Linear    Kind = "linear"    // a projection, with its bias if it has one
	Rotary    Kind = "rotary"    // the tables of the rotary embedding
	Core      Kind = "core"      // attention without its projections and norms
	Attention Kind = "attention" // with them
	Act       Kind = "act"       // silu(gate)·up
	MLP       Kind = "mlp"       // a dense layer's, or the shared experts
	Router    Kind = "router"    // scores, choice and weights of experts
	Experts   Kind = "experts"   // the routed ones, weighted and summed
	MoE       Kind = "moe"       // router, routed experts and shared experts
	Block     Kind = "block"     // a whole layer
	Head      Kind = "head"      // from the input of the final norm to the loss
	Loss      Kind = "loss"      // from the logits to the loss
	Balance   Kind = "balance"   // a loss of router logits
	// Outputs[0] is the sum of the inputs. The ports of Path.grad are gradients.
	Residual Kind = "residual" // a sum of branches
	Handover Kind = "handover" // what arrives
)

// Module is a part of a model with names for all that enters and leaves it.
type Module struct {
	Path            string
	Kind            Kind
	Layer           int // -1: none
	Inputs, Outputs []Port
	Params          []string // as Hugging Face names them; of experts one by one
	Buffers         []string // which have no gradient
	Children        []string // paths of the finer modules inside it

	config  *Config
	widths  []int  // of the inputs' rows; the last one holds for all further inputs, none: any
	formula string // a balance loss's
}

// Call is one run of a module.
type Call struct {
	In    []Tensor // one per input of the module, [batch·seq, width] in any dimensions
	Param func(name string) (Tensor, error)
	Batch *Batch
	// Choices replays a router: PATH.indices and, for capacity drops, PATH.kept (0: dropped), both
	// [tokens, k]. Without them, the module chooses. It also replays the tables of the rotary
	// embedding: model.rotary_emb.output and .output.1.
	Choices map[string]Tensor
	// Tokens selects rows of the inputs of a module of one token each (Kind.TokenWise), and
	// Sequences selects sequences of any other. The outputs have only those rows. nil: all.
	Tokens, Sequences []int
	Rounding          Rounding
	Fast              bool   // sums of large products may be FP32: for runs in BF16
	Mistake           string // "", or the name of one of Mistakes; "experts_swapped:3,7" says which
}

// TokenWise reports whether every row of the output comes from the same row of the inputs.
func (k Kind) TokenWise() bool {
	switch k {
	case Rotary, Core, Attention, Block, Head, Loss, Balance:
		return false
	}
	return true
}

// Pass is a module's forward pass, ready for its backward pass.
type Pass struct {
	Out []Tensor
	// Extra holds what a module computes besides, by name: a router's "scores" [tokens, experts],
	// "choice" (scores with the selection bias), "groups" [tokens, groups] and "indices" [tokens,
	// k] of its own, whatever Choices replayed, and after Backward "logits.grad".
	Extra map[string]Tensor

	formula *formula
	in, out []*node
}
