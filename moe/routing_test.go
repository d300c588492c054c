package moe

import (
	"maps"
	"slices"
	"testing"

	"spmoe/tensor"
)

// routed trains one step and returns its gradients, the choices that it records, and its loads.
func routed(t *testing.T, mode Recompute, replay func(layer int) ([]int32, []float32)) (grads map[string][]float32, experts []int32, weights []float32, load []int64) {
	t.Helper()
	cfg := spreadModel()
	m := alone(t, cfg, tensor.BF16, 8)
	m.model.Recompute = mode
	b := batchOf(22, 4, 8, cfg.Vocab)
	calls := 0
	b.Routes = &Routes{Replay: replay, Record: func(_ int, e []int32, w []float32) {
		calls++
		experts, weights = slices.Clone(e), slices.Clone(w)
	}}
	if _, err := m.model.Train(m.ex, b); err != nil {
		t.Fatal(err)
	}
	all := m.model.Routings()
	if calls != len(all) {
		t.Errorf("%v: %d calls of Record for %d layers", mode, calls, len(all))
	}
	return m.gradients(), experts, weights, slices.Clone(all[len(all)-1].Load)
}

// A pass that replays its own routes has its own gradients, and one that replays others has those
// experts, with their loads, whatever is recomputed.
func TestReplay(t *testing.T) {
	want, own, weights, load := routed(t, RecomputeNone, nil)
	other := slices.Clone(own)
	for i := range other {
		other[i] = (other[i] + 1) % int32(spreadModel().Experts)
	}
	for _, mode := range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
		grads, experts, w, _ := routed(t, mode, nil)
		if !slices.Equal(experts, own) || !slices.Equal(w, weights) || !maps.EqualFunc(grads, want, slices.Equal) {
			t.Errorf("%v: recording changes the pass", mode)
		}
		shifted, experts, w, moved := routed(t, mode, func(int) ([]int32, []float32) { return other, weights })
		if !slices.Equal(experts, other) || !slices.Equal(w, weights) || slices.Equal(moved, load) || maps.EqualFunc(shifted, want, slices.Equal) {
			t.Errorf("%v: the replayed experts are %v with loads %v, want %v", mode, experts[:8], moved, other[:8])
		}
	}
}
