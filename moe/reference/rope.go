package reference

import (
	"math"
	"slices"
	"strings"
)

// frequencies returns theta^(-2i/d) for each of d/2 pairs of elements. YaRN divides the low ones by
// its factor:
//
//	f_i = f_i/factor · ramp_i + f_i · (1 - ramp_i)
//
// The ramp rises between the pairs that turn BetaFast and BetaSlow times in the original context.
// Source: arXiv 2309.00071, 3.2. All families compute this table in FP32. A model that is cast as a
// whole rounds it once more.
func (f *formula) frequencies(d int) []float64 {
	p := f.rope()
	p.Theta = pick(f, map[string]float64{"rope_base_10000": 1e4, "rope_base_1000000": 1e6, "rope_base_other": max(f.numbers[0], 2)}, p.Theta)
	if f.is("rope_positions_other") && f.numbers[1] > 1 { // its second number
		p.Theta = f.numbers[1]
	}
	p.Factor = pick(f, map[string]float64{"rope_no_yarn": 1}, p.Factor)
	pair := func(turns float64) float64 {
		return float64(d) * math.Log(float64(p.Original)/(turns*2*math.Pi)) / (2 * math.Log(p.Theta))
	}
	lo, hi := pair(p.BetaFast), pair(p.BetaSlow)
	if p.Truncate == nil || *p.Truncate {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, float64(d-1))
	if lo == hi {
		hi += 0.001
	}
	table := make([]float64, d/2)
	for i := range table {
		table[i] = FP32.Round(math.Pow(p.Theta, -2*float64(i)/float64(d)))
		ramp := pick(f, map[string]float64{"rope_linear": 1}, min(max((float64(i)-lo)/(hi-lo), 0), 1))
		if p.Factor != 1 {
			table[i] = FP32.Round(table[i]/p.Factor*ramp + table[i]*(1-ramp))
		}
	}
	for i := 1; f.rounding.Jitter != 0 && i < len(table); i++ { // code's power is off by a unit
		table[i] *= 1 + math.Copysign(0x1p-23, float64(i%2)-0.5)
	}
	switch {
	case f.is("rope_low_frequencies"):
		BF16.roundAll(table)
	case f.rounding.Way == EveryOp:
		f.format("model.rotary_emb.inv_freq").roundAll(table)
	}
	return table
}

// rope returns the rotary embedding of the layer.
func (f *formula) rope() Rope {
	compressed := f.Ratio(f.layer) > 0 || strings.HasSuffix(f.module.Path, "rotary_emb.compress")
	if f.Streams > 0 && compressed != f.is("rope_of_other_layers") {
		return f.CompressRope
	}
	return f.Rope
}

// turns returns the cosine and sine of the angles of each position, [positions, d/2].
func (f *formula) turns(d int, positions []int32, dtype Format) (cos, sin *node) {
	var cosines, sines []float64
	table, rope := f.frequencies(d), f.rope()
	amplitude := pick(f, map[string]float64{"rope_amplitude_missing": 1, "rope_amplitude_added": mscale(rope.Factor, 1)}, rope.Amplitude)
	speed := pick(f, map[string]float64{"rope_positions_other": f.numbers[0]}, 1)
	for _, position := range positions {
		for _, frequency := range table {
			angle := FP32.Round(float64(position) * speed * frequency)
			cosines = append(cosines, dtype.Round(amplitude*math.Cos(angle)))
			sines = append(sines, dtype.Round(amplitude*math.Sin(angle)))
		}
	}
	return f.constant(len(positions), d/2, cosines, dtype), f.constant(len(positions), d/2, sines, dtype)
}

