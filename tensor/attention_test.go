package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Shapes about the blocks of query rows and of keys; head widths that differ and are no vector's
// width.
var attentionShapes = []AttentionShape{
	{Batch: 1, Seq: 1, Heads: 1, KeyDim: 3, ValueDim: 5, Scale: 0.5},
	{Batch: 2, Seq: 5, Heads: 3, KeyDim: 4, ValueDim: 7, Scale: 0.5},
	{Batch: 1, Seq: 64, Heads: 2, KeyDim: 24, ValueDim: 16, Scale: 0.2},
	{Batch: 3, Seq: 65, Heads: 1, KeyDim: 8, ValueDim: 8, Scale: 1},
	{Batch: 2, Seq: 150, Heads: 2, KeyDim: 17, ValueDim: 33, Scale: 0.3},
	{Batch: 1, Seq: 5, Heads: 2, KeyDim: 4, ValueDim: 4, Scale: 0.5, First: documents(5, 0, 1, 4)},
	{Batch: 3, Seq: 150, Heads: 2, KeyDim: 8, ValueDim: 5, Scale: 0.4, First: slices.Concat(documents(150, 0, 3, 63, 64, 130), documents(150, 0), documents(150, 0, 65, 149))},
	{Batch: 1, Seq: forwardKeys + 1, Heads: 1, KeyDim: 3, ValueDim: 5, Scale: 0.5},
	{Batch: 2, Seq: 2*forwardKeys + 70, Heads: 1, KeyDim: 4, ValueDim: 3, Scale: 0.7, First: slices.Concat(documents(1094, 0, 200, 500, 900), documents(1094, 0, 511, 512, 1093))},
	{Batch: 1, Seq: longSequence + 77, Heads: 1, KeyDim: 3, ValueDim: 2, Scale: 0.6},
	{Batch: 1, Seq: longSequence + 200, Heads: 1, KeyDim: 2, ValueDim: 3, Scale: 0.6, First: documents(2248, 0, 1100, 1200, 2000, 2175)},
	choosing(AttentionShape{Batch: 2, Seq: 150, Heads: 2, KeyDim: 8, ValueDim: 5, Scale: 0.4, First: slices.Concat(documents(150, 0, 63, 100), documents(150, 0, 65))}),
	choosing(AttentionShape{Batch: 1, Seq: 2*forwardKeys + 70, Heads: 2, KeyDim: 4, ValueDim: 3, Scale: 0.7}),
	thirdOfWords(choosing(AttentionShape{Batch: 1, Seq: 2*backwardKeys + 77, Heads: 1, KeyDim: 4, ValueDim: 3, Scale: 0.7, Extra: 2*forwardKeys + 9, Sinks: []float32{1}})),
	choosing(AttentionShape{Batch: 2, Seq: 70, Heads: 3, KeyDim: 4, ValueDim: 3, Scale: 0.7, Extra: 100, Sinks: []float32{-1, 0.5, 30}}),
	{Batch: 2, Seq: 5, Heads: 2, KeyDim: 4, ValueDim: 3, Scale: 0.7, Extra: 1, Sinks: []float32{-3, 2}, SinkGradients: make([]float32, 4)},
}

// choosing adds choices to a shape: every row has its own position, and others at random, later
// ones too. A third of the rows chooses no key before the last 100. With sinks, half of the rows
// chooses none of its own position and the 20 before.
func choosing(s AttentionShape) AttentionShape {
	r, words := rand.New(rand.NewPCG(1, 2)), s.KeyWords()
	s.Chosen, s.SinkGradients = make([]uint64, s.Batch*s.Seq*words), make([]float32, s.Batch*s.Heads)
	for n := range s.Batch * s.Seq {
		row, i := s.Chosen[n*words:(n+1)*words], n%s.Seq
		lacks := s.Sinks != nil && i%2 == 0
		for j := range s.keys() {
			near := lacks && j > i-20 && j <= i
			if j == i && !lacks || r.IntN(5) == 0 && (i%3 != 0 || j > i-100) && !near {
				row[j/64] |= 1 << (j % 64)
			}
		}
	}
	return s
}

