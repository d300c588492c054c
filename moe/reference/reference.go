// Package reference computes each kind of layer of a mixture-of-experts model from its formula,
// forward and backward, in float64. It is a second implementation: it shares nothing with the
// layers that train. It runs a module on any input, so that another program's training step can be
// judged module by module. On request it rounds as that program does, and makes one known mistake.
package reference

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// Tensor is a dense row-major array.
type Tensor struct {
	Dims []int
	Data []float64
}

// Kind is a kind of module.
type Kind string

// The coarse kinds have no formula of their own: they run the finer modules inside them.
const (
	Embedding Kind = "embedding" // a row for each token
	Norm      Kind = "norm"      // of the hidden state, a latent, or each head
	Linear    Kind = "linear"    // a projection, with its bias if it has one
	Rotary    Kind = "rotary"    // the tables of the rotary embedding
	Core      Kind = "core"      // attention without its projections and norms
	Attention Kind = "attention" // coarse
	Act       Kind = "act"       // silu(gate)·up
	MLP       Kind = "mlp"       // coarse: a dense layer's, or the shared experts
	Router    Kind = "router"    // scores, choice and weights of experts
	Experts   Kind = "experts"   // the routed ones, weighted and summed
	MoE       Kind = "moe"       // coarse: router, routed experts and shared experts
	Block     Kind = "block"     // coarse: a whole layer
	Head      Kind = "head"      // coarse: from the input of the final norm to the loss
	Model     Kind = "model"     // coarse: everything, from the batch alone
	LayerNorm Kind = "layernorm" // of the keys of an indexer
	Indexer   Kind = "indexer"   // coarse: scores the keys of each query
	Index     Kind = "index"     // the scores, from the queries, keys and weights of an indexer
	IndexLoss Kind = "index_loss"
	Grouped   Kind = "grouped"   // a projection of several groups
	Hyper     Kind = "hyper"     // weights of residual streams, and their sum for a branch
	HyperHead Kind = "hyperhead" // the sum of the streams at the end
	Expand    Kind = "expand"    // a hidden state becomes streams
	Mix       Kind = "mix"       // streams behind a branch, or the gradients of those of a layer
	Pool      Kind = "pool"      // windows of tokens become entries
	Loss      Kind = "loss"      // from the logits to the loss
	Balance   Kind = "balance"   // a loss of router logits
	Residual  Kind = "residual"  // a sum of branches, or of their gradients
	Handover  Kind = "handover"  // what arrives, or the sum of what the readers of a tensor send back
)

// TokenWise reports whether every row of the output comes from the same row of the inputs.
func (k Kind) TokenWise() bool {
	return !slices.Contains([]Kind{Rotary, Core, Attention, Block, Head, Model, Loss, Balance, Indexer, Index, IndexLoss, Pool}, k)
}

// loss reports whether a module's output is a loss, whose gradient comes from the call.
func (k Kind) loss() bool { return k == Loss || k == Head || k == Balance || k == IndexLoss }

// Choice returns the path of what a module chooses, or "": PATH.indices in a folder.
func (m *Module) Choice() string {
	if m.Kind != Router && !m.ChoosesKeys() {
		return ""
	}
	return strings.TrimSuffix(m.Path, ".index")
}

// ChoosesKeys reports whether a module chooses the keys of queries.
func (m *Module) ChoosesKeys() bool { return m.Kind == Index || m.Kind == Indexer }

// Glue reports whether a module has no formula of its own: it only says what equals what.
func (k Kind) Glue() bool { return k == Residual || k == Handover || k == Mix }

// Call is one run of a module. All tensors have rows for all tokens of the batch.
type Call struct {
	// Given returns a tensor of the run by name: inputs, the gradients of outputs, and PATH.indices
	// and PATH.kept (0: dropped) of routers and indexers, [tokens, k]. Without choices, the module
	// makes its own.
	Given func(name string) (Tensor, bool)
	Param func(name string) (Tensor, error)
	Batch *Batch
	// Tokens selects rows for a module of one token each (Kind.TokenWise), and Sequences selects
	// sequences for any other. The results have only those rows. nil: all.
	Tokens, Sequences []int
	Warmup            bool               // the first stage of an indexer's training: attention is dense
	Backward          bool               // runs backward, if the gradients of all outputs are given
	Losses            map[string]float64 // the gradient at each loss, by path: {"loss": 1}
	Rounding          Rounding
	Fast              bool   // sums of large products may be FP32: for runs in BF16
	Mistake           string // "", or the name of one of Mistakes; "experts_swapped:3,7" says which
}

// Rows returns the selected rows, or nil for all.
func (c *Call) Rows(kind Kind) (rows []int) {
	if kind.TokenWise() || c.Sequences == nil {
		return c.Tokens
	}
	for _, s := range c.Sequences {
		rows = append(rows, span(s*c.Batch.Seq, (s+1)*c.Batch.Seq)...)
	}
	return rows
}

