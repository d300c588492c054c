package ep

// What the tests share: a global batch, its way through an exchange of any number of ranks, and the
// same by plain loops.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/heap"
	"spmoe/tensor"
)

// batch is one layer's work over all ranks, in global token order.
type batch struct {
	hidden, slots, experts int

	topk    []int32   // [tokens, slots]
	weights []float32 // [tokens, slots]
	x, dout []float32 // [tokens, hidden]
}

func (b *batch) tokens() int { return len(b.x) / b.hidden }

// newBatch draws a batch: a quarter of the choices masked, data from draw.
func newBatch(tokens, hidden, slots, experts int, draw func(*rand.Rand) float32) *batch {
	rng := rand.New(rand.NewPCG(uint64(tokens), uint64(experts)))
	fill := func(n int) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = draw(rng)
		}
		return s
	}
	b := &batch{
		hidden: hidden, slots: slots, experts: experts,
		topk: make([]int32, tokens*slots), weights: fill(tokens * slots),
		x: fill(tokens * hidden), dout: fill(tokens * hidden),
	}
	for i := range b.topk {
		b.topk[i] = int32(rng.IntN(experts))
		if rng.IntN(4) == 0 {
			b.topk[i] = -1
		}
	}
	return b
}

// small are numbers whose products and sums here are exact in FP32.
func small(rng *rand.Rand) float32 { return float32(rng.IntN(9) - 4) }

func normal(rng *rand.Rand) float32 { return float32(rng.NormFloat64()) }

// result is everything that comes out of a layer, over all ranks: by expert, token and slot, or by
// token.
type result struct {
	groupSizes []int32
	rows, dy   []float32 // [rows, hidden]
	out, dx    []float32 // [tokens, hidden]
	dweights   []float32 // [tokens, slots]
	y, drows   []float32 // what the experts made of rows and dy
}

func (r *result) fields() map[string][]float32 {
	return map[string][]float32{"rows": r.rows, "out": r.out, "dy": r.dy, "dweights": r.dweights, "dx": r.dx}
}

// wantSame compares bit for bit.
func (r *result) wantSame(t *testing.T, want *result) {
	t.Helper()
	if !slices.Equal(r.groupSizes, want.groupSizes) {
		t.Errorf("rows of each expert: %v, want %v", r.groupSizes, want.groupSizes)
	}
	wantFields := want.fields()
	for name, got := range r.fields() {
		want := wantFields[name]
		if len(got) != len(want) {
			t.Errorf("%s: %d elements, want %d", name, len(got), len(want))
			continue
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%s: element %d is %v, want %v", name, i, got[i], want[i])
				break
			}
		}
	}
}

// expert is what expert e does to an element, and its derivative.
func expert(e int, v float32) float32 { return float32(v*expertSlope(e)) + 1 }
func expertSlope(e int) float32       { return float32(e%3 - 1) }
func round(d tensor.DType, v float32) float32 {
	if d == tensor.BF16 {
		return tensor.ToBFloat16(v).Float32()
	}
	return v
}

// way is an exchange over a kind of ranks.
type way struct {
	name string
	make func(c *collective.Comm, experts int) (Exchange, error)
	run  func(n int, f func(c *collective.Comm) error) error
}

var (
	standard = func(c *collective.Comm, experts int) (Exchange, error) { return NewStandard(c, experts) }
	oneSided = func(c *collective.Comm, experts int) (Exchange, error) { return NewOneSided(c, experts) }

	ways = []way{
		{"standard", standard, goroutines}, {"onesided", oneSided, goroutines},
		{"standard mapped", standard, mapped}, {"onesided mapped", oneSided, mapped},
		{"standard, hosts of 2", standard, hostsOf(2)}, {"onesided, hosts of 2", oneSided, hostsOf(2)}, {"onesided, hosts of 3", oneSided, hostsOf(3)},
	}
)

// hostsOf runs ranks on hosts of so many, the last of which has the rest.
func hostsOf(each int) func(n int, f func(c *collective.Comm) error) error {
	return func(n int, f func(c *collective.Comm) error) error {
		var ranks []int
		for ; n > 0; n -= each {
			ranks = append(ranks, min(each, n))
		}
		return errors.Join(collective.NewHosts(ranks...).Run(f)...)
	}
}

func goroutines(n int, f func(c *collective.Comm) error) error { return collective.NewWorld(n).Run(f) }

