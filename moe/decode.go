package moe

// Decoding extends texts by a few tokens at a time from the cached state of the earlier tokens
// (cache.go), and returns the scores of the next token. It is the forward pass of training with a
// cache: a row's result does not depend on the other rows, so neither do the scores.

import (
	"fmt"

	"spmoe/tensor"
)

// Decoder extends sequences with the weights that its model had when the decoder was created. Its
// calls are collective. Every rank makes the same calls in the same order, without sequences if it
// has none to extend, because the other ranks need its experts.
type Decoder struct {
	stages []*Model // of this rank, in the order of the model
	relay  Relay
	ropes  []*tensor.RotaryTable // of each layer
	logits tensor.Tensor         // [sequences, vocab] FP32, of the last call
	loss   tensor.CrossEntropy

	// Routes is optional: it records or replaces the choices of experts of each call's tokens, one
	// sequence after the other.
	Routes *Routes
}

// Relay passes the hidden states of a Decoder from stage to stage.
type Relay interface {
	// Receive returns the input of a stage without the embedding, [tokens, dim], in memory that is
	// valid until the call of the Decoder ends.
	Receive(ex *tensor.Exec, to *Model, tokens int) (tensor.Tensor, error)
	// Send passes on the output of a stage without the head. It copies h.
	Send(ex *tensor.Exec, from *Model, h tensor.Tensor) error
}

// NewDecoder returns a decoder for sequences of up to context tokens. context is at most
// Config.MaxPositions, which may be more than the model was built for.
//
// Scores have the bits of a training pass over the whole text, for any batch, any parts of the text
// and any ranks, if [Precision.CheckDecoding] allows it.
func (m *Model) NewDecoder(ex *tensor.Exec, context int) (*Decoder, error) {
	return NewStageDecoder(ex, context, []*Model{m}, nil)
}

