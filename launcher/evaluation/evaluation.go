// Package evaluation measures how well a model predicts text, on all its ranks.
package evaluation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
)

// Options says what is measured. The windows are those of a training run's evaluation that is told
// to take as many.
type Options struct {
	Seq     int // tokens of a window that are predicted
	Windows int // most windows
	Batch   int // windows of a rank in one pass

	// Separator is the id that ends a document, if tokens see only their own document; nil: they
	// see all that is before them.
	Separator *int32
}

// Result is what was measured. It depends neither on the number of ranks nor on the batch, but for
// rounding.
type Result struct {
	Loss    float64 // mean cross-entropy, nats a token
	StdErr  float64 // of Loss, as that of the mean over the windows; 0 if there is one
	Windows int
	Tokens  int64 // that were predicted
	Bytes   int64 // of text that they stand for
	Time    time.Duration
}

// Perplexity returns e^Loss.
func (r Result) Perplexity() float64 { return math.Exp(r.Loss) }

// BitsPerByte returns the loss in bits a byte of text, which other tokenizers' losses can be
// compared with.
func (r Result) BitsPerByte() float64 {
	return r.Loss * float64(r.Tokens) / (math.Ln2 * float64(r.Bytes))
}

// TokensPerSecond returns the speed of the measurement.
func (r Result) TokensPerSecond() float64 { return float64(r.Tokens) / r.Time.Seconds() }

// ErrInterrupted says that the context has ended before the measurement.
var ErrInterrupted = errors.New("interrupted")

// Run measures m, whose sequences may have Options.Seq tokens, on windows of text. It is
// collective, and returns the same result on all ranks but for the time.
func Run(ctx context.Context, ex *tensor.Exec, c *collective.Comm, m *moe.Model, text datasets.Stream, t datasets.Tokenizer, o Options) (Result, error) {
	begin := time.Now()
	windows, err := datasets.NewWindows(text, datasets.WindowsConfig{Seq: o.Seq, Count: o.Windows, Rank: c.Rank(), Ranks: c.Size()})
	if err != nil {
		return Result{}, err
	}
	total := windows.Total()
	e := &evaluation{ex: ex, comm: c, model: m, tokenizer: t, options: o, windows: windows, losses: make([]float64, total+1)}
	most := (total + c.Size() - 1) / c.Size() // a pass is collective, so all ranks make as many
	for lo := 0; lo < most; lo += o.Batch {
		if stopped, err := e.stopped(ctx); err != nil {
			return Result{}, err
		} else if stopped {
			return Result{}, ErrInterrupted
		}
		if err := e.pass(lo, min(lo+o.Batch, windows.Len()), total*c.Rank()/c.Size()); err != nil {
			return Result{}, err
		}
	}
	if err := collective.AllReduce(c, e.losses, collective.Sum); err != nil {
		return Result{}, fmt.Errorf("adding up losses: %w", err)
	}
	r := summary(e.losses[:total], o.Seq)
	r.Bytes, r.Time = int64(e.losses[total]), time.Since(begin)
	return r, nil
}

// evaluation is one rank's part of a measurement.
type evaluation struct {
	ex        *tensor.Exec
	comm      *collective.Comm
	model     *moe.Model
	tokenizer datasets.Tokenizer
	options   Options
	windows   *datasets.Windows
	losses    []float64 // of each window of all ranks, in nats, of which this rank sets its own; then the bytes of its windows
}

// stopped lets the ranks agree on whether to end.
func (e *evaluation) stopped(ctx context.Context) (bool, error) {
	var stop [1]int32
	if ctx.Err() != nil {
		stop[0] = 1
	}
	err := collective.AllReduce(e.comm, stop[:], collective.Max)
	return stop[0] > 0, err
}

// pass measures windows [lo, hi) of this rank, whose first is window from of all; there may be
// none.
func (e *evaluation) pass(lo, hi, from int) error {
	seq := e.options.Seq
	b := moe.Batch{Seq: seq, GlobalSequences: len(e.losses) - 1}
	row := make([]int32, seq+1)
	for i := lo; i < hi; i++ {
		e.windows.Read(row, i)
		b.Inputs, b.Targets = append(b.Inputs, row[:seq]...), append(b.Targets, row[1:]...)
	}
	if end := e.options.Separator; end != nil {
		b.First = make([]int32, len(b.Inputs))
		datasets.DocumentStarts(b.First, b.Inputs, seq, *end)
	}
	if _, err := e.model.Eval(e.ex, b); err != nil {
		return err
	}
	for i, nats := range e.model.SequenceLosses {
		e.losses[from+lo+i] = nats
	}
	e.losses[len(e.losses)-1] += float64(len(e.tokenizer.Decode(b.Targets)))
	return nil
}

// summary returns the mean of the losses of windows of seq tokens, and its standard error.
func summary(losses []float64, seq int) Result {
	n := float64(len(losses))
	var sum, squares float64
	for _, nats := range losses {
		sum += nats
	}
	r := Result{Loss: sum / (n * float64(seq)), Windows: len(losses), Tokens: int64(len(losses) * seq)}
	for _, nats := range losses {
		d := nats/float64(seq) - r.Loss
		squares += d * d
	}
	if n > 1 {
		r.StdErr = math.Sqrt(squares / (n - 1) / n)
	}
	return r
}
