package projection

// The share of a GPU's peak that a product reaches: tables of measured shapes, with averages
// between the nearest ones.

import "math"

// pass is one of a layer's three products.
type pass int

const (
	forward pass = iota
	dgrad
	wgrad
)

// efficiency is one measured shape: rows [tokens, or rows per expert] times a weight [Out, In].
type efficiency struct {
	Op     string    `json:"op"` // gemm or grouped
	Rows   float64   `json:"rows"`
	In     int       `json:"in"`
	Out    int       `json:"out"`
	Share  []float64 `json:"share"` // of the dense BF16 peak: forward, dgrad, wgrad
	Source string    `json:"source"`
	fp8    float64   // of the FP8 peak, forward; 0: not measured
	kind   Kind
}

// calibrationRow is a measurement in data/h200.json.
type calibrationRow struct {
	Op     string  `json:"op"`
	M      int     `json:"m"`
	Groups int     `json:"groups"`
	Rows   int     `json:"rows"` // per group
	N      int     `json:"n"`
	K      int     `json:"k"`
	BF16   float64 `json:"bf16_us"`
	FP8    float64 `json:"fp8_us"`
	MiB    float64 `json:"mib_per_rank"`
	Tokens int     `json:"tokens"`
	Micros float64 `json:"us"`
}

// product returns the FLOPs of a row, if the row is a product.
func (r calibrationRow) product() (flops float64, ok bool) {
	switch r.Op {
	case "gemm":
		return 2 * float64(r.M) * float64(r.N) * float64(r.K), true
	case "grouped_gemm":
		return 2 * float64(r.Groups*r.Rows) * float64(r.N) * float64(r.K), true
	}
	return 0, false
}

const (
	hopperBF16 = 989e12
	hopperFP8  = 1979e12
)

// hopperTable computes efficiencies from the H200's forward products. It assumes that backward ones
// are as fast.
func hopperTable(rows []calibrationRow) (table []efficiency) {
	for _, r := range rows {
		flops, ok := r.product()
		if !ok {
			continue
		}
		share := flops / (r.BF16 * 1e-6) / hopperBF16
		e := efficiency{Op: "gemm", Rows: float64(r.M), In: r.K, Out: r.N, fp8: flops / (r.FP8 * 1e-6) / hopperFP8, kind: Measured, Source: "data/h200.json", Share: []float64{share, share, share}}
		if r.Op == "grouped_gemm" {
			e.Op, e.Rows = "grouped", float64(r.Rows)
		}
		table = append(table, e)
	}
	return table
}

// point is a shape in the space of logarithms.
type point [3]float64

func pointOf(rows float64, in, out int) point {
	return point{math.Log2(max(rows, 1)), math.Log2(float64(in)), math.Log2(float64(out))}
}

// kernels holds the efficiencies of one GPU's products.
type kernels struct {
	list   []efficiency
	points []point
	dtype8 bool // has its own FP8 efficiencies
}

func newKernels(list []efficiency) *kernels {
	k := &kernels{list: list}
	for _, e := range list {
		k.points = append(k.points, pointOf(e.Rows, e.In, e.Out))
		k.dtype8 = k.dtype8 || e.fp8 > 0
	}
	return k
}

// far is the distance, in powers of two, beyond which a shape counts as extrapolated.
const far = 2.0

// share returns the share of its peak that a product of rows by [out, in] reaches, and the distance
// to the nearest measured shape. Shapes are weighted by the inverse fourth power of their distance,
// so that a measured shape decides alone.
func (k *kernels) share(op string, p pass, fp8 bool, rows float64, in, out int) (share, distance float64) {
	at := pointOf(rows, in, out)
	distance = math.Inf(1)
	var sum, weights float64
	for i, e := range k.list {
		if e.Op != op {
			continue
		}
		d := 0.0
		for j, v := range k.points[i] {
			d += (v - at[j]) * (v - at[j])
		}
		w := 1 / (d + 1e-4) / (d + 1e-4)
		value := e.Share[p]
		if fp8 {
			value = e.fp8
		}
		// Average times, not rates.
		sum, weights, distance = sum+w/value, weights+w, min(distance, math.Sqrt(d))
	}
	return weights / sum, distance
}