// thirdOfWords leaves blocks of rows the choices in every third word only, and one row the last key
// of each third, so that tiles have keys at their ends, or only keys, that none of their rows has
// chosen. Every second block has no choices in the last words, and every fourth none in the first.
func thirdOfWords(s AttentionShape) AttentionShape {
	words, most := s.KeyWords(), s.queryRows()
	for at := range s.Chosen {
		row, word := at/words, at%words
		block := row / most
		switch kind := (word + block) % 3; {
		case kind == 1 || block%2 == 0 && word > words-10 || block%4 == 3 && word < backwardKeys/64:
			s.Chosen[at] = 0
		case kind == 2 && row%most > 0:
			s.Chosen[at] = 0
		case kind == 2:
			s.Chosen[at] = 1 << 63
		}
	}
	return s
}

// documents returns the first position that each row of a sequence sees whose documents begin at
// the given positions.
func documents(seq int, begins ...int) []int32 {
	first := make([]int32, seq)
	for _, at := range begins {
		for i := at; i < seq; i++ {
			first[i] = int32(at)
		}
	}
	return first
}

// attention is the operands and results of one call and its backward pass.
type attention struct {
	ex             *Exec
	shape          AttentionShape
	q, k, v, o     region
	dq, dk, dv, do region
	lse, top       []float32
}

func newAttention(g *generator, s AttentionShape) *attention {
	rows, keys, key, value := s.Batch*s.Seq, s.Batch*s.keys(), s.Heads*s.KeyDim, s.Heads*s.ValueDim
	return &attention{
		ex: NewExec(), shape: s, lse: make([]float32, rows*s.Heads), top: make([]float32, rows*s.Heads),
		q: g.matrix(rows, key), k: g.matrix(keys, key), v: g.matrix(keys, value), o: g.matrix(rows, value),
		dq: g.matrix(rows, key), dk: g.matrix(keys, key), dv: g.matrix(keys, value), do: g.matrix(rows, value),
	}
}

func (a *attention) forward() {
	CausalAttentionTop(a.ex, a.o.Matrix, a.lse, a.top, a.q.Matrix, a.k.Matrix, a.v.Matrix, a.shape)
}

func (a *attention) backward() {
	CausalAttentionBackward(a.ex, a.dq.Matrix, a.dk.Matrix, a.dv.Matrix, a.do.Matrix,
		a.q.Matrix, a.k.Matrix, a.v.Matrix, a.o.Matrix, a.lse, a.shape)
}

// roundings is the relative error that rounding to the operands' type brings into a term: of
// the probabilities, of what is computed from rounded outputs, of the gradients of scores.
func (a *attention) roundings() float64 {
	if a.q.dtype == BF16 {
		return 4 * unit(BF16)
	}
	return 2e-5
}

// sizes adds up the absolute values of the terms of every result.
type sizes struct{ o, dq, dk, dv dense }

// naive computes attention and its gradients row by row from the definition.
type naive struct {
	shape         AttentionShape
	forwardOnly   bool
	q, k, v, do   dense
	o, dq, dk, dv dense
	lse, top      []float64
	sinks         []float64 // gradients, [batch·heads]
	mag           sizes
}

func (a *attention) naive(forwardOnly bool) *naive {
	n := &naive{shape: a.shape, forwardOnly: forwardOnly, q: values(a.q.Matrix), k: values(a.k.Matrix), v: values(a.v.Matrix), do: values(a.do.Matrix)}
	n.compute()
	return n
}

func (n *naive) compute() {
	s := n.shape
	rows, keys, key, value := n.q.rows, n.k.rows, n.q.cols, n.v.cols
	n.o, n.dq, n.dk, n.dv = zeros(rows, value), zeros(rows, key), zeros(keys, key), zeros(keys, value)
	n.mag = sizes{zeros(rows, value), zeros(rows, key), zeros(keys, key), zeros(keys, value)}
	n.sinks = make([]float64, s.Batch*s.Heads)
	n.lse, n.top = make([]float64, 0, rows*s.Heads), make([]float64, 0, rows*s.Heads)
	for b := range s.Batch {
		seen := make([][]int, s.Seq)
		for i := range seen {
			seen[i] = n.keys(b, i)
		}
		for h := range s.Heads {
			for i, keys := range seen {
				n.row(keys, b*s.Seq+i, b*s.Heads+h)
			}
		}
	}
}