// NewStageDecoder is NewDecoder for the stages of this rank, in the order of the model. The ranks
// of a pipeline pass the same tokens. Only the one with the head gets scores.
func NewStageDecoder(ex *tensor.Exec, context int, stages []*Model, relay Relay) (*Decoder, error) {
	c := stages[0].Config
	if context < 1 || context > c.MaxPositions {
		return nil, fmt.Errorf("the context is %d tokens: give 1 to %d (model.max_positions)", context, c.MaxPositions)
	}
	d, rope := &Decoder{stages: stages, relay: relay}, c.rotaryTables(context)
	for i := range c.Layers {
		d.ropes = append(d.ropes, c.layer(i).attention.rotary(rope))
	}
	for _, m := range stages {
		for i := range m.mainBlocks() {
			if err := m.sharded.gather(ex, m.blockUnit(i)); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// Experts returns the number of experts that a token chooses in all layers together.
func (d *Decoder) Experts() int { return d.ExpertsBefore(d.stages[0].Config.Layers) }

// ExpertsBefore returns the number of those in the layers before one.
func (d *Decoder) ExpertsBefore(layer int) int {
	c := d.stages[0].Config
	return (layer - c.DenseLayers) * c.TopK
}

// Extend appends tokens to one sequence and returns the scores of the token after the last one:
// [vocab] FP32, valid until the next call. The other ranks pass no cache and no tokens and get nil.
func (d *Decoder) Extend(ex *tensor.Exec, c *Cache, tokens []int32) ([]float32, error) {
	var sequences []extension
	if c != nil {
		sequences = []extension{{c, len(tokens)}}
	}
	logits, err := d.run(ex, sequences, tokens)
	if err != nil || c == nil || !logits.Valid() {
		return nil, err
	}
	return logits.F32(), nil
}

// Step appends one token to each of this rank's sequences and returns the scores of the next
// tokens: [len(caches), vocab] FP32, valid until the next call.
func (d *Decoder) Step(ex *tensor.Exec, caches []*Cache, tokens []int32) (tensor.Tensor, error) {
	sequences := make([]extension, len(caches))
	for i, c := range caches {
		sequences[i] = extension{c, 1}
	}
	return d.run(ex, sequences, tokens)
}

// run extends sequences. It returns the scores, or an invalid tensor on a rank without the head.
func (d *Decoder) run(ex *tensor.Exec, sequences []extension, tokens []int32) (logits tensor.Tensor, err error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	for _, m := range d.stages {
		if logits, err = d.runStage(ex, m, &decodePass{ropes: d.ropes, sequences: sequences}, tokens); err != nil {
			return logits, err
		}
	}
	for _, s := range sequences {
		s.cache.tokens += s.tokens
	}
	return logits, nil
}

// runStage is run for one stage.
func (d *Decoder) runStage(ex *tensor.Exec, m *Model, as *decodePass, tokens []int32) (logits tensor.Tensor, err error) {
	var in Boundary
	if !m.stage.Embed {
		if in.Hidden, err = d.relay.Receive(ex, m, len(tokens)); err != nil {
			return logits, err
		}
	}
	pass := m.newPass(ex, Batch{Inputs: tokens, Seq: max(len(tokens), 1), GlobalSequences: 1, Routes: d.Routes}, false)
	defer pass.release()
	pass.decoding = as
	p := pass.forwardPhase(ex)
	h, err := m.hidden(pass, p, in)
	if err != nil {
		return logits, err
	}
	if !m.stage.Predict {
		return logits, d.relay.Send(ex, m, h)
	}
	return d.score(pass, p, m, as.sequences, h)
}

// score returns the scores after the last token of each sequence. h is the hidden state of all
// tokens.
func (d *Decoder) score(pass *Pass, p phase, m *Model, sequences []extension, h tensor.Tensor) (tensor.Tensor, error) {
	ex := p.ex
	last := like(&ex.Arena, h.Slice(0, len(sequences)))
	end := 0
	for i, s := range sequences {
		end += s.tokens
		tensor.Convert(ex, last.Slice(i, i+1).Mat(), h.Slice(end-1, end).Mat())
	}
	if !d.logits.Valid() || d.logits.Dim(0) < len(sequences) {
		d.logits = tensor.New(tensor.FP32, max(len(sequences), 1), m.Config.Vocab)
	}
	logits := d.logits.Slice(0, len(sequences))
	if err := m.sharded.gather(ex, m.headUnit()); err != nil {
		return logits, err
	}
	m.output.sum.Multiply(ex, logits.Mat(), m.norms[0].forward(p, p.scratch, m.headMix.read(p, last, &pass.mixed).Mat(), &pass.norm).Mat(), m.output.weight.W.Mat().T())
	return logits, nil
}

// LogProbs sets probs to the natural logarithms of the probabilities of tokens, one for each row of
// scores that the last call has returned. They are summed as the losses of training are. A negative
// token has none.
func (d *Decoder) LogProbs(ex *tensor.Exec, probs []float64, tokens []int32) {
	o := &d.stages[len(d.stages)-1].output
	logits := d.logits.Slice(0, len(tokens))
	d.loss.Reset(tokens, logits.Dim(1))
	o.sizes.blocks(logits.Dim(1), func(lo, hi int) { d.loss.Add(ex, logits.Mat().ColSlice(lo, hi), lo) })
	for i := range tokens {
		probs[i] = -d.loss.Loss(i, i+1)
	}
}

// NewCache returns a cache for a sequence of up to capacity tokens. It takes
// capacity times the elements of Config.KVCache on all ranks of a pipeline together.
func (d *Decoder) NewCache(capacity int) *Cache {
	c := &Cache{layers: make([]layerCache, d.stages[0].Config.Layers), capacity: capacity}
	for _, m := range d.stages {
		dtype := m.precision.DType
		for _, b := range m.mainBlocks() {
			if v4, ok := b.attention.(*compressedAttention); ok {
				c.layers[b.layer].entries = v4.newCache(dtype, capacity)
				continue
			}
			shape := m.Config.layer(b.layer).attention.shape()
			c.layers[b.layer] = layerCache{
				keys:   tensor.New(dtype, shape.KVHeads, capacity, shape.KeyDim),
				values: tensor.New(dtype, shape.KVHeads, capacity, shape.ValueDim),
			}
			if m.Config.hasIndexer(b.layer) {
				c.layers[b.layer].index = tensor.New(dtype, capacity, m.Config.IndexDim)
			}
		}
	}
	return c
}
