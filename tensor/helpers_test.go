package tensor

import (
	"math/rand/v2"
	"math"
)

var floats = []DType{FP32, BF16}

func random(seed uint64, dtype DType, dims ...int) Tensor {
	r := rand.New(rand.NewPCG(seed, 0))
	t := New(dtype, dims...)
	for i := range t.Len() {
		if dtype == BF16 {
			t.BF16()[i] = ToBFloat16(float32(r.NormFloat64()))
		} else {
			t.F32()[i] = float32(r.NormFloat64())
		}
	}
	return t
}

func rotaryFrequencies(pairs int) []float64 {
	freq := make([]float64, pairs)
	for i := range freq {
		freq[i] = math.Pow(10000, -float64(i)/float64(pairs))
	}
	return freq
}

type attention struct {
	ex                             *Exec
	q, k, v, o, do, dq, dk, dv Tensor
	lse []float32
}

func newAttention(dtype DType, s AttentionShape) *attention {
	rows := s.Batch * s.Seq
	key, value := s.Heads*s.KeyDim, s.Heads*s.ValueDim
	return &attention{ex: NewExec(),
		q: random(1, dtype, rows, key), k: random(2, dtype, rows, key), v: random(3, dtype, rows, value),
		do: random(4, dtype, rows, value), o: New(dtype, rows, value),
		dq: New(dtype, rows, key), dk: New(dtype, rows, key), dv: New(dtype, rows, value),
		lse: make([]float32, rows*s.Heads)}
}

func (a *attention) forward(s AttentionShape) {
	CausalAttention(a.ex, a.o.Mat(), a.lse, a.q.Mat(), a.k.Mat(), a.v.Mat(), s)
}

func (a *attention) backward(s AttentionShape) {
	CausalAttentionBackward(a.ex, a.dq.Mat(), a.dk.Mat(), a.dv.Mat(), a.do.Mat(), a.q.Mat(), a.k.Mat(), a.v.Mat(), a.o.Mat(), a.lse, s)
}
