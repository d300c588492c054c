package reference

import "math"

// The rotary embedding: the elements of a pair turn by position·frequency.

// frequencies returns theta^(-2i/d) for each of d/2 pairs. YaRN divides the low ones by its factor:
//
//	f_i = f_i/factor · ramp_i + f_i · (1 - ramp_i)
//
// The ramp rises between the dimensions that turn BetaFast and BetaSlow times in the original
// context. Source: arXiv 2309.00071, 3.2. All code computes this table in FP32.
func (f *formula) frequencies(d int) []float64 {
	p, theta := f.Rope, f.Rope.Theta
	switch {
	case f.is("rope_base_10000"):
		theta = 10_000
	case f.is("rope_base_1000000"):
		theta = 1_000_000
	case f.is("rope_no_yarn"):
		p.Factor = 1
	}
	turns := func(n float64) float64 {
		return float64(d) * math.Log(float64(p.Original)/(n*2*math.Pi)) / (2 * math.Log(theta))
	}
	lo, hi := turns(p.BetaFast), turns(p.BetaSlow)
	if p.Truncate {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, float64(d-1))
	if lo == hi {
		hi += 0.001
	}
	table := make([]float64, d/2)
	for i := range table {
		table[i] = FP32.round(math.Pow(theta, -2*float64(i)/float64(d)))
		ramp := 1.0
		if !f.is("rope_linear") {
			ramp = min(max((float64(i)-lo)/(hi-lo), 0), 1)
		}
		if p.Factor != 1 {
			table[i] = FP32.round(table[i]/p.Factor*ramp + table[i]*(1-ramp))
		}
	}
	return table
}

// tables returns the cosine and sine of each token's angles, [tokens, d/2].
func (f *formula) tables(d int, positions []int32, dtype Format) (cos, sin *node) {
	amplitude := f.Rope.Amplitude
	switch {
	case f.is("rope_no_amplitude"):
		amplitude = 1
	case f.is("rope_amplitude"):
		amplitude = mscale(f.Rope.Factor, 1)
	}
	table := f.frequencies(d)
	cosines, sines := make([]float64, 0, len(positions)*d/2), make([]float64, 0, len(positions)*d/2)
	for _, position := range positions {
		for _, frequency := range table {
			angle := FP32.round(float64(position) * frequency)
			cosines = append(cosines, amplitude*math.Cos(angle))
			sines = append(sines, amplitude*math.Sin(angle))
		}
	}
	dtype.roundAll(cosines)
	dtype.roundAll(sines)
	return f.constant(len(positions), d/2, cosines, dtype), f.constant(len(positions), d/2, sines, dtype)
}

// rotary turns the rotated part of each head of x, [tokens, heads·width]. The rest of a head stands
// before that part in latent attention, and behind it in grouped attention.
func (f *formula) rotary(x *node, width int, positions []int32, reversed bool) *node {
	d := f.RopeDim
	if f.is("rope_whole_head") {
		d = width
	}
	d = min(d, width)
	from := 0
	if last := f.KVRank > 0; last != (f.is("rope_leading") || f.is("rope_trailing")) {
		from = width - d
	}
	var first, second []int
	for i := range d / 2 {
		if f.Interleaved != f.is("rope_other_pairs") {
			first, second = append(first, from+2*i), append(second, from+2*i+1)
		} else {
			first, second = append(first, from+i), append(second, from+i+d/2)
		}
	}
	dtype, format := x.dtype, x.dtype
	if dtype != Exact && (f.RopeFP32 || f.rounding.Way == KernelEnds) {
		format = FP32
	}
	cos, sin := f.tables(d, positions, format)
	heads := x.cols / width
	each := make([]int, 0, x.rows*heads)
	for r := range x.rows * heads {
		each = append(each, r/heads)
	}
	cos, sin = f.rowsOf(cos, each), f.rowsOf(sin, each)
	sign := 1.0
	if reversed != f.is("rope_reversed") {
		sign = -1
	}
	y := f.kernel(func() *node {
		h := f.cast(f.reshape(x, width), format)
		a, b := f.pick(h, first), f.pick(h, second)
		y := f.join(
			f.pick(h, span(0, from)),
			f.add(f.mul(a, cos), f.mul(b, sin), -sign),
			f.add(f.mul(b, cos), f.mul(a, sin), sign),
			f.pick(h, span(from+d, width)))
		return f.cast(y, dtype)
	})
	return f.reshape(y, heads*width)
}
