package mx

// Comparison of every tier with the plain Go functions, bit for bit, and of these with the
// definition of the formats.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// A guard makes matrices between rows of canaries.
type guard struct{ all []tensor.Tensor }

const canary, margin = 0xa5, 8

// around returns x in memory with canaries before and after it.
func (g *guard) around(x *tensor.Tensor) {
	outer := x.Dims()
	outer[0] += 2 * margin
	whole := tensor.New(tensor.UINT8, outer...)
	memory := whole.U8()
	for i := range memory {
		memory[i] = canary
	}
	g.all = append(g.all, whole)
	*x = whole.Slice(margin, outer[0]-margin)
}

// check says whether all canaries are still there.
func (g *guard) check(t *testing.T, name string) {
	t.Helper()
	for _, x := range g.all {
		for _, part := range []tensor.Tensor{x.Slice(0, margin), x.Slice(x.Dim(0)-margin, x.Dim(0))} {
			for _, b := range part.U8() {
				if b != canary {
					t.Fatalf("%s: memory next to a tensor of %v was written", name, x.Dims())
				}
			}
		}
	}
}

// A filler makes the elements of a test matrix.
type filler func(r *rand.Rand, row, col int) float32

func normal(r *rand.Rand, _, _ int) float32 { return float32(r.NormFloat64()) }

// spread has exponents far apart within a block, so that many codes are subnormal or zero.
func spread(r *rand.Rand, _, _ int) float32 {
	x := float32(r.NormFloat64() * math.Exp2(-float64(r.IntN(30))))
	if r.IntN(16) == 0 {
		x = float32(math.Copysign(0, float64(x)))
	}
	return x
}

// drifting has blocks of very different magnitudes. Some whole tiles are zeros or FP32's smallest
// or largest numbers.
func drifting(r *rand.Rand, row, col int) float32 {
	tile := uint64(row/32*1000 + col/64)
	scale := rand.New(rand.NewPCG(tile, 1)).IntN(300) - 155
	if tile%5 == 0 {
		return float32(math.Copysign(0, r.NormFloat64()))
	}
	return float32(math.Ldexp(r.NormFloat64(), min(scale, 125)))
}

// damaged scatters NaNs, infinities, subnormals and the largest numbers over the matrix.
func damaged(r *rand.Rand, row, col int) float32 {
	odd := []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 1, 0x80000001, 0x007fffff, 0x7f7fffff, 0x00010000, 0x80800000}
	if r.IntN(500) == 0 {
		return math.Float32frombits(odd[r.IntN(len(odd))])
	}
	return normal(r, row, col)
}

// thresholds are numbers at which a scale changes, and their neighbors.
func thresholds(r *rand.Rand, _, _ int) float32 {
	mantissas := []uint32{0, 1, 0x600000, 0x600001, 0x5fffff, 0x610000, 0x5f0000, 0x780000, 0x77ffff, 0x700000, 0x6fffff, 0x7fffff, 0x7f0000}
	return math.Float32frombits(uint32(r.IntN(2))<<31 | uint32(125+r.IntN(3))<<23 | mantissas[r.IntN(len(mantissas))])
}

func filled(seed uint64, dtype tensor.DType, rows, cols int, fill filler) tensor.Tensor {
	r := rand.New(rand.NewPCG(seed, 2))
	x := tensor.New(dtype, rows, cols)
	for i := range rows * cols {
		v := fill(r, i/cols, i%cols)
		if dtype == tensor.BF16 {
			x.BF16()[i] = tensor.BFloat16(math.Float32bits(v) >> 16)
		} else {
			x.F32()[i] = v
		}
	}
	return x
}

// allWays quantizes x along rows, along columns, and both ways in one pass, with groups of rows.
func allWays(ex *tensor.Exec, g *guard, f Format, mode ScaleMode, x tensor.Matrix, ends []int32) []Tensor {
	var out []Tensor
	for range 2 {
		out = append(out, New(nil, f, AlongRows, x.Rows, x.Cols), NewGrouped(nil, f, AlongCols, x.Cols, ends))
	}
	for i := range out {
		g.around(&out[i].Codes)
		g.around(&out[i].Scales)
	}
	Quantize(ex, out[0], x, mode)
	Quantize(ex, out[1], x, mode)
	QuantizeBoth(ex, out[2], out[3], x, mode)
	return out
}

func TestTiersAgree(t *testing.T) {
	ex, fillers := tensor.NewExec(), map[string]filler{"normal": normal, "spread": spread, "drifting": drifting, "damaged": damaged, "thresholds": thresholds}
	shapes := []struct{ rows, cols int }{{32, 64}, {96, 192}, {33, 65}, {1, 1}, {7, 96}, {31, 63}, {35, 1100}, {0, 64}, {5, 0}}
	for name, fill := range fillers {
		for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
			for i, s := range shapes {
				x := filled(uint64(i), dtype, s.rows, s.cols, fill)
				ends := []int32{int32(s.rows / 3), int32(s.rows / 3), int32(s.rows)}
				for _, f := range MXFormats() {
					if big := s.rows*s.cols > 2500; big && f.Codes() < 256 {
						continue // the same kernels as for the others
					}
					for _, mode := range ScaleModes() {
						tiersAgree(t, ex, fmt.Sprintf("%s %v [%d, %d] %v %v", name, dtype, s.rows, s.cols, f, mode), x.Mat(), f, mode, ends)
					}
				}
			}
		}
	}
}

