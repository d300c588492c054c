package golden

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor"
)

// Many scores of an indexer are exactly 0, as its heads' scores pass through a ReLU. Of equal ones
// moe chooses the keys at the lowest positions. torch.topk leaves the order open: on a CPU it is
// that of std::nth_element in libstdc++.

// lead raises the scores of later keys, except 0. In step 1 of deepseek_v32_tiny, keys 3 and 24 of
// a query have scores of 0.349 that differ by 8.5e-8. A sum in FP32 turns their order around, and
// so does the reference.
const lead = 5e-8

// chooseAsTorch makes later passes use the keys that torch.topk chooses.
func (r *rank) chooseAsTorch(t *testing.T, seq int) {
	operands := map[string][]float32{}
	r.model.Observe(func(name string, x tensor.Tensor) {
		switch _, name, _ := strings.Cut(name, "_"); name {
		case "index_queries", "index_keys", "index_weights":
			operands[name] = slices.Clone(x.F32())
		case "index_choice":
			replaceTies(t, seq, operands, x.U64())
		}
	})
}

// replaceTies replaces chosen keys, bits of one word for each query, by those of torch.topk. Both
// must have the same scores.
func replaceTies(t *testing.T, seq int, operands map[string][]float32, chosen []uint64) {
	q, k, w := operands["index_queries"], operands["index_keys"], operands["index_weights"]
	for row, own := range chosen {
		first, at := row-row%seq, row%seq
		topK := bits.OnesCount64(own)
		if topK == at+1 {
			continue // all keys up to the query's own
		}
		heads, dim := len(w)/len(chosen), len(k)/len(chosen)
		scores, keys := make([]float64, seq), make([]int, seq)
		for key := range keys {
			keys[key] = key
			if scores[key] = math.Inf(-1); key <= at {
				score := indexScore(q[row*heads*dim:][:heads*dim], k[(first+key)*dim:][:dim], w[row*heads:][:heads])
				scores[key] = score * (1 + lead*float64(key))
			}
		}
		selectLargest(keys, topK, scores)
		theirs, difference := uint64(0), 0.0
		for _, key := range keys[:topK] {
			theirs |= 1 << key
			difference += scores[key]
		}
		for key := range at + 1 {
			if own>>key&1 == 1 {
				difference -= scores[key]
			}
		}
		if !(math.Abs(difference) <= 1e-6) {
			t.Errorf("query %d: the scores of keys %b exceed those of %b by %g", row, theirs, own, difference)
		}
		chosen[row] = theirs
	}
}

// indexScore returns the score of a key for a query.
func indexScore(q, k, w []float32) (score float64) {
	for h, weight := range w {
		dot := 0.0
		for i, v := range k {
			dot += float64(q[h*len(k)+i]) * float64(v)
		}
		score += float64(weight) * max(dot, 0) / math.Sqrt(float64(len(q)))
	}
	return score
}

// selectLargest moves the n keys with the largest scores to the front. With equal scores, the
// result depends on each step: the pivot is the median of the second, middle and last one, both
// ends are searched for keys to swap, and three keys or fewer are sorted.
func selectLargest(keys []int, n int, scores []float64) {
	above := func(i, j int) bool { return scores[keys[i]] > scores[keys[j]] }
	swap := func(i, j int) { keys[i], keys[j] = keys[j], keys[i] }
	for len(keys) > 3 {
		second, middle, last := 1, len(keys)/2, len(keys)-1
		switch down := above(second, middle); down {
		case above(middle, last):
			swap(0, middle)
		case above(second, last):
			swap(0, last)
		default:
			swap(0, second)
		}
		from, to := 1, last
		for ; ; from, to = from+1, to-1 {
			for above(from, 0) {
				from++
			}
			for above(0, to) {
				to--
			}
			if from >= to {
				break
			}
			swap(from, to)
		}
		if from < n {
			keys, n = keys[from:], n-from
		} else {
			keys = keys[:from]
		}
	}
	slices.SortStableFunc(keys, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
}
