package mx

import (
	"math"
	"testing"

	"spmoe/mx/internal/philox"
	"spmoe/tensor"
)

// stochastic returns the values of x after stochastic rounding.
func stochastic(ex *tensor.Exec, f Format, d Direction, x tensor.Tensor, draws Draws) []float32 {
	q, values := New(nil, f, d, x.Dim(0), x.Dim(1)), tensor.New(tensor.FP32, x.Dims()...)
	Cast{Format: f, Mode: FLOOR, Rounding: Stochastic}.Quantize(ex, q, x.Mat(), draws)
	Dequantize(ex, values.Mat(), q)
	return values.F32()
}

// TestStochasticMean: over all draws, the mean of one number is the number, and both neighbors
// occur in the right proportion.
func TestStochasticMean(t *testing.T) {
	const n = 1 << 16
	values, codes, draws := make([]float32, n), make([]uint8, n), make([]uint16, n)
	for i := range draws {
		draws[i] = uint16(i)
	}
	for _, x := range []float32{0.25, 0.125, 0.7, 1, 1.75, 2.5, 3.125, 4.5, 5.984375, 6, -2.25, -5.5} {
		for i := range values {
			values[i] = x
		}
		NVFP4.EncodeStochastic(codes, values, draws)
		sum := 0.0
		for _, c := range codes {
			sum += float64(NVFP4.Decode(c))
		}
		if mean := sum / n; math.Abs(mean-float64(x)) > 1.0/n {
			t.Errorf("the mean of %g is %g", x, mean)
		}
	}
}

// TestDrawsFollowTheRows: rows that are quantized elsewhere, in another order or by other threads,
// get the same codes as in the whole matrix. Another seed, step or stream gives others.
func TestDrawsFollowTheRows(t *testing.T) {
	const rows, cols = 48, 80
	ex := tensor.NewParallelExec(3)
	defer ex.Close()
	x, draws := filled(1, tensor.BF16, rows, cols, normal), Draws{Seed: 1, Step: 2, Stream: 3, First: 1 << 33}
	whole := stochastic(tensor.NewExec(), sixteen, AlongRows, x, draws)
	check := func(got []float32, first, n int, name string, same bool) {
		t.Helper()
		equal := true
		for i, v := range got {
			equal = equal && v == whole[first*cols+i]
		}
		if equal != same || len(got) != n*cols {
			t.Errorf("%s: the same codes: %v, want %v", name, equal, same)
		}
	}
	part := func(d Draws) []float32 { return stochastic(ex, sixteen, AlongRows, x.Slice(16, 48), d) }
	moved := draws
	moved.First += 16
	check(part(moved), 16, 32, "first row", true)
	listed, upward := draws, tensor.New(tensor.BF16, 32, cols) // rows from 47 up to 16
	listed.First = 0
	for r := range 32 {
		listed.Rows = append(listed.Rows, 1<<33+47-uint64(r))
		copy(upward.Index(r).BF16(), x.Index(47-r).BF16())
	}
	got := stochastic(ex, sixteen, AlongRows, upward, listed)
	for r := range 32 {
		check(got[r*cols:(r+1)*cols], 47-r, 1, "listed rows", true)
	}
	for name, change := range map[string]func(d *Draws){
		"row": func(d *Draws) { d.First-- }, "high row": func(d *Draws) { d.First += 1 << 32 },
		"seed": func(d *Draws) { d.Seed++ }, "step": func(d *Draws) { d.Step++ }, "stream": func(d *Draws) { d.Stream++ },
	} {
		other := moved
		change(&other)
		check(part(other), 16, 32, name, false)
	}
}

// TestDrawsOfColumns: each element has the 16 bits of Philox that Draws names, in wide rows too.
// The largest magnitude of a column is 1, so that the others become 0.7 times 6.
func TestDrawsOfColumns(t *testing.T) {
	const rows, cols = 16, 2056
	d := Draws{Seed: 1, Step: 2, Stream: 3, First: 1<<32 - 3}
	x, ex := tensor.New(tensor.FP32, rows, cols), tensor.NewExec()
	values, draws, want := make([]float32, cols), make([]uint16, cols), make([]uint8, cols)
	for i := range x.F32() {
		x.F32()[i] = 0.7
		if i < cols {
			x.F32()[i], values[i] = 1, float32(0.7)*6
		}
	}
	eachTier(func(tier string) {
		q := New(nil, NVFP4, AlongCols, rows, cols)
		Cast{Format: NVFP4, Rounding: Stochastic}.Quantize(ex, q, x.Mat(), d)
		for r := 1; r < rows; r++ {
			row := d.First + uint64(r)
			for c := range draws {
				bits := philox.Block([2]uint32{d.Seed, d.Step}, [4]uint32{uint32(c / 8), uint32(row), uint32(row >> 32), d.Stream})
				draws[c] = uint16(bits[c%8/2] >> (c % 2 * 16))
			}
			NVFP4.EncodeStochastic(want, values, draws)
			for c := range want {
				if got := q.Code(r, c); got != want[c] {
					t.Fatalf("%s: (%d, %d) has code %d, want %d", tier, r, c, got, want[c])
				}
			}
		}
	})
}
