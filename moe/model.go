// Package moe is a DeepSeek-V3-style Mixture-of-Experts language model (arXiv:2412.19437):
// multi-head latent attention, routed and shared experts, auxiliary-loss-free balancing and
// multi-token prediction, with forward and backward passes written by hand, side by side.
//
// A Model is what one rank holds: all replicated weights and its own experts. Its passes are
// collective: all ranks of the communicator run them together, since their tokens visit each
// other's experts. A rank without tokens takes part with an empty batch.
package moe

import (
	"fmt"
	"math"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Model is one rank's part of a model.
type Model struct {
	Config Config
	Groups []*Group // all parameters

	// Recompute says what training passes make anew instead of keeping it. It may change between passes.
	Recompute Recompute

	precision Precision
	embedding weight // [vocab, dim]
	blocks    []*block
	norm      *rmsNorm
	output    output
	mtp       *mtp // nil without it

	sequences []sequenceLoss     // of the pass under way
	measured  []sequenceLoss     // those of them that the last pass had
	embedded  [2]tensor.Embedded // gradients of the embedding's rows, in the pass under way

	observer  func(name string, t tensor.Tensor)
	operands  operands
	spare     tensor.Arena // of what is brief in a forward pass
	gathering gathering
	ranks     int
}

// New builds this rank's part of a model for sequences of up to seq tokens, computing in the
// given precision. Weights are zero until they are initialised or loaded; see Group.Refresh.
//
// The exchange serves all Mixture-of-Experts layers; nil means ep.OneSided. The number of ranks
// must divide the experts.
func New(cfg Config, precision Precision, seq int, c *collective.Comm, exchange ep.Exchange) (*Model, error) {
	return build(newBuilder(precision), cfg, seq, c, exchange)
}

// NewInference is New for a model that is not trained: it has no memory for gradients, and Train panics.
func NewInference(cfg Config, precision Precision, seq int, c *collective.Comm, exchange ep.Exchange) (*Model, error) {
	b := newBuilder(precision)
	b.inference = true
	return build(b, cfg, seq, c, exchange)
}

func build(b *builder, cfg Config, seq int, c *collective.Comm, exchange ep.Exchange) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if seq < 1 || seq > cfg.MaxPositions {
		return nil, fmt.Errorf("the sequence length is %d: give 1 to %d (model.max_positions)", seq, cfg.MaxPositions)
	}
	if exchange == nil && cfg.MoELayers() > 0 {
		var err error
		if exchange, err = ep.NewOneSided(c, cfg.Experts); err != nil {
			return nil, err
		}
	}
	m := &Model{Config: cfg, precision: b.precision, ranks: c.Size()}
	b.operands = &m.operands
	if c.Shared() {
		b.memory = c.Allocator()
	}
	at := place{c, timed{exchange}}
	rope := cfg.rotaryTable(seq)
	b.matrix(&m.embedding, "model.embed_tokens", cfg.Vocab, cfg.Dim, Init{Kind: Normal, Std: 1})
	for i := range cfg.Layers {
		m.blocks = append(m.blocks, newBlock(b, cfg, at, i, rope))
	}
	m.norm = newNorm(b, "model.norm", cfg.Dim, cfg.NormEps)
	b.matrix(&m.output.weight, "lm_head", cfg.Vocab, cfg.Dim, headInit(cfg.Dim))
	if cfg.MTPLayers > 0 {
		m.mtp = newMTP(b, cfg, at, rope)
	}
	m.Groups = b.groups()
	return m, nil
}

// Observe calls f with the activations of later passes: "layer0_attention", "layer0_mlp_in", "layer1_topk_index"
// (int32) and so on. They are valid during the call only. A nil f ends it.
func (m *Model) Observe(f func(name string, t tensor.Tensor)) { m.observer = f }

