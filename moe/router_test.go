package moe

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"spmoe/tensor"
)

// chooseBySorting is topK.choose by the words of the paper: rank the groups by the sum of their two
// best values, keep the best groups, rank their experts. Stable sorts give a tie to the lower
// number.
func chooseBySorting(scores, bias []float32, groups, keep, k int) []int32 {
	values := make([]float32, len(scores))
	for e := range values {
		values[e] = scores[e] + bias[e]
	}
	size := len(values) / groups
	groupValue := make([]float32, groups)
	order := make([]int, groups)
	for g := range groups {
		sorted := slices.SortedFunc(slices.Values(values[g*size:(g+1)*size]), descending)
		groupValue[g] = sorted[0]
		if size > 1 {
			groupValue[g] += sorted[1]
		}
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int { return descending(groupValue[a], groupValue[b]) })
	var experts []int32
	for _, g := range slices.Sorted(slices.Values(order[:keep])) {
		for e := g * size; e < (g+1)*size; e++ {
			experts = append(experts, int32(e))
		}
	}
	slices.SortStableFunc(experts, func(a, b int32) int { return descending(values[a], values[b]) })
	return experts[:k]
}

func descending(a, b float32) int { return cmp.Compare(b, a) }

func TestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Groups: rapid.IntRange(1, 6).Draw(t, "groups")}
		size := rapid.IntRange(1, 6).Draw(t, "experts a group")
		cfg.Experts = cfg.Groups * size
		cfg.TopKGroups = rapid.IntRange(1, cfg.Groups).Draw(t, "groups kept")
		cfg.TopK = rapid.IntRange(1, cfg.TopKGroups*size).Draw(t, "top k")
		// Few different values, so that ties abound, and biases that push most values below zero.
		few := func(low, high int, label string) []float32 {
			values := make([]float32, cfg.Experts)
			for e := range values {
				values[e] = float32(rapid.IntRange(low, high).Draw(t, label)) / 4
			}
			return values
		}
		scores, bias := few(0, 4, "score"), few(-8, 2, "bias")
		choice, got := newTopK(tensor.NewExec(), cfg), make([]int32, cfg.TopK)
		for range 2 { // the second time with scratch that is not fresh
			choice.choose(got, scores, bias)
			if want := chooseBySorting(scores, bias, cfg.Groups, cfg.TopKGroups, cfg.TopK); !slices.Equal(got, want) {
				t.Fatalf("chose %v, want %v", got, want)
			}
		}
	})
}

// Scores that are not numbers must not lead outside the table: the step is skipped later, not
// crashed.
func TestChoiceOfNaN(t *testing.T) {
	nan := float32(math.NaN())
	for _, groups := range []int{1, 4} {
		cfg := Config{Experts: 8, TopK: 4, Groups: groups, TopKGroups: max(groups/2, 1)}
		ids := []int32{-1, -1, -1, -1}
		choice := newTopK(tensor.NewExec(), cfg)
		choice.choose(ids, slices.Repeat([]float32{nan}, 8), make([]float32, 8))
		slices.Sort(ids)
		if ids[0] < 0 || ids[3] > 7 || len(slices.Compact(ids)) != 4 {
			t.Errorf("%d groups: chose %v, want four different experts", groups, ids)
		}
	}
}

func TestWeights(t *testing.T) {
	scores := []float32{0.5, 0.125, 0.75, 0.25}
	for _, c := range []struct {
		name  string
		norm  bool
		scale float64
		ids   []int32
		want  []float64
	}{
		{"plain", false, 1, []int32{2, 0}, []float64{0.75, 0.5}},
		{"scaled", false, 2.5, []int32{0, 3, 1}, []float64{1.25, 0.625, 0.3125}},
		{"normalized", true, 1, []int32{2, 3}, []float64{0.75, 0.25}},
		{"normalized and scaled", true, 4, []int32{0, 1}, []float64{3.2, 0.8}},
		{"one, normalized", true, 1.5, []int32{1}, []float64{1.5}},
	} {
		r := &router{cfg: Config{NormTopK: c.norm, RouteScale: c.scale}}
		w := make([]float32, len(c.ids))
		r.weigh(w, c.ids, scores)
		for k := range w {
			if math.Abs(float64(w[k])-c.want[k]) > 1e-6 {
				t.Errorf("%s: weights %v, want %v", c.name, w, c.want)
				break
			}
		}
	}
	r := &router{cfg: Config{NormTopK: true, RouteScale: 1}}
	w := []float32{9, 9}
	if r.weigh(w, []int32{0, 1}, []float32{0, 0}); w[0] != 0 || w[1] != 0 {
		t.Errorf("weights of zero scores are %v, want zeros", w)
	}
}

// The bias decides who is chosen; the weights are those of the scores alone.
func TestBiasChoosesButDoesNotWeigh(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.NormTopK, c.RouteScale = false, 1 })
	m := alone(t, cfg, tensor.FP32, 8)
	bias := m.model.Routings()[0].Bias.F32()
	clear(bias)
	bias[3], bias[5] = -10, 100
	m.model.Observe(func(name string, x tensor.Tensor) {
		switch name {
		case "layer1_topk_index":
			for tok := range x.Dim(0) {
				if ids := x.Index(tok).I32(); ids[0] != 5 || ids[1] == 3 {
					t.Errorf("token %d chose %v, want 5 first and never 3", tok, ids)
				}
			}
		case "layer1_topk_weight":
			for _, w := range x.F32() {
				if !(w > 0 && w < 1) {
					t.Errorf("weight %g is no sigmoid", w)
				}
			}
		}
	})
	if _, err := m.model.Eval(m.ex, batchOf(1, 2, 8, cfg.Vocab)); err != nil {
		t.Fatal(err)
	}
}

func TestLoadCountsChoices(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers = 1 })
	m := alone(t, cfg, tensor.FP32, 8)
	want := map[string][]int64{}
	m.model.Observe(func(name string, x tensor.Tensor) {
		if x.DType() == tensor.INT32 {
			if want[name] == nil {
				want[name] = make([]int64, cfg.Experts)
			}
			for _, e := range x.I32() {
				want[name][e]++
			}
		}
	})
	for seed := range uint64(2) {
		if _, err := m.model.Train(m.ex, batchOf(seed, 2, 8, cfg.Vocab)); err != nil {
			t.Fatal(err)
		}
	}
	routings := m.model.Routings()
	if len(routings) != 2 {
		t.Fatalf("%d routers, want those of layer 1 and the MTP module", len(routings))
	}
	for i, name := range []string{"layer1_topk_index", "layer2_topk_index"} {
		if !slices.Equal(routings[i].Load, want[name]) || total(want[name]) != 2*16*int64(cfg.TopK) {
			t.Errorf("%s: load %v, want %v", name, routings[i].Load, want[name])
		}
	}
}
