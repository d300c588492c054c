package live

import (
	"math"
	"strings"
)

// Pictures of numbers in one row of block characters.

var heights = []rune("▁▂▃▄▅▆▇█")

// block is a height between 0 and 1; outside, the nearest.
func block(height float64) rune {
	if math.IsNaN(height) {
		return '×'
	}
	return heights[int(math.Ceil(min(max(height, 1e-9), 1)*float64(len(heights))))-1]
}

// bar is a bar of so many cells, full to a share.
func bar(share float64, cells int) (full, empty string) {
	eighths := int(min(max(share, 0), 1) * float64(8*cells))
	full = strings.Repeat("█", eighths/8)
	if part := eighths % 8; part > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[part-1])
	}
	return full, strings.Repeat("░", cells-len([]rune(full)))
}

// history is a series of numbers of any length, kept as means over equal stretches.
type history struct {
	means   []float64
	stretch int       // numbers of a mean
	next    []float64 // of the next one
}

// mostMeans is twice the columns that a sparkline ever takes.
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

// mean is that of the finite ones among some numbers; NaN if there are none.
func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(n)
}

// sparkline shows all numbers in at most so many cells, from the smallest, lowest, to the largest.
// What is no finite number is a cross.
func (h *history) sparkline(cells int) string {
	n := max(min(len(h.means), cells), 0)
	values := make([]float64, n)
	low, high := math.Inf(1), math.Inf(-1)
	for i := range values {
		if values[i] = mean(h.means[i*len(h.means)/n : (i+1)*len(h.means)/n]); !math.IsNaN(values[i]) {
			low, high = min(low, values[i]), max(high, values[i])
		}
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(block((v - low) / max(high-low, math.SmallestNonzeroFloat64)))
	}
	return b.String()
}

// loads shows how many tokens chose each expert, layer by layer, in at most so many cells: an even
// load is half a cell high, twice that or more fills it, and an expert that nobody chose is a dot.
// Where there are too many experts, or layers, a cell is the most loaded of some neighbours.
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
			worst = max(worst, heaviest(tokens[l*experts:(l+1)*experts], 0, experts)) // the blocks are ordered, behind the dot
		}
		b.WriteRune(worst)
	}
	return b.String()
}

// heaviest is the block of the most loaded of a layer's experts [from, to).
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
