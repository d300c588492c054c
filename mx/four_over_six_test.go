package mx

import (
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor"
)

// half draws multiples of one half up to 6. Many blocks of them are exact with both scales.
func half(r *rand.Rand, _, col int) float32 {
	if col%3 == 0 {
		return float32(r.IntN(25)-12) / 2
	}
	return float32(r.IntN(3)-1) * 6
}

// midway draws blocks whose scale lies between two E4M3 numbers. Another order of operations rounds
// it to the other one.
func midway(r *rand.Rand, _, _ int) float32 {
	switch n := r.IntN(200); {
	case n == 0:
		return 288.0 / 256
	case n < 20:
		return []float32{153.0 / 256, 189.0 / 256, 225.0 / 256, 252.0 / 256}[n%4]
	}
	return float32(r.NormFloat64()) / 16
}

// TestFourOverSix: scales and codes are those of torchao's four_over_six_quantize, with its
// defaults, written here step by step. Ties occur, and take the smaller scale.
func TestFourOverSix(t *testing.T) {
	const rows, cols = 44, 88
	ex, ends := tensor.NewExec(), []int32{0, 19, rows}
	for name, fill := range map[string]filler{"normal": normal, "half": half, "midway": midway} {
		x := filled(1, tensor.BF16, rows, cols, fill)
		for _, f := range []Format{NVFP4, NVFP4Tile} {
			f.FourOverSix = true
			for _, d := range []Direction{AlongRows, AlongCols} {
				var seen fourOverSix
				want := NewGrouped(nil, f, d, cols, ends) // only for its shape
				height, width := want.BlockShape()
				scales, codes := map[[2]int]float32{}, [rows][cols]uint8{}
				for at := range want.rowsOfBlocks(rows, 0, rows) {
					lo, hi := group(ends, at.group)
					amax := largestOf(x, region{row: lo, rows: hi - lo, cols: cols})
					for c := 0; c < cols; c += width {
						block := region{row: at.first, rows: at.last - at.first, col: c, cols: min(width, cols-c)}
						scales[[2]int{at.block, c / width}] = seen.block(x, d, block, amax, func(r, c int, code uint8) { codes[r][c] = code })
					}
				}
				eachTier(func(tier string) {
					q := NewGrouped(nil, f, d, cols, ends)
					Quantize(ex, q, x.Mat(), RCEIL)
					for at, want := range scales {
						if got := q.Scale(at[0], at[1]); got != want {
							t.Errorf("%s, %v %v, %s: the scale of block %v of %dx%d is %g, want %g", tier, f, d, name, at, height, width, got, want)
						}
					}
					for r := range rows {
						for c, want := range codes[r] {
							if got := q.Code(r, c); got != want {
								t.Fatalf("%s, %v %v, %s: (%d, %d) has code %d, want %d", tier, f, d, name, r, c, got, want)
							}
						}
					}
				})
				if name == "half" && f.Block[0] == 1 && seen.ties == 0 || name == "normal" && (seen.fours == 0 || seen.sixes == 0) {
					t.Errorf("%v %v, %s: %+v is no test", f, d, name, seen)
				}
			}
		}
	}
}

// fourOverSix counts blocks by the number that their largest magnitude becomes.
type fourOverSix struct{ fours, sixes, ties int }

// block returns the scale of a block in a matrix whose largest magnitude is amax, and sets its
// codes. It computes in FP32, one rounding per operation.
func (s *fourOverSix) block(x tensor.Tensor, d Direction, at region, amax float32, set func(r, c int, code uint8)) (scale float32) {
	const bound = 256
	encode := bound * 6 / amax
	base := float32(largestOf(x, at) / 6 * encode)
	candidates := [2]float32{roundE4M3(base), roundE4M3(base * 6 / 4)}
	var errors [2]float32
	for i, scale := range candidates {
		var lines [16]float32 // errors of the lines that products sum along
		eachCode(x, at, scale, encode, func(r, c int, _ uint8, value float32) {
			line := r - at.row
			if d == AlongCols {
				line = c - at.col
			}
			e := float32(float32(value*scale)*amax)/(6*bound) - x.BF16()[r*x.Dim(1)+c].Float32()
			lines[line] += float32(math.Abs(float64(e)))
		})
		for n := 8; n > 0; n /= 2 {
			for l := range n {
				lines[l] += lines[l+n]
			}
		}
		errors[i] = lines[0]
	}
	scale = candidates[0]
	switch {
	case errors[1] < errors[0]:
		s.fours++
		scale = candidates[1]
	case errors[1] == errors[0] && candidates[0] != candidates[1]:
		s.ties++
	default:
		s.sixes++
	}
	eachCode(x, at, scale, encode, func(r, c int, code uint8, _ float32) { set(r, c, code) })
	return scale
}

// eachCode calls f with the codes of a block and their numbers without the scale.
func eachCode(x tensor.Tensor, at region, scale, encode float32, f func(r, c int, code uint8, value float32)) {
	factor := min(1/float32(scale*(1/encode)), math.MaxFloat32)
	for r := at.row; r < at.row+at.rows; r++ {
		for c := at.col; c < at.col+at.cols; c++ {
			code, value := roundE2M1(x.BF16()[r*x.Dim(1)+c].Float32() * factor)
			f(r, c, code, value)
		}
	}
}

func largestOf(x tensor.Tensor, at region) (most float32) {
	for r := at.row; r < at.row+at.rows; r++ {
		for c := at.col; c < at.col+at.cols; c++ {
			most = max(most, float32(math.Abs(float64(x.BF16()[r*x.Dim(1)+c].Float32()))))
		}
	}
	return most
}

// roundE4M3 rounds to the nearest number of four significant bits, or multiple of 2^-9, up to 448.
func roundE4M3(v float32) float32 {
	unit := math.Ldexp(1, max(math.Ilogb(float64(v)), -6)-3)
	return float32(min(math.RoundToEven(float64(v)/unit)*unit, 448))
}

// roundE2M1 rounds to the nearest E2M1 number. A tie goes to the even code.
func roundE2M1(v float32) (code uint8, value float32) {
	values := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	a := float32(math.Abs(float64(v)))
	for code < 7 {
		middle := (values[code] + values[code+1]) / 2
		if a < middle || a == middle && code%2 == 0 {
			break
		}
		code++
	}
	if value = values[code]; math.Signbit(float64(v)) {
		return code | 8, -value
	}
	return code, value
}
