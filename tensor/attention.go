package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// Causal attention by blocks of query rows: the scores of one block against the keys before
// it are all that is ever held, and the backward pass computes them again from the saved
// log-sum-exp of each row.

// queryBlock is the number of query rows whose scores are held at once.
const queryBlock = 64

// AttentionShape describes a batch of causal attention problems.
type AttentionShape struct {
	Batch, Seq, Heads int
	KeyDim, ValueDim  int     // per head
	Scale             float32 // of the scores, before the softmax
}

// head returns the rows of sequence b and the columns of head h, dim columns a head.
func (s AttentionShape) head(m Matrix, b, h, dim int) Matrix {
	return m.RowSlice(b*s.Seq, (b+1)*s.Seq).ColSlice(h*dim, (h+1)*dim)
}

func (s AttentionShape) check(q, k, v, o Matrix) {
	rows := s.Batch * s.Seq
	if q.Rows != rows || k.Rows != rows || v.Rows != rows || o.Rows != rows ||
		q.Cols != s.Heads*s.KeyDim || k.Cols != q.Cols || v.Cols != s.Heads*s.ValueDim || o.Cols != v.Cols {
		panic(fmt.Sprintf("tensor: attention %+v over q [%d, %d], k [%d, %d], v [%d, %d], o [%d, %d]",
			s, q.Rows, q.Cols, k.Rows, k.Cols, v.Rows, v.Cols, o.Rows, o.Cols))
	}
}

// CausalAttention computes o = softmax(scale·q·kᵀ)·v, every row seeing the rows up to its own.
//
// q, k: [batch·seq, heads·keyDim], v, o: [batch·seq, heads·valueDim], one element type;
// lse: [batch·heads·seq] receives each row's log-sum-exp for the backward pass.
func CausalAttention(ex *Exec, o Matrix, lse []float32, q, k, v Matrix, s AttentionShape) {
	s.check(q, k, v, o)
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	scores := ex.New(FP32, block*s.Seq)
	probs := ex.New(q.dtype, block*s.Seq)
	out := ex.New(FP32, block, s.ValueDim)
	for b := range s.Batch {
		for h := range s.Heads {
			qh, kh := s.head(q, b, h, s.KeyDim), s.head(k, b, h, s.KeyDim)
			vh, oh := s.head(v, b, h, s.ValueDim), s.head(o, b, h, s.ValueDim)
			rowLSE := lse[(b*s.Heads+h)*s.Seq:]
			for lo := 0; lo < s.Seq; lo += block {
				hi := min(lo+block, s.Seq)
				sc, pr := tile(scores, hi-lo, hi), tile(probs, hi-lo, hi)
				ob := out.Slice(0, hi-lo).Mat()
				MatMul(ex, sc, qh.RowSlice(lo, hi), kh.RowSlice(0, hi).T())
				inverse := ex.scratchRow(3, hi-lo)
				for i := range hi - lo {
					inverse[i] = softmaxRow(ex, pr, sc, i, lo+i+1, s.Scale, &rowLSE[lo+i])
				}
				MatMul(ex, ob, pr, vh.RowSlice(0, hi))
				for i := range hi - lo {
					row := ob.f32Row(i)
					vec.Scale(row, inverse[i], row)
				}
				Convert(ex, oh.RowSlice(lo, hi), ob)
			}
		}
	}
}

// tile views the first rows·cols elements of a flat scratch tensor as a matrix.
func tile(t Tensor, rows, cols int) Matrix { return t.Slice(0, rows*cols).Reshape(rows, cols).Mat() }

// softmaxRow writes exp(scale·score - max) of the first n scores of row i to probs and zeros
// behind them. It returns the inverse of their sum, by which the output is scaled later.
func softmaxRow(ex *Exec, probs, scores Matrix, i, n int, scale float32, lse *float32) float32 {
	row := scores.f32Row(i)
	top := scale * vec.Max(row[:n])
	out := ex.target(0, probs, i)
	sum := vec.ExpSum(out[:n], scale, row[:n], top)
	clear(out[n:])
	ex.store(probs, i, out)
	*lse = top + float32(math.Log(float64(sum)))
	return 1 / sum
}

