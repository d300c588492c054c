package record

// The rules for lines of a record, which its readers rely on.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"spmoe/collective/mesh"
)

// MaxTopK is the maximum number of choices per token in a record.
const MaxTopK = 256

const (
	maxLine     = 1 << 20 // bytes, including the line end
	maxName     = 256     // bytes
	maxLayer    = 1 << 16
	maxLinears  = 64      // kinds of linear layers of a model
	maxFamilies = 64      // kinds of work
	maxTasks    = 256     // of an evaluation
	maxMetrics  = 16      // of a task
	maxPasses   = 1 << 14 // of an evaluation
	maxCount    = 1 << 53
	maxMeasure  = 1e100    // above any sum of squares of FP32 numbers
	maxSample   = 64 << 10 // bytes of a prompt or of a text
)

// check returns an error if a line breaks a rule.
func (l Line) check() error {
	var errs []error
	for i, fields := 0, reflect.ValueOf(l); i < fields.NumField(); i++ {
		if kind := fields.Field(i); !kind.IsNil() {
			errs = append(errs, kind.Interface().(interface{ check() error }).check())
		}
	}
	switch len(errs) {
	case 0:
		return errors.New("it has none of the known keys")
	case 1:
		return errs[0]
	}
	return fmt.Errorf("it has %d keys, expected one", len(errs))
}

func (e *Eval) check() error {
	if len(e.Tasks) > maxTasks {
		return fmt.Errorf("%d tasks are more than %d", len(e.Tasks), maxTasks)
	}
	rules := []error{counted("step and sequences", e.Step, e.Sequences), measured(float64(e.Loss), float64(e.Averaged), float64(e.BitsPerByte))}
	for _, t := range e.Tasks {
		if len(t.Metrics) > maxMetrics {
			return fmt.Errorf("task %.100q has %d metrics, more than %d", t.Task, len(t.Metrics), maxMetrics)
		}
		rules = append(rules, counted("items", t.Items), named(t.Task, t.Form), named(slices.Sorted(maps.Keys(t.Metrics))...))
		for _, x := range t.Metrics {
			rules = append(rules, measured(float64(x)))
		}
	}
	return errors.Join(rules...)
}

func (d *Done) check() error {
	if len(d.Passes) > maxPasses {
		return fmt.Errorf("held_out_passes has %d numbers, expected at most %d", len(d.Passes), maxPasses)
	}
	rules := []error{counted("step and skipped", d.Step, d.Skipped), measured(float64(d.HeldOut), float64(d.Averaged), float64(d.Gzip))}
	for _, loss := range d.Passes {
		rules = append(rules, measured(float64(loss)))
	}
	return errors.Join(rules...)
}

// counted checks numbers that count something.
func counted[T int | int64](what string, numbers ...T) error {
	if slices.Min(numbers) < 0 || slices.Max(numbers) > maxCount {
		return fmt.Errorf("%s: %d to %d, expected 0 to %d", what, slices.Min(numbers), slices.Max(numbers), int64(maxCount))
	}
	return nil
}

// measured checks numbers that reports compute with and draw. NaN is allowed.
func measured(numbers ...float64) error {
	for _, x := range numbers {
		if math.Abs(x) > maxMeasure && !math.IsInf(x, 0) { // an infinity is written as null
			return fmt.Errorf("the number %g is beyond %g", x, maxMeasure)
		}
	}
	return nil
}

// layered checks the step and the layer of a measurement.
func layered(step, layer int) error {
	if layer >= maxLayer {
		return fmt.Errorf("layer %d: expected one below %d", layer, maxLayer)
	}
	return counted("step and layer", step, layer)
}

// named checks words that reports show.
func named(words ...string) error {
	for _, w := range words {
		if len(w) > maxName || !utf8.ValidString(w) || strings.ContainsFunc(w, unicode.IsControl) {
			return fmt.Errorf("the name %.100q has control characters or more than %d bytes", w, maxName)
		}
	}
	return nil
}

func (s *Start) check() error {
	var l mesh.Layout
	if s.Mesh != nil {
		l = *s.Mesh
	}
	return errors.Join(counted("degrees of the mesh", int64(l.World), int64(l.PP), int64(l.DPReplicate), int64(l.DPShard), int64(l.CP), int64(l.TP), int64(l.EP)),
		counted("step, cores, ranks and tokens", int64(s.Step), int64(s.Cores), int64(s.Ranks), s.Tokens), named(s.CPU, s.Tier, s.Version),
		measured(s.Time, s.BytesPerToken, s.FLOPs, s.Peak))
}

func (l *Load) check() error {
	if len(l.Bias) != 0 && len(l.Bias) != len(l.Tokens) {
		return fmt.Errorf("%d biases for %d experts", len(l.Bias), len(l.Tokens))
	}
	return errors.Join(layered(l.Step, l.Layer), counted("tokens", append([]int64{0}, l.Tokens...)...))
}

func (q *Quantized) check() error {
	return errors.Join(layered(q.Step, q.Layer), named(q.Linear, q.Tensor, q.Format), counted("elements, saturated and flushed", q.Elements, q.Saturated, q.Flushed),
		measured(float64(q.Signal), float64(q.Noise)))
}

func (c *Choices) check() error {
	if c.TopK < 1 || c.TopK > MaxTopK || len(c.Experts)%2 != 0 || len(c.Experts)/2%c.TopK != 0 {
		return fmt.Errorf("choices of %d bytes do not fit top_k %d, of at most %d", len(c.Experts), c.TopK, MaxTopK)
	}
	return layered(c.Step, c.Layer)
}

func (p *Phases) check() error {
	return errors.Join(counted("step", p.Step), families(p.Steps, p.Seconds, p.Families))
}

func (t *Times) check() error { return families(t.Steps, t.Seconds, t.Families) }

// families checks times by kind of work.
func families(steps int, seconds float64, by map[string]float64) error {
	if len(by) > maxFamilies {
		return fmt.Errorf("%d kinds of work are more than %d", len(by), maxFamilies)
	}
	return errors.Join(counted("steps", steps), measured(append(slices.Collect(maps.Values(by)), seconds)...), named(slices.Sorted(maps.Keys(by))...))
}

func (u *Usage) check() error {
	return errors.Join(counted("steps", u.Steps), measured(u.Moved, u.Weights, u.Gradients, u.Optimizer))
}

func (s *Sample) check() error {
	if n := max(len(s.Prompt), len(s.Text)); n > maxSample {
		return fmt.Errorf("a prompt or text of %d bytes is longer than %d", n, maxSample)
	}
	return counted("step", s.Step)
}

// check returns an error unless the lines of a log belong to one model.
func (log *Log) check() error {
	linears := map[string]bool{}
	for _, q := range log.Quantized {
		linears[q.Linear] = true
	}
	if len(linears) > maxLinears {
		return fmt.Errorf("it has %d kinds of linear layers, more than %d", len(linears), maxLinears)
	}
	return nil
}
