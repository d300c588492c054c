package ratios

// Counts with known values: an exchange of synthetic choices, whose traffic is compared with closed
// forms.

import (
	"fmt"
	"math"
	"math/rand/v2"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// Run routes tokens of every rank through both exchanges, round-robin and uniformly, and returns
// the checks. Every rank of c calls it. A run has tokens·ranks·top-k choices; hidden only sets the
// size of a row.
func Run(c *collective.Comm, shape Shape, tokens int) ([]Check, error) {
	var all []Check
	for _, way := range []struct {
		name    string
		choices func(rank int) []int32
	}{
		{"round_robin", func(rank int) []int32 { return RoundRobin(shape, rank*tokens, tokens) }},
		{"uniform", func(rank int) []int32 { return uniform(shape, tokens, uint64(rank)) }},
	} {
		f, err := count(c, shape, way.choices(c.Rank()), tokens)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		standard, dedup := f.Traffic.Bytes()
		total := tokens * c.Size()
		all = append(all, Check{What: way.name + ": bytes of a standard all-to-all", Measured: float64(standard), Expected: float64(total * shape.TopK * 2 * shape.Dim)})
		for _, p := range f.Layers[0].Places {
			check := Check{What: fmt.Sprintf("%s: distinct of %d places", way.name, p.Places), Measured: p.Distinct}
			if way.name == "round_robin" {
				check.Expected = roundRobinDistinct(shape, p.Places, total)
				check.Tolerance = 1e-9
			} else {
				check.Expected = float64(p.Places) * (1 - missing(shape.Experts, shape.Experts/p.Places, shape.TopK))
				// A token's count varies less than if its choices were independent.
				check.Tolerance = 5 * math.Sqrt(float64(min(shape.TopK, p.Places))/4/float64(total))
			}
			all = append(all, check)
			if p.Places == c.Size() {
				all = append(all, Check{What: way.name + ": bytes of a de-duplicating exchange", Measured: float64(dedup), Expected: p.Distinct * float64(total) * float64(2*shape.Dim), Tolerance: 0.5})
			}
		}
	}
	return all, nil
}

// count sends the choices through both exchanges and a meter, which must agree on the traffic.
func count(c *collective.Comm, shape Shape, topk []int32, tokens int) (File, error) {
	meter, err := NewMeter(shape, []int{0}, c.Size())
	if err != nil {
		return File{}, err
	}
	meter.Choices(0, topk, shape.TopK)
	ex := tensor.NewExec()
	if c.Shared() {
		ex.Allocator = c.Allocator()
	}
	x, chosen := ex.New(tensor.BF16, tokens, shape.Dim), ex.New(tensor.INT32, tokens, shape.TopK)
	x.Zero()
	copy(chosen.I32(), topk)
	for _, name := range ep.Names() {
		exchange, err := ep.New(name, c, shape.Experts, ep.Options{})
		if err != nil {
			return File{}, err
		}
		var h ep.Handle
		rows, err := exchange.Dispatch(ex, &h, x, chosen)
		if err != nil {
			return File{}, err
		}
		if rows.Dim(0) != h.Received {
			return File{}, fmt.Errorf("%s returned %d rows and says it received %d", name, rows.Dim(0), h.Received)
		}
		for rank, n := range h.SendCounts {
			if int64(n) != meter.sent[rank] {
				return File{}, fmt.Errorf("%s sent %d rows from rank %d to rank %d, its tokens chose %d there", name, n, c.Rank(), rank, meter.sent[rank])
			}
		}
	}
	return meter.Gather(c)
}

// RoundRobin returns the choices of forced balance for some tokens, from number first on: token i
// chooses experts k·i to k·i+k-1.
func RoundRobin(shape Shape, first, tokens int) []int32 {
	topk := make([]int32, 0, tokens*shape.TopK)
	for i := range tokens {
		for k := range shape.TopK {
			topk = append(topk, int32(((first+i)*shape.TopK+k)%shape.Experts))
		}
	}
	return topk
}

func uniform(shape Shape, tokens int, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0x1a))
	topk := make([]int32, 0, tokens*shape.TopK)
	for range tokens {
		for _, e := range rng.Perm(shape.Experts)[:shape.TopK] {
			topk = append(topk, int32(e))
		}
	}
	return topk
}

// roundRobinDistinct returns the mean number of parts that a token with k consecutive choices
// visits.
func roundRobinDistinct(shape Shape, places, tokens int) float64 {
	each, sum := shape.Experts/places, 0
	for i := range tokens {
		first := i * shape.TopK % shape.Experts
		last := first + shape.TopK - 1
		parts := min(last/each-first/each+1, places) // it may wrap around to its first part
		sum += parts
	}
	return float64(sum) / float64(tokens)
}

// missing returns the probability that k of n distinct things hit none of m: C(n-m, k)/C(n, k).
func missing(n, m, k int) float64 {
	p := 1.0
	for i := range k {
		p *= max(float64(n-m-i), 0) / float64(n-i)
	}
	return p
}

// MeasureCasts quantizes a matrix in both directions and counts the bytes per element, with the
// expected values: BF16 read once, a code and 1/32 of a scale written per direction.
func MeasureCasts() (Casts, []Check) {
	const rows, cols = 64, 128
	ex := tensor.NewExec()
	x := ex.New(tensor.BF16, rows, cols)
	x.Zero()
	along, across := mx.New(ex, mx.E4M3, mx.AlongRows, rows, cols), mx.New(ex, mx.E4M3, mx.AlongCols, rows, cols)
	mx.QuantizeBoth(ex, along, across, x.Mat(), mx.RCEIL)
	written := 0
	for _, t := range []mx.Tensor{along, across} {
		written += len(t.Codes.U8()) + len(t.Scales.U8())
	}
	c := Casts{Read: float64(2*len(x.BF16())) / (rows * cols), Written: float64(written) / (rows * cols)}
	return c, []Check{
		{What: "bytes read to quantize an element", Measured: c.Read, Expected: 2},
		{What: "bytes written to quantize an element both ways", Measured: c.Written, Expected: 2 * mx.E4M3.BytesPerElement()},
	}
}