func tiersAgree(t *testing.T, ex *tensor.Exec, name string, x tensor.Matrix, f Format, mode ScaleMode, ends []int32) {
	t.Helper()
	var want []Tensor
	eachTier(func(tier string) {
		var g guard
		ex.Reset()
		got := allWays(ex, &g, f, mode, x, ends)
		g.check(t, name)
		if want == nil {
			want = got
		}
		for i := range got {
			if !slices.Equal(got[i].Codes.U8(), want[i].Codes.U8()) || !slices.Equal(got[i].Scales.U8(), want[i].Scales.U8()) {
				t.Fatalf("%s, tier %s: quantizing %v, one pass %v, differs from plain Go", name, tier, got[i].Blocks, i >= 2)
			}
		}
	})
}

// TestAllBFloat16 quantizes every bfloat16 pattern in a block with a number that sets the scale.
// The scale and the codes must be those of the definitions.
func TestAllBFloat16(t *testing.T) {
	const perBlock = format.MXBlock - 1
	rows := (1<<16 + perBlock - 1) / perBlock
	for _, companion := range []float32{1.75, 1.9921875, 0x1p-126, 0x1p100, 0} {
		x := tensor.New(tensor.BF16, rows, 2*format.MXBlock)
		for i := range x.BF16() {
			if i%format.MXBlock == 0 {
				x.BF16()[i] = tensor.ToBFloat16(companion)
			} else {
				x.BF16()[i] = tensor.BFloat16(i/(2*format.MXBlock)*perBlock + i%format.MXBlock - 1)
			}
		}
		for _, f := range []Format{E4M3, E5M2, INT8} {
			for _, mode := range ScaleModes() {
				name := fmt.Sprintf("all patterns beside %g, %v %v", companion, f, mode)
				tiersAgree(t, tensor.NewExec(), name, x.Mat(), f, mode, []int32{int32(rows)})
				checkDefinition(t, name, x, f, mode)
			}
		}
	}
}

func checkDefinition(t *testing.T, name string, x tensor.Tensor, f Format, mode ScaleMode) {
	t.Helper()
	q := New(nil, f, AlongRows, x.Dim(0), x.Dim(1))
	Quantize(tensor.NewExec(), q, x.Mat(), mode)
	for b, scale := range q.Scales.U8() {
		block, codes := x.BF16()[b*format.MXBlock:][:format.MXBlock], q.Codes.U8()[b*format.MXBlock:]
		amax := 0.0
		for _, v := range block {
			amax = math.Max(amax, math.Abs(float64(v.Float32()))) // preserves NaN
		}
		if want := definedScale(f, mode, amax); scale != want {
			t.Fatalf("%s: block %d of largest magnitude %g has scale %d, want %d", name, b, amax, scale, want)
		}
		for i, v := range block {
			want := f.NaN()
			if scale != NaNScale {
				want = f.Encode(float32(math.Ldexp(float64(v.Float32()), 127-int(scale))))
			}
			if codes[i] != want {
				t.Fatalf("%s: %g at scale %d has code %#x, want %#x", name, v.Float32(), scale, codes[i], want)
			}
		}
	}
}

// definedScale computes the scale from the definition of the modes in float64. bfloat16 must
// represent amax.
func definedScale(f Format, mode ScaleMode, amax float64) uint8 {
	if math.IsNaN(amax) || math.IsInf(amax, 0) {
		return NaNScale
	}
	if amax == 0 {
		return 0
	}
	var e float64
	switch mode {
	case RCEIL:
		fraction, exponent := math.Frexp(amax / float64(f.Max()))
		e = float64(exponent)
		if fraction == 0.5 {
			e--
		}
	case FLOOR:
		e = float64(math.Ilogb(amax) - f.MaxExponent())
	case CEIL:
		e = float64(math.Ilogb(amax) - f.MaxExponent())
		if amax > math.Exp2(float64(math.Ilogb(amax))) {
			e++
		}
		if amax < 0x1p-126 {
			e = float64(-126 - f.MaxExponent())
		}
	case EVEN:
		step := math.Exp2(float64(math.Ilogb(amax) - f.Mantissa()))
		e = float64(math.Ilogb(math.Floor(amax/step+0.5)*step) - f.MaxExponent())
	}
	return uint8(min(max(e+127, 0), 254))
}

