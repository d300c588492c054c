package moe

import (
	"cmp"
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Model is one rank's part of a model.
type Model struct {
	Config Config
	Groups []*Group // all parameters

	// Recompute is the policy for recomputing activations in training passes. It may change between
	// passes.
	Recompute Recompute
	// ChainPasses adds the dense gradients of passes one after another. That needs less memory than
	// a tree, but their bits depend on the number of passes.
	ChainPasses bool

	// PassBytes is the expected size of what a pass saves. The memory of a pass is in one piece if
	// it suffices.
	PassBytes int

	precision Precision
	mesh      Mesh
	stage     Stage      // the part of the model that this is
	host      *host      // shares the dense group; nil: each rank has its own
	context   *peers     // the ranks that share each sequence; nil: none do
	tensor    *peers     // the ranks that divide products of dense layers; nil: none do
	sharded   *sharded   // the dense group, over hosts; nil: it is not sharded
	embedding weight     // [vocab, dim]; only in a stage that embeds
	blocks    []*block   // those that predict further ahead are the last ones
	norms     []*rmsNorm // of each prediction; none in a stage that does not predict
	output    output     // only in a stage that predicts

	rope *tensor.RotaryTable

	arenas   *passArenas    // of passes
	passes   []*Pass        // all passes
	idle     []*Pass        // passes that hold no state
	inFlight []*Pass        // training passes, by their places
	begun    int            // training passes of this step
	several  bool           // a pass of this step has had Batch.More
	passRows uint64         // of all ranks in a pass of this step: see locate
	zeroed   int            // total calls of Group.ZeroGrad before the current step
	measured []sequenceLoss // by the last pass

	observer func(name string, t tensor.Tensor)
	operands operands
	sums     stepSums
}

// Tables returns the memory that passes read besides weights: the rotary tables.
func (m *Model) Tables() []tensor.Tensor { return m.rope.Elements() }

// New builds this rank's part of a model for sequences of up to seq tokens, computing in the given
// precision. Weights are zero until they are initialized or loaded; see Group.Refresh.
//
// All Mixture-of-Experts layers share the exchange; nil means ep.OneSided. The number of ranks must
// divide the number of experts.
func New(cfg Config, precision Precision, seq int, c *collective.Comm, exchange ep.Exchange) (*Model, error) {
	return NewStage(OneGroup(c), cfg, precision, seq, exchange, cfg.Whole())
}

// NewInference is New for a model that is not trained: it has no memory for gradients, and Train
// panics.
func NewInference(cfg Config, precision Precision, seq int, c *collective.Comm, exchange ep.Exchange) (*Model, error) {
	mesh := OneGroup(c)
	b := newBuilder(precision, mesh)
	b.inference = true
	return build(b, mesh, cfg, seq, exchange, cfg.Whole())
}

func build(b *builder, mesh Mesh, cfg Config, seq int, exchange ep.Exchange, stage Stage) (*Model, error) {
	if err := errors.Join(cfg.Validate(), b.precision.Validate(), stage.validate(cfg)); err != nil {
		return nil, err
	}
	b.layers = cfg.Layers
	if seq < 1 || seq > cfg.MaxPositions {
		return nil, fmt.Errorf("the sequence length is %d: give 1 to %d (model.max_positions)", seq, cfg.MaxPositions)
	}
	if exchange == nil && cfg.MoELayers() > 0 {
		var err error
		if exchange, err = mesh.NewExchange("onesided", cfg.Experts, ep.Options{}); err != nil {
			return nil, err
		}
	}
	if mesh.Replicas != nil {
		if err := b.precision.CheckReplicas(); err != nil {
			return nil, err
		}
	}
	if err := b.precision.CheckContext(cfg, mesh.Layout, seq); err != nil {
		return nil, err
	}
	if err := mesh.agree(b.precision); err != nil {
		return nil, err
	}
	b.mesh = mesh
	if !b.inference {
		b.share()
	}
	m := &Model{Config: cfg, precision: b.precision, mesh: mesh, stage: stage, host: b.dense.host, arenas: &passArenas{}}
	if m.context = mesh.sequencePeers(); mesh.TP != nil {
		m.tensor = newPeers(mesh.TP, mesh.TP)
	}
	if b.dry != nil {
		m.rope, m.sums.rows.Arena = tensor.NewDryRotaryTable(seq, cfg.RopeDim/2), *b.dry.NewArena(0)
	} else {
		m.rope = cfg.rotaryTable(seq)
	}
	b.operands, b.sums = &m.operands, &m.sums
	if mesh.World.Shared() {
		b.memory = mesh.World.Allocator()
		m.sums.rows.Allocator = b.memory
	}
	m.addLayers(b, rankContext{mesh.EP, timedExchange{exchange}})
	var err error
	m.Groups, err = b.groups()
	m.sums.groups, m.output.host = m.Groups, m.host
	m.sharded = b.dense.sharded
	return m, err
}

// addLayers builds the layers of the model's stage.
func (m *Model) addLayers(b *builder, at rankContext) {
	cfg, rope := m.Config, m.rope
	if m.stage.Embed {
		b.beginUnit()
		b.matrix(&m.embedding, Embedding, "model.embed_tokens", cfg.Vocab, cfg.Dim, Init{Kind: Normal, Std: 1})
	}
	addBlocks := func(first, end int) {
		for i := first; i < end; i++ {
			if b.timesOf(i) > 0 {
				b.beginUnit()
				m.blocks = append(m.blocks, newBlock(b, cfg, cfg.layer(i), at, i, rope))
			}
		}
	}
	addBlocks(m.stage.First, m.stage.End-m.stage.Ahead)
	if m.stage.Predict {
		m.norms = append(m.norms, newNorm(b, "model.norm", cfg.Dim, cfg.NormEps))
		m.output.sizes, m.output.sum = defaultOutputSizes(), b.precision.Sum
		m.output.weight.unit = m.output.sizes.unit(cfg.Vocab)
		b.beginUnit()
		b.matrix(&m.output.weight, Head, "lm_head", cfg.Vocab, cfg.Dim, headInit(cfg.Dim))
	}
	addBlocks(m.stage.End-m.stage.Ahead, m.stage.End)
	if m.stage.Predict && cfg.MTPLayers > 0 {
		m.norms = append(m.norms, newAheadNorm(b, cfg))
	}
}

// mainBlocks returns the blocks that compute the last hidden state.
func (m *Model) mainBlocks() []*block { return m.blocks[:len(m.blocks)-m.stage.Ahead] }

// Mesh returns the communicators of the model, including one that the precision needs.
func (m *Model) Mesh() Mesh { return m.mesh }

// Observe calls f with the activations of later passes: "layer0_attention", "layer0_mlp_in",
// "layer1_topk_index" (int32) and so on. They are valid during the call only. A nil f ends it.
func (m *Model) Observe(f func(name string, t tensor.Tensor)) { m.observer = f }

// Train runs forward and backward. It adds the gradients of the objective to all gradients, or sets
// them after [Group.ZeroGrad]. The objective is
//
//	mean cross-entropy + MTPWeight·mean cross-entropy further ahead + balance loss,
//
// with means over the global batch. Train is collective.
func (m *Model) Train(ex *tensor.Exec, b Batch) (Loss, error) {
	p, err := m.Forward(ex, b)
	if err != nil {
		return Loss{}, err
	}
	loss := p.Loss()
	return loss, p.Backward(ex)
}

// Eval runs forward and returns the loss. It is collective.
func (m *Model) Eval(ex *tensor.Exec, b Batch) (Loss, error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	_, loss, err := m.EvalStage(ex, b, Boundary{})
	return loss, err
}

// Logits returns the scores of the next token after each input: [len(inputs), vocab] FP32, in
// the arena of ex. inputs are sequences of seq tokens. It is collective.
func (m *Model) Logits(ex *tensor.Exec, inputs []int32, seq int) (tensor.Tensor, error) {
	pass := m.newPass(ex, Batch{Inputs: inputs, Seq: seq, GlobalSequences: 1}, false)
	defer pass.release()
	p := pass.forwardPhase(ex)
	h, err := m.hidden(pass, p, Boundary{})
	if err != nil {
		return tensor.Tensor{}, err
	}
	if err := m.sharded.gather(ex, m.headUnit()); err != nil {
		return tensor.Tensor{}, err
	}
	return m.output.logits(ex, m.norms[0].forward(p, p.scratch, h.Mat(), &pass.norm)), nil
}

// hidden returns the last hidden state, before the final norm: [tokens, dim].
func (m *Model) hidden(pass *Pass, p phase, in Boundary) (tensor.Tensor, error) {
	if err := pass.locate(p.ex); err != nil {
		return tensor.Tensor{}, err
	}
	h, err := m.embed(p, p.batch.Inputs, in.Hidden)
	if err != nil {
		return h, err
	}
	for i := range m.mainBlocks() {
		if h, err = m.forwardBlock(pass, p, i, h); err != nil {
			return h, err
		}
	}
	return h, nil
}

// forwardBlock returns the output of a block for x: [tokens, dim].
func (m *Model) forwardBlock(pass *Pass, p phase, i int, x tensor.Tensor) (tensor.Tensor, error) {
	l := m.blocks[i]
	m.repeat(p.ex, l.times)
	defer m.repeat(p.ex, 1)
	if err := m.sharded.gather(p.ex, m.blockUnit(i)); err != nil {
		return x, err
	}
	y, err := l.forward(p, x, &pass.blocks[i])
	return y, cmp.Or(err, p.failed)
}

// embed returns the embeddings of tokens in memory of the pass: [tokens, dim]. A stage that does
// not embed copies what an earlier one has sent.
func (m *Model) embed(p phase, ids []int32, sent tensor.Tensor) (tensor.Tensor, error) {
	p.in(Embedding)
	h := p.arena.New(m.precision.DType, len(ids), m.Config.Dim)
	if !m.stage.Embed {
		tensor.Convert(p.ex, h.Mat(), sent.Mat())
		return h, nil
	}
	if err := m.sharded.gather(p.ex, embeddingUnit); err != nil {
		return h, err
	}
	tensor.Embed(p.ex, h.Mat(), m.embedding.W.Mat(), ids)
	return h, nil
}

// predict computes the losses of all tokens from the last hidden state and, in training, the
// gradients that the backward pass begins with.
func (m *Model) predict(pass *Pass, p phase, h tensor.Tensor, in Boundary) error {
	p.loss.Tokens = len(p.batch.Targets)
	if p.train {
		pass.dh = like(p.arena, h)
	}
	all := [2]prediction{{norm: m.norms[0], h: h, dh: pass.dh, targets: p.whole().Targets, scale: p.scale()}}
	if len(m.norms) > 1 {
		ahead, err := m.ahead(pass, p, h, in)
		if err != nil {
			return err
		}
		all[1] = m.aheadPrediction(pass, p, ahead)
	}
	if err := m.sharded.gather(p.ex, m.headUnit()); err != nil {
		return err
	}
	if err := m.output.forward(p, all[:len(m.norms)]); err != nil {
		return err
	}
	p.loss.sum(p.sequences)
	if !p.train {
		return nil
	}
	for i, norm := range m.norms {
		pass.headNorms = append(pass.headNorms, headNorm{norm, all[i].state})
	}
	return m.sharded.reduce(p, m.headUnit())
}

// Params returns all parameters of this rank in a fixed order.
func (m *Model) Params() []*Param {
	var all []*Param
	for _, g := range m.Groups {
		all = append(all, g.Params...)
	}
	return all
}

// ZeroGrad calls [Group.ZeroGrad] of all groups.
func (m *Model) ZeroGrad() {
	for _, g := range m.Groups {
		g.ZeroGrad()
	}
}

// repeat says how many layers the following ones stand for, in a dry run.
func (m *Model) repeat(ex *tensor.Exec, times int) {
	if !ex.Dry() {
		return
	}
	ex.Repeat(times)
	for c := range m.mesh.Comms {
		c.Repeat(times)
	}
}

// SequenceLosses yields the cross-entropies of this rank's sequences in the last Forward, Train or
// Eval, in nats, each summed over its tokens. They are valid until the next pass begins.
func (m *Model) SequenceLosses(yield func(i int, nats float64) bool) {
	for i, l := range m.measured {
		if !yield(i, rounded(l.main)) {
			return
		}
	}
}

// locate counts the rows of earlier passes, and of earlier ranks in this one, if the precision
// draws random numbers. Passes before the last one have equally many rows. It is collective.
func (p *Pass) locate(ex *tensor.Exec) error {
	m := p.model
	if p.earlier = 0; !m.precision.draws() {
		return nil
	}
	earlier, all, err := p.countRows(ex)
	if err != nil {
		return fmt.Errorf("counting the tokens of ranks: %w", err)
	}
	p.earlier = earlier
	if p.train {
		if m.begun == 1 {
			m.passRows = all
		}
		p.earlier += uint64(p.place) * m.passRows
	}
	return nil
}

// countRows returns the rows of earlier ranks in this pass, and those of all ranks.
func (p *Pass) countRows(ex *tensor.Exec) (earlier, all uint64, err error) {
	mine, c := len(p.batch.Inputs), p.model.mesh.Operands
	if c == nil {
		return 0, uint64(mine), nil
	}
	defer ex.Enter(ex.Enter(profile.Collectives))
	counts := make([]int64, c.Size())
	if err := collective.AllGather(c, counts, []int64{int64(mine)}); err != nil {
		return 0, 0, err
	}
	for r, n := range counts {
		if r < c.Rank() {
			earlier += uint64(n)
		}
		all += uint64(n)
	}
	return earlier, all, nil
}

// ObserveQuantized calls f with every operand that a linear layer quantizes from now on, in
// training and in evaluation: inputs and gradients in each pass, weights when their Group is
// refreshed. A nil f ends it.
//
// f runs on the rank's goroutine before the operand is multiplied. Its argument is valid during the
// call only. If f changes codes and scales, the changed ones are multiplied, so tests can break a
// recipe. Weights that several ranks hold must be changed in the same way on all of them, unless
// they are quantized elsewhere.
func (m *Model) ObserveQuantized(f func(Quantized)) { m.operands.observer = f }
