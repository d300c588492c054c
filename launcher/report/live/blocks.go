package live

import (
	"math"
	"strings"
)

// Graphs of numbers in one row of block characters.

var heights = []rune("▁▂▃▄▅▆▇█")

// block returns the block character of a height, clamped to [0, 1].
func block(height float64) rune {
	if math.IsNaN(height) {
		return '×'
	}
	return heights[int(math.Ceil(min(max(height, 1e-9), 1)*float64(len(heights))))-1]
}

// bar returns a bar of the given number of cells, filled to a fraction.
func bar(share float64, cells int) (full, empty string) {
	eighths := int(min(max(share, 0), 1) * float64(8*cells))
	full = strings.Repeat("█", eighths/8)
	if part := eighths % 8; part > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[part-1])
	}
	return full, strings.Repeat("░", cells-len([]rune(full)))
}

// history is a series of numbers of any length. It keeps means over ranges of equal length.
type history struct {
	means   []float64
	stretch int       // numbers per mean
	next    []float64 // numbers of the next mean
}

// mostMeans is twice the widest sparkline.
const mostMeans = 128

func (h *history) add(v float64) {
	h.next = append(h.next, v)
	if len(h.next) < h.stretch {
		return
	}
	h.means = append(h.means, mean(h.next))
	h.next, h.stretch = h.next[:0], max(h.stretch, 1)
	if len(h.means) < mostMeans {
		return
	}
	for i := range mostMeans / 2 {
		h.means[i] = mean(h.means[2*i : 2*i+2])
	}
	h.means, h.stretch = h.means[:mostMeans/2], 2*h.stretch
}

// mean averages the finite values; NaN if there are none.
func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(n)
}

// sparkline shows all numbers in at most the given number of cells. The lowest block is the minimum
// and the highest the maximum. A loss falls steeply at first, so the first quarter of a long
// history does not count for these two, and what exceeds them is cut off. A value that is not
// finite is a cross.
func (h *history) sparkline(cells int) string {
	const long = 16 // cells
	n := max(min(len(h.means), cells), 0)
	values := make([]float64, n)
	for i := range values {
		values[i] = mean(h.means[i*len(h.means)/n : (i+1)*len(h.means)/n])
	}
	low, high := extent(values)
	if n >= long {
		if l, h := extent(values[n/4:]); l < h {
			low, high = l, h
		}
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(block((v - low) / max(high-low, math.SmallestNonzeroFloat64)))
	}
	return b.String()
}

// extent returns the smallest and the largest of the finite values.
func extent(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return low, high
}

// loads shows the number of tokens per expert, layer by layer, in at most the given number of
// cells. An even load is half a cell high; twice that or more fills the cell. An expert without
// tokens is a dot. If there are more experts or layers than cells, a cell shows the most loaded of
// several neighbors.
func loads(tokens []int64, layers, cells int) string {
	if layers < 1 || len(tokens) < layers || cells < 1 {
		return ""
	}
	experts := len(tokens) / layers
	if each := (cells+1)/layers - 1; each >= 1 {
		shown := min(experts, each)
		var b strings.Builder
		for l := range layers {
			if l > 0 {
				b.WriteByte(' ')
			}
			for i := range shown {
				b.WriteRune(heaviest(tokens[l*experts:(l+1)*experts], i*experts/shown, (i+1)*experts/shown))
			}
		}
		return b.String()
	}
	shown := min(layers, cells)
	var b strings.Builder
	for i := range shown {
		worst := '·'
		for l := i * layers / shown; l < (i+1)*layers/shown; l++ {
			worst = max(worst, heaviest(tokens[l*experts:(l+1)*experts], 0, experts)) // blocks are ordered by height, and follow the dot
		}
		b.WriteRune(worst)
	}
	return b.String()
}

// heaviest returns the block of the most loaded of the experts [from, to) of a layer.
func heaviest(tokens []int64, from, to int) rune {
	var total, most int64
	for i, n := range tokens {
		if total += n; i >= from && i < to {
			most = max(most, n)
		}
	}
	if most == 0 {
		return '·'
	}
	return block(float64(most) * float64(len(tokens)) / float64(2*total))
}