// Batch is what one pass of this rank reads.
type Batch struct {
	Inputs  []int32 // [sequences·Seq]
	Targets []int32 // [sequences·Seq]: the token after each input
	Seq     int     // tokens of a sequence

	// First, unless it is nil, is [sequences·Seq]: the position of its sequence from which on a token sees, the beginning of its document.
	// Rotary positions go on through a sequence: attention depends on their differences alone.
	First []int32

	// GlobalSequences is the number of sequences that one optimizer step averages over: those
	// of all ranks and of all gradient accumulation passes.
	GlobalSequences int

	// More says that another pass of the same step follows. Until one without it the gradients of routed experts may be incomplete: they
	// are made for several passes at once, [Config.GatheredPasses], and have other bits than those of pass after pass.
	More bool
}

// Loss is what a pass measured, as sums over this rank's tokens. They add up to the same bits however sequences are spread over ranks
// and passes, but for Balance, which wants one pass and 2^i sequences a rank: it is a tree over sequences, as the sum over ranks of
// [collective.AllReduce] is.
type Loss struct {
	Sum       float64 // cross-entropy, nats; each sequence's is rounded to 2^-24, so that sums are exact up to 2^29
	Tokens    int
	MTP       float64 // the same of the MTP module, before its weight
	MTPTokens int
	Balance   float64 // this rank's part of the balance loss, its weight and mean included
	Dropped   int     // choices of experts that had no room for them; 0 unless the exchange has a capacity
}

// pass is one run through the model.
type pass struct {
	ex       *tensor.Exec
	batch    Batch
	train    bool
	weight   float64 // of the MTP loss
	loss     Loss
	layer    int
	observer func(name string, t tensor.Tensor)
	decoding *decoding // nil: sequences are computed as a whole

	recompute Recompute
	again     bool          // activations are made anew, in the backward pass
	spare     *tensor.Arena // of what is brief; nil: that of ex
	aside     bool          // ex has changed arenas with it
	gathering *gathering    // nil: weight gradients are made of this pass alone

	sequences []sequenceLoss // of this rank
}

// sequenceLoss is the parts of Loss that are sums over the tokens of one sequence.
type sequenceLoss struct{ main, mtp, balance float64 }

// of is the cross-entropy of the model or of its MTP module.
func (l *sequenceLoss) of(mtp bool) *float64 {
	if mtp {
		return &l.mtp
	}
	return &l.main
}

// sum completes the loss from those of the sequences, which it overwrites.
func (p *pass) sum() Loss {
	all := p.sequences
	for _, l := range all {
		p.loss.Sum += rounded(l.main)
		p.loss.MTP += rounded(l.mtp)
	}
	for far := 1; far < len(all); far *= 2 {
		for i := 0; i+far < len(all); i += 2 * far {
			all[i].balance += all[i+far].balance
		}
	}
	if len(all) > 0 {
		p.loss.Balance = all[0].balance
	}
	return p.loss
}

// rounded is a sequence's loss as it is added to others: see Loss.
func rounded(loss float64) float64 { return math.RoundToEven(loss*0x1p24) * 0x1p-24 }

func (p *pass) observe(name string, t tensor.Tensor) {
	if p.observer != nil && !p.again {
		p.observer(fmt.Sprintf("layer%d_%s", p.layer, name), t)
	}
}

// scale is the gradient of the mean loss for one token's cross-entropy, scaleMTP that of the MTP module.
func (p *pass) scale() float32 { return 1 / float32(p.batch.GlobalSequences*p.batch.Seq) }

func (p *pass) scaleMTP() float32 {
	return float32(p.weight / float64(p.batch.GlobalSequences*max(p.batch.Seq-1, 1)))
}

// Train runs forward and backward and adds to all gradients those of the objective, or sets them after [Group.ZeroGrad],
//
//	mean cross-entropy + MTPWeight·mean MTP cross-entropy + balance loss,
//
// the means over the global batch. It is collective.
func (m *Model) Train(ex *tensor.Exec, b Batch) (Loss, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	defer ex.Enter(ex.Enter(profile.Rows))
	p := m.newPass(ex, b, true)
	p.gathering = m.gather(b)
	h, err := m.hidden(p)
	if err != nil {
		return p.loss, err
	}
	dh := like(ex, h)
	if err := m.predict(p, h, dh); err != nil {
		return p.loss, err
	}
	embedded := append(m.embedded[:0], tensor.Embedded{Grad: dh.Mat(), IDs: b.Inputs})
	if m.mtp != nil {
		targets, err := m.mtp.backward(p, dh)
		if err != nil {
			return p.loss, err
		}
		embedded = append(embedded, targets)
	}
	for i := len(m.blocks) - 1; i >= 0; i-- {
		if err := m.blocks[i].backward(p, dh); err != nil {
			return p.loss, err
		}
	}
	tensor.EmbedBackward(ex, m.embedding.sum(ex).Mat(), b.Seq, embedded)
	if m.gathering.due {
		for _, g := range m.Groups {
			g.completeGrad(ex)
		}
	}
	m.gathering.next()
	return p.sum(), nil
}