// mapped gives each rank a mapping of the heap of its own, as processes have it.
func mapped(n int, f func(c *collective.Comm) error) error {
	file, err := heap.Create(heap.Whole(n), collective.ControlBytes(n), 32<<20, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			h, err := heap.Open(file)
			if err != nil {
				errs[r] = err
				return
			}
			defer h.Close()
			w, err := collective.Join(h, r)
			if err == nil {
				err = w.Run(f)
			}
			errs[r] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// newExec returns an Exec whose arena the peers reach.
func newExec(c *collective.Comm) *tensor.Exec {
	ex := tensor.NewExec()
	ex.Allocator = c.Allocator()
	return ex
}

// execs holds Execs whose memory Go has given. A new one takes 8 MB, far more than a batch needs.
var execs = sync.Pool{New: func() any { return tensor.NewExec() }}

// withExec calls f with an Exec whose arena the peers reach. What f takes from it is gone
// afterwards.
func withExec(c *collective.Comm, f func(ex *tensor.Exec) error) error {
	if c.Shared() {
		return f(newExec(c))
	}
	ex := execs.Get().(*tensor.Exec)
	ex.Allocator = c.Allocator()
	if err := f(ex); err != nil {
		return err // a peer may still read what f took
	}
	ex.Reset()
	execs.Put(ex)
	return nil
}

// dispatch is a whole dispatch, with other work in the arena between its halves.
func dispatch(s Exchange, ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (tensor.Tensor, error) {
	a, err := s.StartDispatch(ex, h, x, topk)
	if err != nil {
		return tensor.Tensor{}, err
	}
	work(ex)
	return a.Receive(ex)
}

func combineBackward(s Exchange, ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (tensor.Tensor, error) {
	a, err := s.StartCombineBackward(ex, h, dout, dweights)
	if err != nil {
		return tensor.Tensor{}, err
	}
	work(ex)
	return a.Receive(ex)
}

func work(ex *tensor.Exec) {
	scratch := ex.New(tensor.FP32, 1000).F32()
	for i := range scratch {
		scratch[i] = float32(i)
	}
}

// run takes the batch through one forward and backward pass; rank r has split[r] tokens.
func (b *batch) run(t *testing.T, by way, dtype tensor.DType, split []int) *result {
	t.Helper()
	perRank := make([]result, len(split))
	err := by.run(len(split), func(c *collective.Comm) error {
		s, err := by.make(c, b.experts)
		if err != nil {
			return err
		}
		layout, err := NewLayout(b.experts, c.Size())
		if err != nil {
			return err
		}
		return withExec(c, func(ex *tensor.Exec) error {
			return b.of(split, c.Rank()).pass(ex, s, layout, c.Rank(), dtype, &perRank[c.Rank()])
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return join(perRank)
}

// join puts the results of all ranks together.
func join(ranks []result) *result {
	var all result
	for _, r := range ranks {
		all.groupSizes = append(all.groupSizes, r.groupSizes...)
		all.rows, all.y = append(all.rows, r.rows...), append(all.y, r.y...)
		all.dy, all.drows = append(all.dy, r.dy...), append(all.drows, r.drows...)
		all.out, all.dx = append(all.out, r.out...), append(all.dx, r.dx...)
		all.dweights = append(all.dweights, r.dweights...)
	}
	return &all
}

// of returns the tokens of one rank. Rank r has split[r] tokens of the batch.
func (b *batch) of(split []int, rank int) *batch {
	lo := 0
	for _, n := range split[:rank] {
		lo += n
	}
	return b.slice(lo, lo+split[rank])
}

// slice is the part of the batch with tokens [lo, hi).
func (b *batch) slice(lo, hi int) *batch {
	part := *b
	part.topk, part.weights = b.topk[lo*b.slots:hi*b.slots], b.weights[lo*b.slots:hi*b.slots]
	part.x, part.dout = b.x[lo*b.hidden:hi*b.hidden], b.dout[lo*b.hidden:hi*b.hidden]
	return &part
}

// pass is one rank's forward and backward pass of its part of the batch.
func (b *batch) pass(ex *tensor.Exec, s Exchange, layout Layout, rank int, dtype tensor.DType, r *result) error {
	h := &Handle{}
	if err := b.forward(ex, s, h, layout, rank, dtype, r); err != nil {
		return err
	}
	return b.backward(ex, s, h, layout, rank, dtype, r)
}

func (b *batch) forward(ex *tensor.Exec, s Exchange, h *Handle, layout Layout, rank int, dtype tensor.DType, r *result) error {
	n := b.tokens()
	topk := ex.New(tensor.INT32, n, b.slots)
	copy(topk.I32(), b.topk)
	rows, err := dispatch(s, ex, h, matrix(ex, dtype, b.x, b.hidden), topk)
	if err != nil {
		return err
	}
	first, _ := layout.Local(rank)
	r.rows = numbers(rows)
	r.groupSizes = groupSizes(h)
	r.y = eachRow(h, r.rows, b.hidden, func(e int, v float32) float32 { return round(dtype, expert(first+e, v)) })

	out := ex.New(dtype, n, b.hidden)
	weights := matrix(ex, tensor.FP32, b.weights, b.slots)
	if err := s.Combine(ex, h, matrix(ex, dtype, r.y, b.hidden), weights, out); err != nil {
		return err
	}
	r.out = numbers(out)
	return nil
}

func (b *batch) backward(ex *tensor.Exec, s Exchange, h *Handle, layout Layout, rank int, dtype tensor.DType, r *result) error {
	n := b.tokens()
	first, _ := layout.Local(rank)
	dweights := ex.New(tensor.FP32, n, b.slots)
	dy, err := combineBackward(s, ex, h, matrix(ex, dtype, b.dout, b.hidden), dweights)
	if err != nil {
		return err
	}
	r.dy, r.dweights = numbers(dy), numbers(dweights)
	r.drows = eachRow(h, r.dy, b.hidden, func(e int, v float32) float32 { return round(dtype, v*expertSlope(first+e)) })

	dx := ex.New(dtype, n, b.hidden)
	if err := s.DispatchBackward(ex, h, matrix(ex, dtype, r.drows, b.hidden), dx); err != nil {
		return err
	}
	r.dx = numbers(dx)
	return nil
}

// matrix is data as a tensor [len/cols, cols].
func matrix(ex *tensor.Exec, dtype tensor.DType, data []float32, cols int) tensor.Tensor {
	t := ex.New(dtype, len(data)/cols, cols)
	if dtype == tensor.FP32 {
		copy(t.F32(), data)
		return t
	}
	for i, v := range data {
		t.BF16()[i] = tensor.ToBFloat16(v)
	}
	return t
}

// numbers is a copy of t's elements.
func numbers(t tensor.Tensor) []float32 {
	if t.DType() == tensor.FP32 {
		return slices.Clone(t.F32())
	}
	var all []float32
	for _, b := range t.BF16() {
		all = append(all, b.Float32())
	}
	return all
}

func groupSizes(h *Handle) []int32 {
	sizes, start := make([]int32, len(h.GroupEnds)), int32(0)
	for e, end := range h.GroupEnds {
		sizes[e], start = end-start, end
	}
	return sizes
}

// eachRow applies f to every element of the rows of each local expert.
func eachRow(h *Handle, rows []float32, hidden int, f func(e int, v float32) float32) []float32 {
	out, i := make([]float32, len(rows)), 0
	for e, end := range h.GroupEnds {
		for ; i < int(end)*hidden; i++ {
			out[i] = f(e, rows[i])
		}
	}
	return out
}

// reference does the same by plain loops over experts, tokens and slots. Inner products are in
// FP64: exact for the data from small.
func (b *batch) reference(dtype tensor.DType) *result {
	n := b.tokens()
	r := &result{groupSizes: make([]int32, b.experts), dweights: make([]float32, n*b.slots)}
	for e := range b.experts {
		for i, chosen := range b.topk {
			if int(chosen) != e {
				continue
			}
			r.groupSizes[e]++
			x, dout := b.x[i/b.slots*b.hidden:][:b.hidden], b.dout[i/b.slots*b.hidden:][:b.hidden]
			dw := 0.0
			for j := range b.hidden {
				r.rows = append(r.rows, round(dtype, x[j]))
				r.dy = append(r.dy, round(dtype, b.weights[i]*round(dtype, dout[j])))
				dw += float64(round(dtype, dout[j])) * float64(round(dtype, expert(e, round(dtype, x[j]))))
			}
			r.dweights[i] = float32(dw)
		}
	}
	for t := range n {
		for j := range b.hidden {
			var out, dx float32
			for k := t * b.slots; k < (t+1)*b.slots; k++ {
				if e := int(b.topk[k]); e >= 0 {
					out += float32(b.weights[k] * round(dtype, expert(e, round(dtype, b.x[t*b.hidden+j]))))
					dy := round(dtype, b.weights[k]*round(dtype, b.dout[t*b.hidden+j]))
					dx += round(dtype, dy*expertSlope(e))
				}
			}
			r.out, r.dx = append(r.out, round(dtype, out)), append(r.dx, round(dtype, dx))
		}
	}
	return r
}

// splits are ways to divide tokens among np ranks: evenly, unevenly, all on the last rank, every
// other rank empty.
func splits(tokens, np int) map[string][]int {
	even, ramp, last, gaps := make([]int, np), make([]int, np), make([]int, np), make([]int, np)
	for r := range np {
		even[r] = tokens*(r+1)/np - tokens*r/np
		ramp[r] = tokens*(r+1)*(r+1)/np/np - tokens*r*r/np/np
		gaps[r&^1] += even[r]
	}
	last[np-1] = tokens
	return map[string][]int{"even": even, "ramp": ramp, "last": last, "gaps": gaps}
}

// forRanks runs f for all ways, both types (of 2 and 4 ranks one) and every split of the tokens.
func forRanks(t *testing.T, tokens int, f func(t *testing.T, by way, dtype tensor.DType, split []int)) {
	for _, by := range ways {
		for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
			for _, np := range []int{1, map[tensor.DType]int{tensor.FP32: 2, tensor.BF16: 4}[dtype], 8} {
				for name, split := range splits(tokens, np) {
					t.Run(fmt.Sprintf("%s/%v/np%d/%s", by.name, dtype, np, name), func(t *testing.T) { f(t, by, dtype, split) })
				}
			}
		}
	}
}
