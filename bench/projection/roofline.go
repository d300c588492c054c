package projection

// Times of products from shape and hardware file only: a roofline with three numbers, fitted to
// half of the H200's measurements and compared with the other half.

import (
	"fmt"
	"math"
)

// Roofline predicts the time of a product: the root of the sum of squares of the time at a share of
// the peak and of the time to move the operands, plus a fixed cost.
type Roofline struct {
	Peak  float64 // share of the hardware file's peak
	Bytes float64 // share of its memory bandwidth
	Micro float64 // fixed cost, us
}

// FitRow is one measured product with its prediction.
type FitRow struct {
	Shape     string
	FP8       bool
	Micros    float64
	Predicted float64 // by the roofline that was fitted to the other half
}

// Error returns the signed relative error.
func (f FitRow) Error() float64 { return f.Predicted/f.Micros - 1 }

// time returns the microseconds of a row at a GPU's peak in FLOP/s and bandwidth in bytes/s. size
// is the bytes per element.
func (r Roofline) time(c calibrationRow, peak, bandwidth, size float64) float64 {
	flops, _ := c.product()
	m, groups := float64(c.M), 1.0
	if c.Groups > 0 {
		m, groups = float64(c.Groups*c.Rows), float64(c.Groups)
	}
	n, k := float64(c.N), float64(c.K)
	bytes := size*(m*k+groups*n*k) + 2*m*n
	return 1e6*math.Hypot(flops/(r.Peak*peak), bytes/(r.Bytes*bandwidth)) + r.Micro
}

// fit searches for the roofline with the smallest mean of |log(predicted/measured)|.
func fit(rows []calibrationRow, measured func(calibrationRow) float64, peak, bandwidth, size float64) (best Roofline) {
	least := math.Inf(1)
	for p := 50; p < 90; p++ {
		for b := 30; b <= 100; b += 10 {
			for micro := 0.0; micro <= 50; micro += 5 {
				r := Roofline{float64(p) / 100, float64(b) / 100, micro}
				sum := 0.0
				for _, c := range rows {
					sum += math.Abs(math.Log(r.time(c, peak, bandwidth, size) / measured(c)))
				}
				if sum < least {
					least, best = sum, r
				}
			}
		}
	}
	return best
}

// H200Products fits the even rows and predicts the odd ones, and the reverse, in BF16 and FP8. It
// returns all predictions and the mean absolute error.
func H200Products() (rows []FitRow, mean float64, err error) {
	h, err := HardwareByName("H200")
	if err != nil {
		return nil, 0, err
	}
	var halves [2][]calibrationRow
	n := 0
	for _, r := range data().h200Rows {
		if _, ok := r.product(); ok {
			halves[n%2] = append(halves[n%2], r)
			n++
		}
	}
	for _, fp8 := range []bool{false, true} {
		measured, peak, size := func(c calibrationRow) float64 { return c.BF16 }, h.BF16.Value*1e12, 2.0
		if fp8 {
			measured, peak, size = func(c calibrationRow) float64 { return c.FP8 }, h.FP8.Value*1e12, 1
		}
		for i, test := range halves {
			line := fit(halves[1-i], measured, peak, h.HBM.Value*1e12, size)
			for _, c := range test {
				f := FitRow{Shape: fmt.Sprintf("%dx%dx%d", c.M, c.N, c.K), FP8: fp8, Micros: measured(c), Predicted: line.time(c, peak, h.HBM.Value*1e12, size)}
				if c.Groups > 0 {
					f.Shape = fmt.Sprintf("%dx%dx%dx%d", c.Groups, c.Rows, c.N, c.K)
				}
				rows = append(rows, f)
				mean += math.Abs(f.Error())
			}
		}
	}
	return rows, mean / float64(len(rows)), nil
}
