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

func (s AttentionShape) check(q, k, v, o Matrix, lse []float32) {
	rows := s.Batch * s.Seq
	if q.Rows != rows || k.Rows != rows || v.Rows != rows || o.Rows != rows ||
		q.Cols != s.Heads*s.KeyDim || k.Cols != q.Cols || v.Cols != s.Heads*s.ValueDim || o.Cols != v.Cols ||
		len(lse) != rows*s.Heads {
		panic(fmt.Sprintf("tensor: attention %+v over q [%d, %d], k [%d, %d], v [%d, %d], o [%d, %d], lse [%d]",
			s, q.Rows, q.Cols, k.Rows, k.Cols, v.Rows, v.Cols, o.Rows, o.Cols, len(lse)))
	}
}

// CausalAttention computes o = softmax(scale·q·kᵀ)·v, every row seeing the rows up to its own.
//
// q, k: [batch·seq, heads·keyDim], v, o: [batch·seq, heads·valueDim], one element type;
// lse: [batch·heads·seq] receives each row's log-sum-exp for the backward pass.
func CausalAttention(ex *Exec, o Matrix, lse []float32, q, k, v Matrix, s AttentionShape) {
	s.check(q, k, v, o, lse)
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	scores := ex.New(FP32, block*s.Seq)
	operand := ex.New(q.dtype, block*s.Seq)
	out := ex.New(FP32, block, s.ValueDim)
	for b := range s.Batch {
		for h := range s.Heads {
			qh, kh := s.head(q, b, h, s.KeyDim), s.head(k, b, h, s.KeyDim)
			vh, oh := s.head(v, b, h, s.ValueDim), s.head(o, b, h, s.ValueDim)
			rowLSE := lse[(b*s.Heads+h)*s.Seq:]
			for lo := 0; lo < s.Seq; lo += block {
				hi := min(lo+block, s.Seq)
				sc := tile(scores, hi-lo, hi)
				ob := out.Slice(0, hi-lo).Mat()
				MatMul(ex, sc, qh.RowSlice(lo, hi), kh.RowSlice(0, hi).T())
				inverse := ex.scratchRow(3, hi-lo)
				for i := range hi - lo {
					inverse[i] = softmaxRow(sc.f32Row(i), lo+i+1, s.Scale, &rowLSE[lo+i])
				}
				MatMul(ex, ob, asOperand(ex, operand, sc), vh.RowSlice(0, hi))
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

// asOperand returns m in the element type of scratch: itself, or rounded into scratch.
func asOperand(ex *Exec, scratch Tensor, m Matrix) Matrix {
	if scratch.dtype == m.dtype {
		return m
	}
	rounded := tile(scratch, m.Rows, m.Cols)
	Convert(ex, rounded, m)
	return rounded
}

// softmaxRow turns the first n scores of a row into exp(scale·score - max) and the others into
// zeros. It returns the inverse of their sum, by which the output is scaled later.
func softmaxRow(row []float32, n int, scale float32, lse *float32) float32 {
	top := scale * vec.Max(row[:n])
	sum := vec.ExpSum(row[:n], scale, row[:n], top)
	clear(row[n:])
	*lse = top + float32(math.Log(float64(sum)))
	return 1 / sum
}

// CausalAttentionBackward computes dq, dk and dv from do and what CausalAttention saw and gave.
//
// With p = exp(scale·q·kᵀ - lse): dv = pᵀ·do, dp = do·vᵀ, ds = scale·p·(dp - rowsum(do·o)),
// dq = ds·k, dk = dsᵀ·q; the sums over query blocks are held in FP32.
func CausalAttentionBackward(ex *Exec, dq, dk, dv, do, q, k, v, o Matrix, lse []float32, s AttentionShape) {
	s.check(q, k, v, o, lse)
	s.check(dq, dk, dv, do, lse)
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	t := backwardTiles{
		probs: ex.New(FP32, block*s.Seq), dscores: ex.New(FP32, block*s.Seq),
		operand: ex.New(q.dtype, block*s.Seq),
		dk:      ex.New(FP32, s.Seq, s.KeyDim), dv: ex.New(FP32, s.Seq, s.ValueDim),
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
	probs, dscores Tensor // of one query block
	operand        Tensor // either of them, rounded for a product
	dk, dv         Tensor
}

// backward handles query rows [lo, hi) of one head.
func (t backwardTiles) backward(ex *Exec, p headProblem, lo, hi int, scale float32) {
	probs, dscores := tile(t.probs, hi-lo, hi), tile(t.dscores, hi-lo, hi)
	q, do, o := p.q.RowSlice(lo, hi), p.do.RowSlice(lo, hi), p.o.RowSlice(lo, hi)
	k, v := p.k.RowSlice(0, hi), p.v.RowSlice(0, hi)
	MatMul(ex, probs, q, k.T())
	MatMul(ex, dscores, do, v.T())
	for i := range hi - lo {
		n := lo + i + 1
		delta := vec.Dot(ex.load(0, do, i), ex.load(1, o, i))
		prob, dscore := probs.f32Row(i), dscores.f32Row(i)
		vec.ExpSum(prob[:n], scale, prob[:n], p.lse[lo+i])
		vec.SoftmaxBackward(dscore[:n], scale, prob[:n], dscore[:n], delta)
		clear(prob[n:])
		clear(dscore[n:])
	}
	MatMulAdd(ex, t.dv.Slice(0, hi).Mat(), asOperand(ex, t.operand, probs).T(), do)
	ds := asOperand(ex, t.operand, dscores)
	MatMul(ex, p.dq.RowSlice(lo, hi), ds, k)
	MatMulAdd(ex, t.dk.Slice(0, hi).Mat(), ds.T(), q)
}