// keys returns the rows of the keys that row i of sequence b attends to.
func (n *naive) keys(b, i int) (rows []int) {
	s := n.shape
	rows = make([]int, 0, s.keys())
	for j := range s.keys() {
		chosen := s.Chosen == nil || s.Chosen[(b*s.Seq+i)*s.KeyWords()+j/64]>>(j%64)&1 == 1
		if own := j >= s.first(b, i) && j <= i; chosen && (own || j >= s.Seq) {
			rows = append(rows, b*s.keys()+j)
		}
	}
	return rows
}

// row handles the query in row i, which sees the given rows, in one head of a sequence.
func (n *naive) row(keys []int, i, head int) {
	s, scale := n.shape, float64(n.shape.Scale)
	qc, vc := head%s.Heads*s.KeyDim, head%s.Heads*s.ValueDim
	scores, query := make([]float64, len(keys)), part(n.q, i, qc, s.KeyDim)
	for j, key := range keys {
		scores[j] = scale * inner(query, part(n.k, key, qc, s.KeyDim))
	}
	if s.Sinks != nil {
		scores = append(scores, float64(s.Sinks[head%s.Heads]))
	}
	p := softmax(scores)
	sink := append(p, 0)[len(keys)]
	p, scores = p[:len(keys)], scores[:len(keys)]
	top := slices.Index(p, slices.Max(p))
	n.lse, n.top = append(n.lse, scores[top]-math.Log(p[top])), append(n.top, scores[top])
	o, size := part(n.o, i, vc, s.ValueDim), part(n.mag.o, i, vc, s.ValueDim)
	for j := range p {
		for d, x := range part(n.v, keys[j], vc, s.ValueDim).v {
			o.v[d] += p[j] * x
			size.v[d] += math.Abs(p[j] * x)
		}
	}
	if n.forwardOnly {
		return
	}
	do := part(n.do, i, vc, s.ValueDim)
	dp, terms, delta, deltaSize := make([]float64, len(p)), make([]float64, len(p)), 0.0, 0.0
	for j, key := range keys {
		dv, magnitude := part(n.dv, key, vc, s.ValueDim), part(n.mag.dv, key, vc, s.ValueDim)
		for d, x := range part(n.v, key, vc, s.ValueDim).v {
			dv.v[d] += p[j] * do.v[d]
			magnitude.v[d] += math.Abs(p[j] * do.v[d])
			dp[j] += do.v[d] * x
			terms[j] += math.Abs(do.v[d] * x)
		}
		delta += p[j] * dp[j]
		deltaSize += p[j] * terms[j]
	}
	n.sinks[head] -= sink * delta
	dq, magDQ := part(n.dq, i, qc, s.KeyDim), part(n.mag.dq, i, qc, s.KeyDim)
	for j, key := range keys {
		ds, size := scale*p[j]*(dp[j]-delta), scale*p[j]*(terms[j]+deltaSize)
		dk, magDK := part(n.dk, key, qc, s.KeyDim), part(n.mag.dk, key, qc, s.KeyDim)
		for d, k := range part(n.k, key, qc, s.KeyDim).v {
			dq.v[d] += ds * k
			magDQ.v[d] += math.Abs(size * k)
			dk.v[d] += ds * query.v[d]
			magDK.v[d] += math.Abs(size * query.v[d])
		}
	}
}

// part is width columns from c on of row r.
func part(m dense, r, c, width int) dense { return dense{1, width, m.row(r)[c : c+width]} }

