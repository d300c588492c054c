package moe

import (
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
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
	headMix   *mixer     // before the first of them; nil: there is one stream
	output    output     // only in a stage that predicts

	rope rotaryTables

	arenas   *passArenas    // of passes
	passes   []*Pass        // all passes
	idle     []*Pass        // passes that hold no state
	inFlight []*Pass        // training passes, by their places
	begun    int            // training passes of this step
	several  bool           // a pass of this step has had Batch.More
	stepRows uint64         // of all ranks in the passes of this step so far: see locate
	zeroed   int            // total calls of Group.ZeroGrad before the current step
	measured []sequenceLoss // by the last pass

	observer func(name string, t tensor.Tensor)
	operands operands
	sums     stepSums
}

// Tables returns the memory that passes read besides weights: the rotary tables.
func (m *Model) Tables() []tensor.Tensor {
	all := m.rope.main.Elements()
	if m.rope.compressed != nil {
		all = append(all, m.rope.compressed.Elements()...)
	}
	return all
}

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
	if err := errors.Join(cfg.Validate(), b.precision.Validate()); err != nil {
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
	if mesh.Sequence != nil {
		m.context = newPeers(mesh.Sequence, mesh.SequenceHost)
	}
	if mesh.TP != nil {
		m.tensor = newPeers(mesh.TP, mesh.TP)
	}
	if b.dry != nil {
		dry := tensor.NewDryRotaryTable(seq, cfg.RopeDim/2)
		m.rope, m.sums.rows.Arena = rotaryTables{dry, dry}, *b.dry.NewArena(0)
	} else {
		m.rope = cfg.rotaryTables(seq)
	}
	b.operands, b.sums = &m.operands, &m.sums
	if mesh.World.Shared() {
		b.memory = mesh.World.Allocator()
		m.sums.rows.Allocator = b.memory
	}
	m.addLayers(b, rankContext{mesh.EP, exchange})
	var err error
	m.Groups, err = b.groups()
	for _, p := range m.Params() {
		p.Frozen = cfg.freezes(p.Name)
	}
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
		m.headMix = newMixer(b, cfg, "model.hc_head.hc_", true)
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
// "layer1_topk_index" (int32) and so on. They are valid during the call only. f may change
// "layer0_index_choice", the bits of chosen keys. A nil f ends it.
func (m *Model) Observe(f func(name string, t tensor.Tensor)) { m.observer = f }

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

// ObserveQuantized calls f with every operand that a linear layer quantizes from now on, in
// training and in evaluation: inputs and gradients in each pass, weights when their Group is
// refreshed. A nil f ends it.
//
// f runs on the rank's goroutine before the operand is multiplied. Its argument is valid during the
// call only. If f changes codes and scales, the changed ones are multiplied, so tests can break a
// recipe. Weights that several ranks hold must be changed in the same way on all of them, unless
// they are quantized elsewhere.
func (m *Model) ObserveQuantized(f func(Quantized)) { m.operands.observer = f }

// Pass is a training pass in flight, with all state that the backward pass of a batch needs. Layers
// hold only weights, so any number of passes may be in flight, each with its own memory:
//
//	F0 F1 B0 B1        Forward of two batches, then Backward of both passes
//	F0 F1 I0 I1 W0 W1  the same with separate BackwardInput and BackwardWeight
//
// All ranks run the same schedule, and weights do not change meanwhile. Gradients have the same
// bits in every schedule: a weight's gradient is the sum over the passes of a step in the order of
// their Forward calls, or of the places that [Model.ForwardStage] is given. The gradient of a pass
// is a tree over the sequences of all ranks. A pass whose turn has not come leaves its weight
// gradients to the pass before it.
//
// A pass ends with its weight gradients. The model then reuses its memory for another one. The
// first Forward after ZeroGrad ends all passes that are left, without adding their gradients.
type Pass struct {
	model *Model
	passState

	waiting bool // for its turn to add to the gradients of the weights
	added   bool // the layers have added to the gradients of their weights

	blocks []blockState
	norm   normState // of the last norm, if no loss is computed
	mixed  mixState  // of the streams before it
	out    Boundary  // of a stage that is not the last one
	// gradient of the last hidden state, of what the head reads of its streams until the backward
	// pass begins; after the backward pass, that of the first one
	dh        tensor.Tensor
	dembedded tensor.Tensor // gradient of the embedded targets
	dahead    tensor.Tensor // gradient of the hidden state for the prediction further ahead
	embedded  []embedded    // gradients of the embedding's rows
	headNorms []headNorm
}

// NewStage is New for a part of a model on a mesh, in which experts may have replicas. The ranks of
// the mesh are those with the same stage. The exchange must be that of the mesh, and ep must divide
// the number of experts. Stages on one rank may share an exchange. The results have the same bits
// on every mesh.
func NewStage(mesh Mesh, cfg Config, precision Precision, seq int, exchange ep.Exchange, stage Stage) (*Model, error) {
	return build(newBuilder(precision, mesh), mesh, cfg, seq, exchange, stage)
}

// Stage returns the part of a model that m is.
func (m *Model) Stage() Stage { return m.stage }

// DType returns the model's working type.
func (m *Model) DType() tensor.DType { return m.precision.DType }

// lastLayer returns the number of the stage's last block.
func (m *Model) lastLayer() int {
	last := m.stage.End - 1
	if m.stage.Ahead == 0 {
		last = min(last, m.Config.Layers-1)
	}
	return max(last, 0)
}

// ShareArenas makes the passes of m use the arenas of other, a stage on the same rank. A pass then
// takes the memory that a pass of any of these stages has left. Call it before the first pass of m.
func (m *Model) ShareArenas(other *Model) { m.arenas = other.arenas }

// blockUnit returns the unit of block i of the model's stage.
func (m *Model) blockUnit(i int) int {
	if m.stage.Predict && i >= len(m.mainBlocks()) {
		i++
	}
	return m.unitAfter(i)
}

// headUnit returns the unit of the head.
func (m *Model) headUnit() int { return m.unitAfter(len(m.mainBlocks())) }

// unitAfter returns the unit that follows the embedding and some others.
func (m *Model) unitAfter(others int) int {
	if !m.stage.Embed {
		return others
	}
	return firstBlock + others
}