// Eval runs forward and returns the loss. It is collective.
func (m *Model) Eval(ex *tensor.Exec, b Batch) (Loss, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	p := m.newPass(ex, b, false)
	h, err := m.hidden(p)
	if err != nil {
		return p.loss, err
	}
	if err := m.predict(p, h, tensor.Tensor{}); err != nil {
		return p.loss, err
	}
	return p.sum(), nil
}

// Logits returns the scores of the next token after each input: [len(inputs), vocab] FP32, in
// the arena of ex. inputs are sequences of seq tokens. It is collective.
func (m *Model) Logits(ex *tensor.Exec, inputs []int32, seq int) (tensor.Tensor, error) {
	h, err := m.hidden(m.newPass(ex, Batch{Inputs: inputs, Seq: seq, GlobalSequences: 1}, false))
	if err != nil {
		return tensor.Tensor{}, err
	}
	return m.output.logits(ex, m.norm.forward(ex, h.Mat())), nil
}

// SequenceLosses returns the cross-entropies of the sequences of the last Train or Eval of this rank, in nats, each summed
// over its tokens. They are valid until the next pass.
func (m *Model) SequenceLosses(yield func(i int, nats float64) bool) {
	for i, l := range m.measured {
		if !yield(i, rounded(l.main)) {
			return
		}
	}
}

func (m *Model) newPass(ex *tensor.Exec, b Batch, train bool) *pass {
	n := len(b.Inputs) / b.Seq
	if cap(m.sequences) < n {
		m.sequences = make([]sequenceLoss, n)
	}
	p := &pass{ex: ex, batch: b, train: train, weight: m.Config.MTPWeight, observer: m.observer, sequences: m.sequences[:n], recompute: m.Recompute}
	if train && m.Recompute == RecomputeSelective {
		m.spare.Allocator, p.spare = ex.Allocator, &m.spare
	}
	clear(p.sequences)
	m.measured = p.sequences
	return p
}

// hidden returns the last hidden state, before the final norm: [tokens, dim].
func (m *Model) hidden(p *pass) (tensor.Tensor, error) {
	h := p.ex.New(m.precision.DType, len(p.batch.Inputs), m.Config.Dim)
	tensor.Embed(p.ex, h.Mat(), m.embedding.W.Mat(), p.batch.Inputs)
	for _, l := range m.blocks {
		var err error
		if h, err = l.forward(p, h); err != nil {
			return h, err
		}
	}
	return h, nil
}

// predict measures the losses of all tokens, given the last hidden state, and in training sets dh to its gradient.
func (m *Model) predict(p *pass, h, dh tensor.Tensor) error {
	p.loss.Tokens = len(p.batch.Targets)
	all := [2]prediction{{norm: m.norm, h: h, dh: dh, targets: p.batch.Targets, scale: p.scale()}}
	n := 1
	if m.mtp != nil {
		var err error
		if all[1], err = m.mtp.forward(p, &m.embedding, h); err != nil {
			return err
		}
		n = 2
	}
	m.output.forward(p, all[:n])
	return nil
}

// Params returns all parameters of this rank, in a fixed order.
func (m *Model) Params() []*Param {
	var all []*Param
	for _, g := range m.Groups {
		all = append(all, g.Params...)
	}
	return all
}

// ZeroGrad is [Group.ZeroGrad] of all groups.
func (m *Model) ZeroGrad() {
	for _, g := range m.Groups {
		g.ZeroGrad()
	}
}
