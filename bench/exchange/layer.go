package exchange

// The exchange of one layer, ordinary and one-sided.

import (
	"fmt"
	"math/rand/v2"

	"spmoe/bench"
	"spmoe/collective/ep"
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
	sh.experts = (sh.experts + n - 1) / n * n // enough for all ranks
	standard, err := newLayer(s, "standard", sh)
	if err != nil {
		return err
	}
	oneSided, err := newLayer(s, "onesided", sh)
	if err != nil {
		return err
	}
	times, err := s.turns(1, standard.dispatch, standard.combine, oneSided.dispatch, oneSided.combine)
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
	if s.lead() {
		ratio := bench.MedianRatio(both(times[0], times[1]), both(times[2], times[3]))
		s.yield(Result{
			Name:  fmt.Sprintf("onesided_over_standard_%v", sh),
			Unit:  "x",
			Wrong: wrong,
			Value: ratio,
		})
	}
	return nil
}

// layer is one rank's end of a layer whose experts are the identity.
type layer struct {
	ep.Exchange
	name                        string
	ex                          *tensor.Exec
	h                           ep.Handle
	x, topk, weights, rows, out tensor.Tensor
}

func newLayer(s *suite, name string, sh shape) (*layer, error) {
	exchange, err := ep.New(name, s.comm, sh.experts, ep.Options{})
	if err != nil {
		return nil, err
	}
	l := &layer{
		Exchange: exchange,
		name:     name,
		ex:       tensor.NewExec(),
		x:        s.ex.New(tensor.BF16, sh.tokens, sh.hidden),
		out:      s.ex.New(tensor.BF16, sh.tokens, sh.hidden),
		topk:     s.ex.New(tensor.INT32, sh.tokens, sh.slots),
		weights:  s.ex.New(tensor.FP32, sh.tokens, sh.slots),
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
