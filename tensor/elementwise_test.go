package tensor

import (
	"bytes"
	"math"
	"testing"
)

const (
	evenRows, oddCols = 4, 77
	tiny              = 0x1p-120 // what kernels may flush to zero
)

// mapped applies f element by element.
func mapped(f func(x ...float64) float64, in ...dense) dense {
	out := zeros(in[0].rows, in[0].cols)
	x := make([]float64, len(in))
	for i := range out.v {
		for k := range in {
			x[k] = in[k].v[i]
		}
		out.v[i] = f(x...)
	}
	return out
}

func TestConvert(t *testing.T) {
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0x1p-130, 0x1.01p-7, 0x1.03p-7, 0x1.fffffep127}
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, to := range floats {
			src := g.matrix(evenRows, oddCols)
			for j, x := range special {
				set(src.Matrix, 1, j, x)
			}
			want := values(src.Matrix)
			if to == BF16 {
				want = mapped(func(x ...float64) float64 { return float64(ToBFloat16(float32(x[0])).Float32()) }, want)
			}
			for _, margin := range margins {
				dst := newRegion(to, evenRows, oddCols, margin)
				Convert(nil, dst.Matrix, src.Matrix)
				same(t, to.String(), dst.Matrix, want)
				dst.intact(t)
			}
		}
	})
}

func TestAdd(t *testing.T) {
	ex := NewExec()
	sum := func(x ...float64) float64 { return x[0] + x[1] }
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, to := range floats {
			for _, alias := range []string{"none", "x", "y", "both"} {
				x, y, dst := g.of(to, evenRows, oddCols), g.matrix(evenRows, oddCols), g.of(to, evenRows, oddCols)
				switch alias {
				case "x":
					dst = x
				case "y":
					x, y = g.matrix(evenRows, oddCols), x
					dst = y
				case "both":
					y, dst = x, x
				}
				want := mapped(sum, values(x.Matrix), values(y.Matrix))
				Add(ex, dst.Matrix, x.Matrix, y.Matrix)
				near(t, to.String()+" sum over "+alias, dst.Matrix, want, absolute(0))
				dst.intact(t)
			}
		}
	})
}

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

func swiGLU(x ...float64) float64 { return x[0] * sigmoid(x[0]) * x[1] }

// gates returns a matrix that holds large values of both signs too.
func gates(g *generator) region {
	m := g.matrix(evenRows, oddCols)
	for j, x := range []float64{-1e4, -95, -88, -20, 20, 88, 95, 1e4, 0} {
		set(m.Matrix, 2, j, x)
	}
	return m
}

func TestSwiGLU(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		gate, up, h := gates(g), g.matrix(evenRows, oddCols), g.matrix(evenRows, oddCols)
		want := mapped(swiGLU, values(gate.Matrix), values(up.Matrix))
		for _, h := range []region{h, gate} {
			SwiGLU(ex, h.Matrix, gate.Matrix, up.Matrix)
			near(t, "h", h.Matrix, want, absolute(tiny))
			h.intact(t)
		}
	})
}

func TestSwiGLUBackward(t *testing.T) {
	ex := NewExec()
	const h = 1e-5
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, inPlace := range []bool{false, true} {
			gate, up, dh := gates(g), g.matrix(evenRows, oddCols), g.matrix(evenRows, oddCols)
			dgate, dup := g.matrix(evenRows, oddCols), g.matrix(evenRows, oddCols)
			if inPlace {
				dgate, dup = gate, up
			}
			in := []dense{values(dh.Matrix), values(gate.Matrix), values(up.Matrix)}
			wantGate := mapped(func(x ...float64) float64 {
				return x[0] * (swiGLU(x[1]+h, x[2]) - swiGLU(x[1]-h, x[2])) / (2 * h)
			}, in...)
			wantUp := mapped(func(x ...float64) float64 { return x[0] * swiGLU(x[1], 1) }, in...)
			SwiGLUBackward(ex, dgate.Matrix, dup.Matrix, dh.Matrix, gate.Matrix, up.Matrix)
			near(t, "dgate", dgate.Matrix, wantGate, absolute(2e-6))
			near(t, "dup", dup.Matrix, wantUp, absolute(tiny))
			dgate.intact(t)
			dup.intact(t)
		}
	})
}