// TestTiersDecodeTheSame decodes random codes and scales of every format in both directions.
func TestTiersDecodeTheSame(t *testing.T) {
	ex, r := tensor.NewExec(), rand.New(rand.NewPCG(1, 2))
	for _, s := range []struct{ rows, cols int }{{40, 96}, {64, 320}, {33, 65}, {1, 1}, {3, 31}, {0, 64}, {5, 0}} {
		for _, f := range MXFormats() {
			for _, q := range []Tensor{New(nil, f, AlongRows, s.rows, s.cols), NewGrouped(nil, f, AlongCols, s.cols, []int32{int32(s.rows / 3), int32(s.rows)})} {
				for _, bytes := range [][]uint8{q.Codes.U8(), q.Scales.U8()} {
					for i := range bytes {
						bytes[i] = uint8(r.Uint32())
					}
				}
				for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
					var want tensor.Tensor
					eachTier(func(tier string) {
						got := tensor.New(dtype, s.rows, s.cols)
						Dequantize(ex, got.Mat(), q)
						if !want.Valid() {
							want = got
						}
						if !slices.Equal(got.Bytes(), want.Bytes()) {
							t.Errorf("tier %s: %v [%d, %d] %v to %v differs from plain Go", tier, f, s.rows, s.cols, q.Blocks, dtype)
						}
					})
				}
			}
		}
	}
}

// TestThreadsGiveTheSameBits quantizes and dequantizes on 1 to 3 threads, in few and many panels.
func TestThreadsGiveTheSameBits(t *testing.T) {
	for _, s := range []struct{ rows, cols int }{{20, 2000}, {140, 320}, {600, 70}} {
		for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
			x := filled(3, dtype, s.rows, s.cols, damaged)
			eachTier(func(tier string) {
				var want [][]byte
				for threads := 1; threads <= 3; threads++ {
					got := onThreads(threads, x)
					if want == nil {
						want = got
					}
					if !slices.EqualFunc(got, want, slices.Equal) {
						t.Errorf("tier %s: %v [%d, %d] differs on %d threads and on one", tier, dtype, s.rows, s.cols, threads)
					}
				}
			})
		}
	}
}

func onThreads(threads int, x tensor.Tensor) (results [][]byte) {
	ex := tensor.NewParallelExec(threads)
	defer ex.Close()
	rows := int32(x.Dim(0))
	var g guard
	for _, f := range []Format{E4M3, INT8} {
		for _, q := range allWays(ex, &g, f, RCEIL, x.Mat(), []int32{rows / 5, rows / 5, rows / 2, rows}) {
			back := tensor.New(x.DType(), x.Dims()...)
			Dequantize(ex, back.Mat(), q)
			results = append(results, q.Codes.Bytes(), q.Scales.Bytes(), back.Bytes())
		}
	}
	return results
}

// TestQuantizeAsWritten quantizes rows that are produced during the pass, each once. One matrix is
// small, and one is large enough for non-temporal stores.
func TestQuantizeAsWritten(t *testing.T) {
	for _, s := range []struct{ rows, cols int }{{140, 70}, {8192, 512}} {
		from := filled(5, tensor.BF16, s.rows, s.cols, normal)
		ends := []int32{int32(s.rows / 3), int32(s.rows)}
		quantize := func(f func(rows, cols Tensor)) (rows, cols Tensor) {
			rows, cols = New(nil, E4M3, AlongRows, s.rows, s.cols), NewGrouped(nil, E4M3, AlongCols, s.cols, ends)
			f(rows, cols)
			return rows, cols
		}
		wantRows, wantCols := quantize(func(rows, cols Tensor) { QuantizeBoth(tensor.NewExec(), rows, cols, from.Mat(), RCEIL) })
		for threads := 1; threads <= 3; threads++ {
			ex := tensor.NewParallelExec(threads)
			written := make([]atomic.Int32, s.rows)
			rows, cols := quantize(func(rows, cols Tensor) {
				QuantizePanels(ex, rows, cols, tensor.BF16, RCEIL, func(_ *tensor.Exec, lo, hi int, part tensor.Tensor) {
					copy(part.BF16(), from.Slice(lo, hi).BF16())
					for r := lo; r < hi; r++ {
						written[r].Add(1)
					}
				})
			})
			for _, pair := range [][2]tensor.Tensor{{rows.Codes, wantRows.Codes}, {rows.Scales, wantRows.Scales}, {cols.Codes, wantCols.Codes}, {cols.Scales, wantCols.Scales}} {
				if !slices.Equal(pair[0].Bytes(), pair[1].Bytes()) {
					t.Errorf("[%d, %d] on %d threads: rows produced during the pass give different bits", s.rows, s.cols, threads)
				}
			}
			for r := range written {
				if n := written[r].Load(); n != 1 {
					t.Fatalf("[%d, %d] on %d threads: row %d was written %d times", s.rows, s.cols, threads, r, n)
				}
			}
			ex.Close()
		}
	}
}
