package moe

import (
	"fmt"
	"strings"
)

// Stages cuts the model into n stages, such that the one with the most FLOPs per token has as few
// as possible, for sequences of seq tokens. The head counts like a layer, together with the layers
// that predict further ahead. With more stages than layers, the embedding or the head are alone.
func (c Config) Stages(n, seq int) ([]Stage, error) {
	costs := c.itemCosts(seq)
	shared := strings.Count(c.IndexerTypes, "S") // layers that are with the one before
	if most := len(costs) - shared; n < 1 || n > most {
		note := ""
		if shared > 0 {
			note = fmt.Sprintf(", of which %d share the keys of the layer before (model.indexer_types)", shared)
		}
		return nil, fmt.Errorf("%d stages for a model of %d layers%s: give 1 to %d", n, c.Layers, note, most)
	}
	var stages []Stage
	first := 0
	for _, end := range evenRuns(costs, n, func(item int) bool { return !c.sharesChoice(item - 1) }) {
		layers := func(item int) int { return min(max(item-1, 0), c.Layers) }
		s := Stage{First: layers(first), End: layers(end), Embed: first == 0, Predict: end == len(costs)}
		if s.Predict {
			s.End, s.Ahead = c.AllLayers(), c.MTPLayers
		}
		stages = append(stages, s)
		first = end
	}
	return stages, nil
}

// itemCosts returns the FLOPs per token of the embedding, of each layer, and of the head with the
// layers that predict further ahead.
func (c Config) itemCosts(seq int) []float64 {
	costs := make([]float64, c.Layers+2)
	for i := range c.AllLayers() {
		for _, m := range c.modulesOf(i, seq) {
			costs[1+min(i, c.Layers)] += m.FLOPs.Total()
		}
	}
	for _, ahead := range []bool{false, true}[:1+c.MTPLayers] {
		costs[c.Layers+1] += c.outside(PartKey{Head, ahead}).FLOPs.Total() + c.outside(PartKey{Norms, ahead}).FLOPs.Total()
	}
	return costs
}

// evenRuns divides costs into n runs of one or more, the largest as small as possible, and returns
// their ends. A run begins only where it may.
func evenRuns(costs []float64, n int, mayBegin func(i int) bool) []int {
	type division struct {
		most, squares float64 // of the runs' costs; the squares choose between divisions
		ends          []int
	}
	best := make([]*division, len(costs)+1) // of the first i costs into as many runs as rounds so far
	best[0] = &division{}
	for range n {
		next := make([]*division, len(costs)+1)
		for end := 1; end <= len(costs); end++ {
			sum := 0.0
			for first := end - 1; first >= 0; first-- {
				sum += costs[first]
				before := best[first]
				if before == nil || !mayBegin(first) {
					continue
				}
				most, squares := max(before.most, sum), before.squares+sum*sum
				if b := next[end]; b == nil || most < b.most || most == b.most && squares < b.squares {
					next[end] = &division{most, squares, append(before.ends[:len(before.ends):len(before.ends)], end)}
				}
			}
		}
		best = next
	}
	return best[len(costs)].ends
}