// rotaryTables is what transformers' model.rotary_emb returns: cosines and sines, each twice next
// to each other. Without positions of their own, all sequences share them.
func (f *formula) rotaryTables() []*node {
	cos, sin := f.turns(f.RopeDim, f.positions(0), f.format("model.rotary_emb.output"))
	rows := cos.rows
	if f.batch.Positions == nil {
		rows = f.batch.Seq
	}
	twice := func(x *node) *node {
		if f.Streams > 0 { // DeepSeek-V4's are there once
			return f.take(x, rows, x.cols, func(r, i int) int { return r*x.cols + i })
		}
		return f.take(x, rows, 2*x.cols, func(r, i int) int { return r*x.cols + i%x.cols })
	}
	return []*node{twice(cos), twice(sin)}
}

// rotary turns the pairs (a, b) of each head of x, [tokens, heads·width]:
//
//	a' = a·cos - b·sin   and   b' = b·cos + a·sin
//
// A pair is two neighbours, or the same place in two halves. What is not rotated stands in front in
// latent and shared attention, and behind in grouped attention.
func (f *formula) rotary(x *node, width, ahead int, sign float64) *node {
	return f.rotaryAt(x, width, f.positions(ahead), sign)
}

// rotaryAt is rotary with the position of each row.
func (f *formula) rotaryAt(x *node, width int, positions []int32, sign float64) *node {
	d, from := min(f.RopeDim, width), 0
	angled := d
	switch {
	case f.is("rope_whole_head"):
		d, angled = width, width
	case f.is("rope_whole_repeated"):
		d = width
	}
	if (f.KVRank > 0 || f.Streams > 0) != f.is("rope_other_end") {
		from = width - d
	}
	if f.is("rope_reversed") {
		sign = -sign
	}
	return f.rotate(x, width, d, angled, from, f.Interleaved != f.is("rope_other_pairs"), positions, sign)
}

// rotate turns d elements of each head, behind the first ones that stay. angled of them have angles
// of their own, which repeat.
func (f *formula) rotate(x *node, width, d, angled, from int, interleaved bool, positions []int32, sign float64) *node {
	var first, second []int
	for i := range d / 2 {
		a, b := from+i, from+i+d/2
		if interleaved {
			a, b = from+2*i, from+2*i+1
		}
		first, second = append(first, a), append(second, b)
	}
	inside := x.dtype
	if inside != Exact && (f.RopeFP32 || f.rounding.Way == KernelEnds) {
		inside = FP32
	}
	tables := inside
	if f.Streams > 0 && f.rounding.Way == EveryOp { // DeepSeek-V4's are stored as the model is
		tables = x.dtype
	}
	cos, sin := f.turns(angled, positions, tables)
	if angled < d {
		repeated := func(x *node) *node {
			return f.take(x, x.rows, d/2, func(r, i int) int { return r*x.cols + i%x.cols })
		}
		cos, sin = repeated(cos), repeated(sin)
	}
	cos, sin = f.spread(cos, x.cols/width), f.spread(sin, x.cols/width)
	y := f.kernel(func() *node {
		h := f.cast(f.reshape(x, width), inside)
		a, b := f.columns(h, first), f.columns(h, second)
		return f.cast(f.join(
			f.columns(h, span(0, from)),
			f.add(f.mul(a, cos), f.mul(b, sin), -sign),
			f.add(f.mul(b, cos), f.mul(a, sin), sign),
			f.columns(h, span(from+d, width))), x.dtype)
	})
	if f.Streams > 0 { // in scores the order is of no account, but here keys are values
		order := slices.Concat(span(0, from), first, second, span(from+d, width)) // of the columns that y has
		back := make([]int, width)
		for i, column := range order {
			back[column] = i
		}
		y = f.columns(y, back)
	}
	return f.reshape(y, x.cols)
}

// positions returns those of the tokens, or of the tokens some places ahead.
func (f *formula) positions(ahead int) []int32 {
	own, n := f.batch.Positions, f.batch.Seq
	positions := make([]int32, f.batch.Batch*n)
	for i := range positions {
		at := i % n
		if f.is("rope_rolled") {
			at = (at + 1) % n
		}
		if positions[i] = int32(at); own != nil && !f.is("rope_positions_ignored") {
			positions[i] = own[i-i%n+at]
		}
		positions[i] += int32(ahead)
	}
	return positions
}