func TestCausalAttention(t *testing.T) {
	for _, dtype := range floats {
		for i, s := range attentionShapes {
			if s.Seq > longSequence && dtype != floats[i%2] {
				continue // what is long has the same loops for both types
			}
			var want *naive // the same for all margins
			for _, margin := range margins {
				t.Run(fmt.Sprintf("%v/%dx%dx%d/margin=%d", dtype, s.Batch, s.Seq, s.Heads, margin), func(t *testing.T) {
					a := newAttention(&generator{rand.New(rand.NewPCG(uint64(dtype), uint64(i))), dtype, margin}, s)
					if want == nil {
						want = a.naive(false)
					}
					a.forward()
					a.compareForward(t, want)
					a.backward()
					if a.ex.Mark() != (Mark{}) {
						t.Error("scratch memory was not released")
					}
					near(t, "dv", a.dv.Matrix, want.dv, scaled(want.mag.dv, a.roundings()))
					near(t, "dq", a.dq.Matrix, want.dq, scaled(want.mag.dq, a.roundings()))
					near(t, "dk", a.dk.Matrix, want.dk, scaled(want.mag.dk, a.roundings()))
					if s.Sinks != nil {
						near(t, "sinks", vectorOf(s.SinkGradients), dense{1, len(want.sinks), want.sinks}, absolute(a.roundings()*float64(s.Seq)))
					}
					for _, r := range []region{a.o, a.dq, a.dk, a.dv} {
						r.intact(t)
					}
				})
			}
		}
	}
}

func (a *attention) compareForward(t *testing.T, want *naive) {
	t.Helper()
	near(t, "o", a.o.Matrix, want.o, scaled(want.mag.o, a.roundings()))
	near(t, "lse", vectorOf(a.lse), dense{1, len(want.lse), want.lse}, absolute(1e-5))
	near(t, "top", vectorOf(a.top), dense{1, len(want.top), want.top}, absolute(1e-5))
}

// TestAttentionRescales: scores that grow from key block to key block, slowly or so fast that
// nothing is left of the earlier ones, give the softmax of all.
func TestAttentionRescales(t *testing.T) {
	s := AttentionShape{Batch: 1, Seq: 2*forwardKeys + 5, Heads: 1, KeyDim: 1, ValueDim: 2, Scale: 1}
	for _, dtype := range floats {
		for _, growth := range []float64{0x1p-9, 0x1p-6, 1, 0x1p20, -0x1p-6} {
			a := newAttention(newGenerator(dtype, 0), s)
			for i := range s.Seq {
				set(a.q.Matrix, i, 0, 1)
				set(a.k.Matrix, i, 0, growth*float64(i))
			}
			want := a.naive(true)
			a.forward()
			a.compareForward(t, want)
		}
	}
}

// TestAttentionOnThreads: results have the same bits whether threads take whole heads or share the
// blocks of each.
func TestAttentionOnThreads(t *testing.T) {
	s := AttentionShape{Batch: 1, Seq: 12*backwardKeys + 100, Heads: 2, KeyDim: 8, ValueDim: 16, Scale: 0.3}
	s.First = documents(s.Seq, 0, 300, 1400)
	testOnThreads(t, s)
	s.Extra, s.Sinks = backwardKeys+70, []float32{0, 1}
	testOnThreads(t, thirdOfWords(choosing(s)))
}

// TestBlockBefore: the sums of queries go through all key blocks that they see, in order.
func TestBlockBefore(t *testing.T) {
	s := AttentionShape{Seq: 3*backwardKeys + 70, Extra: backwardKeys + 1}
	for lo := 0; lo < s.Seq; lo += queryBlock {
		last := -1
		for block := range s.keyBlocks() {
			if _, _, query := s.keyBlock(block); query > lo {
				continue
			}
			if before := s.blockBefore(block, lo); block > 0 && before != last {
				t.Errorf("queries from %d: block %d goes on after block %d, want %d", lo, block, before, last)
			}
			last = block
		}
	}
}

func testOnThreads(t *testing.T, s AttentionShape) {
	for i, dtype := range floats {
		a := newAttention(newGenerator(dtype, 0), s)
		a.forward()
		a.backward()
		results := []Matrix{a.o.Matrix, a.dq.Matrix, a.dk.Matrix, a.dv.Matrix, vectorOf(a.lse)}
		var want []dense
		for _, m := range results {
			want = append(want, values(m))
		}
		threads := 2 + i
		a.ex = NewParallelExec(threads)
		if !s.sharesHeads(threads) {
			t.Errorf("%d threads do not share heads", threads)
		}
		a.forward()
		a.backward()
		a.ex.Close()
		for i, m := range results[:4] {
			same(t, fmt.Sprintf("%v, result %d on %d threads", dtype, i, threads), m, want[i])
		}
		same(t, "lse", vectorOf(a.lse), want[4])
	}
}
