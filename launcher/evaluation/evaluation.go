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

// Options says what to measure. The windows are those of a training run's evaluation with the same
// number of windows.
type Options struct {
	Seq     int // predicted tokens per window
	Windows int // maximum number of windows
	Batch   int // windows per rank and pass

	// Separator is the id that ends a document if attention is restricted to documents; nil: it is
	// not.
	Separator *int32
}

// Result is the result of a measurement. It does not depend on the number of ranks or on the batch,
// except for rounding.
type Result struct {
	Loss    float64 // mean cross-entropy, nats/token
	StdErr  float64 // of Loss, as the mean over the windows; 0 for one window
	Windows int
	Tokens  int64 // predicted tokens
	Bytes   int64 // bytes of text of these tokens
	Time    time.Duration
}

// Perplexity returns e^Loss.
func (r Result) Perplexity() float64 { return math.Exp(r.Loss) }

// BitsPerByte returns the loss in bits per byte of text, which can be compared between tokenizers.
func (r Result) BitsPerByte() float64 {
	return r.Loss * float64(r.Tokens) / (math.Ln2 * float64(r.Bytes))
}

// TokensPerSecond returns the speed of the measurement.
func (r Result) TokensPerSecond() float64 { return float64(r.Tokens) / r.Time.Seconds() }

// ErrInterrupted says that the context ended before the measurement did.
var ErrInterrupted = errors.New("interrupted")

// Run measures m on windows of text. The model must have been built for Options.Seq tokens. Run is
// collective, and returns the same result on all ranks except for the time.
func Run(ctx context.Context, ex *tensor.Exec, c *collective.Comm, m *moe.Model, text datasets.Stream, t datasets.Tokenizer, o Options) (Result, error) {
	begin := time.Now()
	windows, err := datasets.NewWindows(text, datasets.WindowsConfig{Seq: o.Seq, Count: o.Windows, Rank: c.Rank(), Ranks: c.Size()})
	if err != nil {
		return Result{}, err
	}
	total := windows.Total()
	e := &evaluation{ex: ex, comm: c, model: m, tokenizer: t, options: o, windows: windows, losses: make([]float64, total+1)}
	most := (total + c.Size() - 1) / c.Size() // a pass is collective, so all ranks run the same number
	for lo := 0; lo < most; lo += o.Batch {
		if err := Interrupted(ctx, c); err != nil {
			return Result{}, err
		}
		if err := e.pass(lo, min(lo+o.Batch, windows.Len()), total*c.Rank()/c.Size()); err != nil {
			return Result{}, err
		}
	}
	if err := collective.AllReduce(c, e.losses, collective.Sum); err != nil {
		return Result{}, fmt.Errorf("summing losses: %w", err)
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
	// of each window of all ranks, in nats; this rank sets its own, followed by the bytes of its
	// windows
	losses []float64
}

// Interrupted returns ErrInterrupted on all ranks if the context of any has ended. It is
// collective.
func Interrupted(ctx context.Context, c *collective.Comm) error {
	var stop [1]int32
	if ctx.Err() != nil {
		stop[0] = 1
	}
	if err := collective.AllReduce(c, stop[:], collective.Max); err != nil {
		return err
	}
	if stop[0] > 0 {
		return ErrInterrupted
	}
	return nil
}

// pass measures windows [lo, hi) of this rank, possibly none. Window lo has number
// from among the windows of all ranks.
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
