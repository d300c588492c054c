package tensor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
)

// indexerCase is an indexer next to attention, with the shapes of both.
type indexerCase struct {
	ex   *Exec
	x    Indexer
	loss IndexLoss
	topK int

	q, k, w dense // of x
}

// indexerShapes are sequences about blocks of queries and words of keys, one with documents.
var indexerShapes = []AttentionShape{
	{Batch: 2, Seq: 5, Heads: 3},
	{Batch: 1, Seq: indexRows, Heads: 1},
	{Batch: 2, Seq: 2*indexRows + 7, Heads: 3, First: slices.Concat(documents(135, 0, 3, 63, 64, 130), documents(135, 0, 70))},
}

func newIndexerCase(g *generator, s AttentionShape, topK int) *indexerCase {
	s.KeyDim, s.Scale = 6, 0.5
	main := AttentionShape{Batch: s.Batch, Seq: s.Seq, Heads: 4, KVHeads: 2, KeyDim: 5, ValueDim: 5, Scale: 0.4, First: s.First}
	rows, width := s.Batch*s.Seq, s.Heads*s.KeyDim
	c := &indexerCase{ex: NewExec(), topK: topK}
	c.x = Indexer{AttentionShape: s, Q: g.matrix(rows, width).Matrix, K: g.matrix(rows, s.KeyDim).Matrix, W: g.of(FP32, rows, s.Heads).Matrix}
	c.loss = IndexLoss{
		Indexer: c.x, Attention: main, Queries: g.matrix(rows, 20).Matrix, Keys: g.matrix(rows, 10).Matrix, LSE: make([]float32, rows*4),
		Rows: s.Seq - 1, Weight: 0.25, Losses: make([]float64, s.Batch),
		DQ: g.matrix(rows, width).Matrix, DK: g.matrix(rows, s.KeyDim).Matrix, DW: g.of(FP32, rows, s.Heads).Matrix,
	}
	return c
}

// choose makes attention see chosen keys only.
func (c *indexerCase) choose() []uint64 {
	chosen := make([]uint64, c.x.Q.Rows*c.x.KeyWords())
	ChooseKeys(c.ex, chosen, c.topK, c.x)
	return chosen
}

// read sets the values of the operands.
func (c *indexerCase) read() { c.q, c.k, c.w = values(c.x.Q), values(c.x.K), values(c.x.W) }

// product returns that of a row of a head with the key in another row.
func (c *indexerCase) product(row, head, key int) float64 {
	return inner(part(c.q, row, head*c.x.KeyDim, c.x.KeyDim), part(c.k, key, 0, c.x.KeyDim))
}

// score returns the scores of a row for the keys [first, i], and the first one.
func (c *indexerCase) score(b, i int) (scores []float64, first int) {
	first = c.x.first(b, i)
	for j := first; j <= i; j++ {
		sum := 0.0
		for h := range c.x.Heads {
			sum += *c.w.at(b*c.x.Seq+i, h) * max(float64(c.x.Scale)*c.product(b*c.x.Seq+i, h, b*c.x.Seq+j), 0)
		}
		scores = append(scores, sum)
	}
	return scores, first
}

// TestChooseKeys: with operands of -1, 0 and 1 all scores are exact and many are equal.
func TestChooseKeys(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, s := range indexerShapes {
			for _, topK := range []int{1, 4, 20, 1000} {
				c := newIndexerCase(g, s, topK)
				for _, m := range []Matrix{c.x.Q, c.x.K, c.x.W} {
					fill(m, func() float64 { return float64(g.IntN(3) - 1) })
				}
				c.read()
				chosen := c.choose()
				for r := range c.x.Q.Rows {
					b, i := r/s.Seq, r%s.Seq
					scores, first := c.score(b, i)
					order := make([]int, len(scores))
					for j := range order {
						order[j] = j
					}
					slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(scores[y], scores[x]) })
					want := slices.Sorted(slices.Values(order[:min(topK, len(order))]))
					var got []int
					for j := range s.Seq {
						if chosen[r*c.x.KeyWords()+j/64]>>(j%64)&1 == 1 {
							got = append(got, j-first)
						}
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%+v, top %d: row %d of sequence %d chooses %v after %d, want %v", s, topK, i, b, got, first, want)
					}
				}
			}
		}
	})
}

// TestIndexLoss compares the loss and its gradients with the formulas in float64, over all keys and
// over chosen ones.
func TestIndexLoss(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, s := range indexerShapes {
			for _, sparse := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d, sparse=%t", s.Seq, sparse), func(t *testing.T) { testIndexLoss(t, newIndexerCase(g, s, 9), sparse) })
			}
		}
	})
}

func testIndexLoss(t *testing.T, c *indexerCase, sparse bool) {
	l, s := &c.loss, c.x.AttentionShape
	if sparse {
		l.Attention.Chosen = c.choose()
	}
	o := newRegion(l.Queries.dtype, l.Queries.Rows, 20, 0)
	CausalAttention(c.ex, o.Matrix, l.LSE, l.Queries, l.Keys, l.Keys, l.Attention)
	l.Compute(c.ex)
	c.read()
	dq, dk, dw := zeros(l.DQ.Rows, l.DQ.Cols), zeros(l.DK.Rows, l.DK.Cols), zeros(l.DW.Rows, l.DW.Cols)
	loss := make([]float64, s.Batch)
	attention := &naive{shape: l.Attention, q: values(l.Queries), k: values(l.Keys)}
	for r := range l.Q.Rows {
		b, i := r/s.Seq, r%s.Seq
		keys := attention.keys(b, i)
		if i >= l.Rows || len(keys) == 1 {
			continue
		}
		all, first := c.score(b, i)
		scores, target := make([]float64, len(keys)), make([]float64, len(keys))
		for j, key := range keys {
			scores[j] = all[key-b*s.Seq-first]
		}
		for h := range 4 {
			logits := make([]float64, len(keys))
			for j, key := range keys {
				logits[j] = 0.4 * inner(part(attention.q, r, h*5, 5), part(attention.k, key, h/2*5, 5))
			}
			for j, p := range softmax(logits) {
				target[j] += p / 4
			}
		}
		for j, p := range softmax(scores) {
			loss[b] += target[j] * math.Log(target[j]/p)
			d := float64(l.Weight) * (p - target[j])
			for h := range s.Heads {
				product, w := c.product(r, h, keys[j]), *c.w.at(r, h)
				if product <= 0 {
					continue
				}
				*dw.at(r, h) += d * float64(s.Scale) * product
				for e := range s.KeyDim {
					*dq.at(r, h*s.KeyDim+e) += d * w * float64(s.Scale) * *c.k.at(keys[j], e)
					*dk.at(keys[j], e) += d * w * float64(s.Scale) * *c.q.at(r, h*s.KeyDim+e)
				}
			}
		}
	}
	bound := absolute(2e-5)
	if l.Q.dtype == BF16 {
		bound = absolute(0.02)
	}
	near(t, "dq", l.DQ, dq, bound)
	near(t, "dk", l.DK, dk, bound)
	near(t, "dw", l.DW, dw, absolute(1e-5))
	for b, want := range loss {
		if math.Abs(l.Losses[b]-want) > 1e-5*(1+want) {
			t.Errorf("sequence %d: the loss is %v, want %v", b, l.Losses[b], want)
		}
	}
}