func TestSumBlocks(t *testing.T) {
	ex := NewExec()
	const blocks, stride, width = 5, 9, 4
	eachLayout(t, func(t *testing.T, g *generator) {
		x, dst := g.matrix(evenRows, (blocks-1)*stride+width), g.matrix(evenRows, width)
		want := zeros(evenRows, width)
		for i := range want.v {
			for b := range blocks {
				want.v[i] += get(x.Matrix, i/width, b*stride+i%width)
			}
		}
		SumBlocks(ex, dst.Matrix, x.Matrix, blocks, stride)
		near(t, "sum", dst.Matrix, want, absolute(blocks*8*eps32))
		dst.intact(t)
	})
}

func TestSigmoid(t *testing.T) {
	for _, margin := range margins {
		g := newGenerator(FP32, margin)
		x := gates(g)
		want := mapped(func(x ...float64) float64 { return sigmoid(x[0]) }, values(x.Matrix))
		Sigmoid(NewExec(), x.Matrix)
		near(t, "sigmoid", x.Matrix, want, absolute(tiny))
		x.intact(t)
	}
}

func TestSoftmax(t *testing.T) {
	for _, margin := range margins {
		g := newGenerator(FP32, margin)
		x := gates(g) // one row with 1e4 in it
		set(x.Matrix, 1, 0, math.Inf(-1))
		set(x.Matrix, 3, 5, -3e38)
		want := values(x.Matrix)
		for r := range want.rows {
			copy(want.row(r), softmax(want.row(r)))
		}
		Softmax(NewExec(), x.Matrix)
		near(t, "softmax", x.Matrix, want, absolute(oddCols*eps32))
		x.intact(t)
	}
}

// softmax returns exp(x)/sum(exp(x)).
func softmax(x []float64) []float64 {
	p, top, sum := make([]float64, len(x)), math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		p[i] = math.Exp(v - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func TestStash(t *testing.T) {
	for _, threads := range []int{1, 3} {
		ex := NewParallelExec(threads)
		defer ex.Close()
		for _, dtype := range []DType{BF16, UINT8} {
			for _, n := range []int{0, 1, 100, pieceBytes - 1, 5*pieceBytes + 3} {
				for _, first := range []int{0, 3} { // on the boundary of a cache line, and not
					src, dst := New(dtype, n+10), New(dtype, n+10)
					for i := range src.Bytes() {
						src.Bytes()[i] = byte(7*i + i>>8 + 1) // each piece has other bytes
					}
					StreamCopy(ex, dst.Slice(first, first+n), src.Slice(first, first+n))
					want, lo, hi := make([]byte, len(dst.Bytes())), first*dtype.Size(), (first+n)*dtype.Size()
					copy(want[lo:hi], src.Bytes()[lo:hi])
					if !bytes.Equal(dst.Bytes(), want) {
						t.Errorf("%d threads, %d elements of %v from %d on: other bytes", threads, n, dtype, first)
					}
				}
			}
		}
	}
}

func TestZero(t *testing.T) {
	for _, threads := range []int{1, 3} {
		ex := NewParallelExec(threads)
		defer ex.Close()
		for _, n := range []int{0, 1, 100, pieceBytes/4 - 1, pieceBytes / 4, 5*pieceBytes + 3, streamedBytes/4 + 7} {
			x := New(FP32, n+10)
			for i := range x.F32() {
				x.F32()[i] = 1
			}
			Zero(ex, x.Slice(3, 3+n))
			for i, v := range x.F32() {
				if inside := i >= 3 && i < 3+n; inside != (v == 0) {
					t.Fatalf("%d threads, %d elements: element %d is %g", threads, n, i-3, v)
				}
			}
		}
	}
}
