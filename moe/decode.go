package moe

// Decoding extends texts by a few tokens at a time from the cached state of the earlier tokens
// (cache.go, absorbed.go), and returns the scores of the next token.

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
	rope   *tensor.RotaryTable
	layers []attentionDecoder // by layer, of those on this rank
	logits tensor.Tensor      // [sequences, vocab] FP32, of the last call
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
	d := &Decoder{stages: stages, relay: relay, rope: c.rotaryTable(context), layers: make([]attentionDecoder, c.Layers)}
	for _, m := range stages {
		for i, b := range m.blocks {
			if err := m.sharded.gather(ex, m.blockUnit(i)); err != nil {
				return nil, err
			}
			d.layers[b.layer] = b.attention.decoder(ex)
		}
	}
	return d, nil
}

// Context returns the maximum number of tokens per sequence.
func (d *Decoder) Context() int { return d.rope.Len() }

// extension is the part of a sequence that a pass adds.
type extension struct {
	cache  *Cache
	tokens int // that the pass adds
}

// decodePass is the state of a pass of a Decoder in addition to its tokens.
type decodePass struct {
	decoder   *Decoder
	sequences []extension // of this rank
	few       bool        // see rowwise
}

// Extend appends tokens to one sequence and returns the scores of the token after the last one:
// [vocab] FP32, valid until the next call. The other ranks pass no cache and no tokens and get nil.
// Appending in parts gives the same numbers as appending all tokens at once, and the same bits in
// FP32.
func (d *Decoder) Extend(ex *tensor.Exec, c *Cache, tokens []int32) ([]float32, error) {
	var sequences []extension
	if c != nil {
		sequences = []extension{{c, len(tokens)}}
	}
	logits, err := d.run(ex, sequences, tokens, false)
	if err != nil || c == nil || !logits.Valid() {
		return nil, err
	}
	return logits.F32(), nil
}

// Step appends one token to each of this rank's sequences and returns the scores of the next
// tokens: [len(caches), vocab] FP32, valid until the next call. The bits of a sequence's scores do
// not depend on other sequences or on the ranks that they are on, unless the precision has scales
// per tensor.
func (d *Decoder) Step(ex *tensor.Exec, caches []*Cache, tokens []int32) (tensor.Tensor, error) {
	sequences := make([]extension, len(caches))
	for i, c := range caches {
		sequences[i] = extension{c, 1}
	}
	return d.run(ex, sequences, tokens, true)
}

// run extends sequences. It returns the scores, or an invalid tensor on a rank without the head.
func (d *Decoder) run(ex *tensor.Exec, sequences []extension, tokens []int32, few bool) (logits tensor.Tensor, err error) {
	mark := ex.Mark()
	defer ex.Release(mark)
	d.check(sequences, tokens)
	for _, m := range d.stages {
		if logits, err = d.runStage(ex, m, &decodePass{decoder: d, sequences: sequences, few: few}, tokens); err != nil {
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
	pass := m.newPass(ex, Batch{Inputs: tokens, Seq: max(len(tokens), 1), GlobalSequences: 1}, false)
	defer pass.release()
	pass.decoding = as
	p := pass.forwardPhase(ex)
	h, err := m.hidden(p, in)
	if err != nil {
		return logits, err
	}
	if !m.stage.Predict {
		return logits, d.relay.Send(ex, m, h)
	}
	return d.score(p, m, h)
}

// score returns the scores after the last token of each sequence. h is the hidden state of all
// tokens.
func (d *Decoder) score(p phase, m *Model, h tensor.Tensor) (tensor.Tensor, error) {
	ex, sequences := p.ex, p.decoding.sequences
	last := ex.New(h.DType(), len(sequences), m.Config.Dim)
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
	matMul(ex, logits.Mat(), m.norm.forward(p, p.scratch, last.Mat(), &p.norm).Mat(), m.output.weight.W.Mat().T(), p.decoding.few)
	return logits, nil
}

func (d *Decoder) check(sequences []extension, tokens []int32) {
	n := 0
	for _, s := range sequences {
		if s.tokens < 1 || s.cache.tokens+s.tokens > min(s.cache.Capacity(), d.Context()) {
			panic(fmt.Sprintf("moe: %d tokens appended to %d, but the cache holds %d and the context is %d", s.tokens, s.cache.tokens, s.cache.Capacity(), d.Context()))
		}
		n += s.tokens
	}
	if n != len(tokens) {
		panic(fmt.Sprintf("moe: %d tokens for sequences that grow by %d", len(tokens), n))
	}
}

// rowwise reports whether a row's bits must not depend on the number of other rows. BF16 products
// sum in one order for few rows and in another for many. Such a pass multiplies only few enough
// rows at a time for the first order.
func (d *decodePass) rowwise() bool { return d != nil && d.few }

// matMul computes c = a·b, few rows at a time if the bits of a row must not depend on the number of
// rows.
func matMul(ex *tensor.Exec, c, a, b tensor.Matrix, few bool) {
	size := c.Rows
	if few {
		size = min(size, tensor.BatchInvariantRows())
	}
	for lo := 0; lo < c.Rows; lo += size {
		hi := min(lo+size, c.Rows)
		tensor.MatMul(ex, c.RowSlice(lo, hi), a.RowSlice(lo, hi), b)
	}
}

// rowwise is forward for few rows of a group at a time.
func (l *linear) rowwise(ex *tensor.Exec, y tensor.Tensor, x *activation) {
	n, ends := l.W.Dim(-2), x.ends
	if ends == nil {
		ends = []int32{int32(x.Dim(0))}
	}
	lo, size := 0, min(x.Dim(0), tensor.BatchInvariantRows())
	for g, end := range ends {
		for lo < int(end) {
			hi := min(lo+size, int(end))
			out := y.Slice(lo, hi).Mat()
			if l.mx.quantizesForward() {
				l.mx.Sum.MatMul(ex, out, x.rows.GroupSlice(g, lo, hi), l.mx.rows.GroupSlice(g, g*n, (g+1)*n))
			} else {
				l.sum.Multiply(ex, out, x.Slice(lo, hi).Mat(), l.W.Mat().RowSlice(g*n, (g+1)*n).T())
			}
			lo = hi
		}
	}
}