// CausalAttentionBackward computes dq, dk and dv from do and what CausalAttention saw and gave.
//
// With p = exp(scale·q·kᵀ - lse): dv = pᵀ·do, dp = do·vᵀ, ds = scale·p·(dp - rowsum(do·o)),
// dq = ds·k, dk = dsᵀ·q; the sums over query blocks are held in FP32.
func CausalAttentionBackward(ex *Exec, dq, dk, dv, do, q, k, v, o Matrix, lse []float32, s AttentionShape) {
	s.check(dq, dk, dv, do)
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	t := backwardTiles{
		scores: ex.New(FP32, block*s.Seq), probs: ex.New(q.dtype, block*s.Seq),
		dprobs: ex.New(FP32, block*s.Seq), dscores: ex.New(q.dtype, block*s.Seq),
		dk: ex.New(FP32, s.Seq, s.KeyDim), dv: ex.New(FP32, s.Seq, s.ValueDim),
	}
	for b := range s.Batch {
		for h := range s.Heads {
			p := headProblem{
				q: s.head(q, b, h, s.KeyDim), k: s.head(k, b, h, s.KeyDim), dq: s.head(dq, b, h, s.KeyDim),
				v: s.head(v, b, h, s.ValueDim), o: s.head(o, b, h, s.ValueDim), do: s.head(do, b, h, s.ValueDim),
				lse: lse[(b*s.Heads+h)*s.Seq:][:s.Seq],
			}
			t.dk.Zero()
			t.dv.Zero()
			for lo := 0; lo < s.Seq; lo += block {
				t.backward(ex, p, lo, min(lo+block, s.Seq), s.Scale)
			}
			Convert(ex, s.head(dk, b, h, s.KeyDim), t.dk.Mat())
			Convert(ex, s.head(dv, b, h, s.ValueDim), t.dv.Mat())
		}
	}
}

// headProblem is one head of one sequence.
type headProblem struct {
	q, k, v, o, do, dq Matrix
	lse                []float32
}

// backwardTiles is the scratch of CausalAttentionBackward.
type backwardTiles struct {
	scores, probs, dprobs, dscores Tensor
	dk, dv                         Tensor
}

// backward handles query rows [lo, hi) of one head.
func (t backwardTiles) backward(ex *Exec, p headProblem, lo, hi int, scale float32) {
	sc, pr := tile(t.scores, hi-lo, hi), tile(t.probs, hi-lo, hi)
	dp, ds := tile(t.dprobs, hi-lo, hi), tile(t.dscores, hi-lo, hi)
	q, do, o := p.q.RowSlice(lo, hi), p.do.RowSlice(lo, hi), p.o.RowSlice(lo, hi)
	k, v := p.k.RowSlice(0, hi), p.v.RowSlice(0, hi)
	MatMul(ex, sc, q, k.T())
	MatMul(ex, dp, do, v.T())
	for i := range hi - lo {
		n := lo + i + 1
		delta := vec.Dot(ex.load(0, do, i), ex.load(1, o, i))
		prob := ex.target(0, pr, i)
		vec.ExpSum(prob[:n], scale, sc.f32Row(i)[:n], p.lse[lo+i])
		clear(prob[n:])
		ex.store(pr, i, prob)
		dscore := ex.target(1, ds, i)
		vec.SoftmaxBackward(dscore[:n], scale, prob[:n], dp.f32Row(i)[:n], delta)
		clear(dscore[n:])
		ex.store(ds, i, dscore)
	}
	MatMul(ex, p.dq.RowSlice(lo, hi), ds, k)
	MatMulAdd(ex, t.dk.Slice(0, hi).Mat(), ds.T(), q)
	MatMulAdd(ex, t.dv.Slice(0, hi).Mat(), pr.T(), do)
}