// Batch is what the step trained on. All slices are [Batch·Seq].
type Batch struct {
	Batch, Seq    int
	IDs, Labels   []int32 // label -100: no target
	LabelsShifted bool    // label i is the target of token i, not that of token i-1
	Positions     []int32 // nil: 0, 1, … in each sequence
	Documents     []int32 // tokens see their own document only; nil: by Positions, or one
	Mask          []int32 // 0: padding; nil: none
	Reduction     string  // "mean" over all targets (also ""), "sum", or "sequence": mean of means
}

// sequences returns the batch of some of its sequences.
func (b *Batch) sequences(which []int) *Batch {
	part := *b
	part.Batch, part.Documents = len(which), b.documents()
	for _, field := range []*[]int32{&part.IDs, &part.Labels, &part.Positions, &part.Documents, &part.Mask} {
		var some []int32
		for _, s := range which {
			if *field != nil {
				some = append(some, (*field)[s*b.Seq:(s+1)*b.Seq]...)
			}
		}
		*field = some
	}
	return &part
}

// documents returns the document of each token. Without them, and without a mask, positions that
// do not follow each other begin a document, as in transformers.
func (b *Batch) documents() []int32 {
	if b.Documents != nil || b.Positions == nil || b.Mask != nil {
		return b.Documents
	}
	documents := make([]int32, len(b.Positions))
	for i := 1; i < len(documents); i++ {
		documents[i] = documents[i-1]
		if i%b.Seq != 0 && b.Positions[i] != b.Positions[i-1]+1 {
			documents[i]++
		}
	}
	return documents
}

// shifted returns the values of the tokens some places later in each sequence, or -100.
func (b *Batch) shifted(values []int32, by int) []int32 {
	later := make([]int32, len(values))
	for i := range later {
		later[i] = -100
		if at := i%b.Seq + by; at >= 0 && at < b.Seq {
			later[i] = values[i+by]
		}
	}
	return later
}

// rolled returns the values of the tokens some places later, in a circle in each sequence.
func (b *Batch) rolled(values []int32, by int) []int32 {
	later := make([]int32, len(values))
	for i := range later {
		later[i] = values[i-i%b.Seq+((i+by)%b.Seq+b.Seq)%b.Seq]
	}
	return later
}

// ahead returns the ids of the tokens some places later. Labels say what follows a sequence, if
// they are shifted; else nothing does, and the id is 0.
func (b *Batch) ahead(ids []int32, by int) []int32 {
	for range by {
		later := b.shifted(ids, 1)
		for i := b.Seq - 1; i < len(later); i += b.Seq {
			later[i] = 0
			if b.LabelsShifted && by == 1 {
				later[i] = max(b.Labels[i], 0)
			}
		}
		ids = later
	}
	return ids
}

// Mistake is a known fault of training programs, which Call.Mistake makes on purpose. The formulas
// ask for it by name.
type Mistake struct {
	Name  string
	Says  string // one sentence, for a verdict
	Kinds []Kind // of the modules that can have it
}

//go:embed mistakes.tsv
var mistakes string // lines of name, finest kinds, sentence

// Mistakes returns all known mistakes.
func Mistakes() (all []Mistake) {
	for line := range strings.Lines(mistakes) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		m := Mistake{Name: fields[0], Says: fields[2]}
		for kind := range strings.SplitSeq(fields[1], ",") {
			m.Kinds = append(m.Kinds, Kind(kind))
		}
		for _, inside := range [][2]Kind{
			{Rotary, Core}, {Core, Attention}, {Norm, Attention}, {Linear, Attention}, {Act, MLP}, {Act, Experts}, {Experts, MoE}, {MLP, MoE},
			{Index, Indexer}, {LayerNorm, Indexer}, {Indexer, Attention}, {Router, MoE}, {Attention, Block}, {MLP, Block}, {MoE, Block}, {Residual, Block}, {Norm, Head}, {Loss, Head},
			{Pool, Attention}, {Rotary, Pool}, {Rotary, Index}, {Hyper, Block}, {Mix, Block}, {HyperHead, Head},
		} {
			if slices.Contains(m.Kinds, inside[0]) && !slices.Contains(m.Kinds, inside[1]) {
				m.Kinds = append(m.Kinds, inside[1])
			}
		}
		all = append(all, m)
	}
	return all
}

// detached returns x without its gradient.
func (f *formula) detached(x *node) *node {
	y := *x
	y.grad, y.fixed = nil, true
	return &y
}

// parseMistake splits a mistake from the numbers of experts, or the constant, that it is about.
func (f *formula) parseMistake(full string) error {
	name, numbers, _ := strings.Cut(full, ":")
	f.mistake, f.numbers = name, [2]float64{0, 1}
	if _, err := fmt.Sscanf(numbers+",1", "%g,%g", &f.numbers[0], &f.numbers[1]); numbers != "" && err != nil {
		return fmt.Errorf("mistake %q: expected a number, or numbers of experts, behind the colon", full)
	}
	return nil
}
