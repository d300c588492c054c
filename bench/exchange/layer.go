package exchange

// The exchange of one layer: ordinary, one-sided, and one-sided with MXFP8 on the wire.

import (
	"fmt"
	"math/rand/v2"

	"spmoe/bench"
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// shape is the shape of a layer's exchange, with tokens per rank.
type shape struct{ tokens, hidden, slots, experts int }

func (sh shape) String() string {
	return fmt.Sprintf("%dx%d_top%d", sh.tokens, sh.hidden, sh.slots)
}

// roundTrip measures a layer's dispatch and combine with experts that cost nothing, for the
// standard and the one-sided exchange in turns.
func (s *suite) roundTrip(sh shape) error {
	n := s.comm.Size()
	standard, oneSided, mxfp8, err := s.layers(sh)
	if err != nil {
		return err
	}
	times, err := s.turns(1, standard.dispatch, standard.combine, oneSided.dispatch, oneSided.combine, oneSided.dispatchThenQuantize, mxfp8.dispatchCodes)
	if err != nil {
		return err
	}
	wrong := oneSided.differs(standard)
	// A lower bound: every row is read once and written once per choice, and each choice is read
	// once and every sum written once.
	row := float64(2 * sh.hidden * sh.tokens * n)
	there := row * float64(1+sh.slots) // and back
	bytes, bus := 2*sh.hidden*sh.tokens*sh.slots, float64(n-1)/float64(n)
	both := func(a, b []float64) []float64 {
		sum := make([]float64, len(a))
		for i := range a {
			sum[i] = a[i] + b[i]
		}
		return sum
	}
	for i, l := range []*layer{standard, oneSided} {
		d, b := times[2*i], times[2*i+1]
		s.report(fmt.Sprintf("%s_dispatch_%v", l.name, sh), d, bytes, bus, there, wrong)
		s.report(fmt.Sprintf("%s_combine_%v", l.name, sh), b, bytes, bus, there, wrong)
		s.report(fmt.Sprintf("%s_round_trip_%v", l.name, sh), both(d, b), 2*bytes, bus, 2*there, wrong)
	}
	ratio := func(name string, base, times []float64, wrong int) {
		if s.lead() {
			s.yield(Result{Name: fmt.Sprintf("%s_%v", name, sh), Unit: "x", Wrong: wrong, Value: bench.MedianRatio(base, times)})
		}
	}
	ratio("onesided_over_standard", both(times[0], times[1]), both(times[2], times[3]), wrong)

	wrong = mxfp8.codes.differs(oneSided.codes)
	code := sh.hidden + mx.E4M3.BlocksIn(sh.hidden)
	s.report(fmt.Sprintf("bf16_dispatch_then_quantise_%v", sh), times[4], bytes, bus, there, wrong)
	s.report(fmt.Sprintf("mxfp8_dispatch_%v", sh), times[5], code*sh.tokens*sh.slots, bus, row+float64(code*sh.tokens*sh.slots*n), wrong)
	ratio("mxfp8_over_bf16_dispatch", times[2], times[5], wrong)
	ratio("mxfp8_over_bf16_dispatch_then_quantise", times[4], times[5], wrong)
	return nil
}

// layers returns one layer per exchange, with enough experts for all ranks.
func (s *suite) layers(sh shape) (standard, oneSided, mxfp8 *layer, err error) {
	n := s.comm.Size()
	sh.experts = (sh.experts + n - 1) / n * n
	if standard, err = newLayer(s, "standard", sh, ep.Options{}); err != nil {
		return nil, nil, nil, err
	}
	if oneSided, err = newLayer(s, "onesided", sh, ep.Options{}); err != nil {
		return nil, nil, nil, err
	}
	mxfp8, err = newLayer(s, "onesided", sh, ep.Options{Dispatch: ep.MXFP8})
	return standard, oneSided, mxfp8, err
}

// layer is one rank's end of a layer whose experts are the identity.
type layer struct {
	ep.Exchange
	name                        string
	experts                     int
	ex                          *tensor.Exec
	h                           ep.Handle
	x, topk, weights, rows, out tensor.Tensor
	codes                       codes
}

func newLayer(s *suite, name string, sh shape, options ep.Options) (*layer, error) {
	exchange, err := ep.New(name, s.comm, sh.experts, options)
	if err != nil {
		return nil, err
	}
	l := &layer{
		Exchange: exchange, name: name, experts: sh.experts, ex: tensor.NewExec(),
		x: s.ex.New(tensor.BF16, sh.tokens, sh.hidden), out: s.ex.New(tensor.BF16, sh.tokens, sh.hidden),
		topk: s.ex.New(tensor.INT32, sh.tokens, sh.slots), weights: s.ex.New(tensor.FP32, sh.tokens, sh.slots),
	}
	l.ex.Allocator = s.ex.Allocator
	rng := rand.New(rand.NewPCG(uint64(s.comm.Rank()), 1))
	for i := range l.x.BF16() {
		l.x.BF16()[i] = tensor.ToBFloat16(float32(i%251) / 16)
	}
	for t := range sh.tokens {
		for k, e := range rng.Perm(sh.experts)[:sh.slots] {
			l.topk.I32()[t*sh.slots+k] = int32(e)
			l.weights.F32()[t*sh.slots+k] = rng.Float32()
		}
	}
	return l, nil
}

func (l *layer) dispatch() (err error) {
	l.ex.Reset()
	a, err := l.StartDispatch(l.ex, &l.h, l.x, l.topk)
	if err == nil {
		l.rows, err = a.Receive(l.ex)
	}
	return err
}

// dispatchThenQuantize receives rows in BF16 and quantizes them, as an MXFP8 expert needs them.
func (l *layer) dispatchThenQuantize() error {
	if err := l.dispatch(); err != nil {
		return err
	}
	l.codes = codes{mx.New(l.ex, mx.E4M3, mx.AlongRows, l.rows.Dim(0), l.rows.Dim(1))}
	mx.Quantize(l.ex, l.codes.Tensor, l.rows.Mat(), mx.RCEIL)
	return nil
}

// dispatchCodes is the same with rows that travel quantized.
func (l *layer) dispatchCodes() error {
	l.ex.Reset()
	a, err := l.StartDispatch(l.ex, &l.h, l.x, l.topk)
	if err != nil {
		return err
	}
	l.codes = codes{a.MX}
	return a.Wait(l.ex)
}

func (l *layer) combine() error { return l.Combine(l.ex, &l.h, l.rows, l.weights, l.out) }

// differs counts the elements in which two exchanges differ.
func (l *layer) differs(o *layer) (wrong int) {
	return differing(l.rows.BF16(), o.rows.BF16()) + differing(l.out.BF16(), o.out.BF16())
}

// differing counts the elements of a that b does not have at their places.
func differing[T comparable](a, b []T) (n int) {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			n++
		}
	}
	return n
}

// codes are quantized rows.
type codes struct{ mx.Tensor }

func (c codes) differs(o codes) (wrong int) {
	return differing(c.Codes.U8(), o.Codes.U8()) + differing(c.Scales.U8(), o.Scales.U8())
}
