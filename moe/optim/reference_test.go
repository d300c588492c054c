package optim_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Muon against torch.optim.Muon, with its constants: momentum 0.95, weight decay 0.1, Nesterov and
// Newton-Schulz in BF16, at a rate of 0.02. The file has matrices SCALE_pN_STEP and gradients
// SCALE_gN_STEP, where step 0 is the initial matrix. Its ns_out_f64 are iterations from ns_in in
// float64.
func TestMuonReference(t *testing.T) {
	file, err := safetensors.Open("testdata/muon.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read := func(name string) tensor.Tensor {
		info, _ := file.Info(name)
		values, err := file.Float32s(name)
		if err != nil {
			t.Fatal(err)
		}
		x := tensor.New(tensor.FP32, info.Shape...)
		copy(x.F32(), values)
		return x
	}
	// Steps with BF16 products differ in their roundings, which the references make elsewhere.
	compare := func(name string, got []float32, bound float64) {
		var diff, norm float64
		for i, w := range read(name).F32() {
			d := float64(got[i] - w)
			diff, norm = diff+d*d, norm+float64(w)*float64(w)
		}
		l2 := math.Sqrt(diff / norm)
		if t.Logf("%s: relative L2 distance %.2e", name, l2); !(l2 <= bound) {
			t.Errorf("%s: relative L2 distance %.2e, at most %g", name, l2, bound)
		}
	}
	five := slices.Repeat([]optim.Polynomial{{A: 3.4445, B: -4.7750, C: 2.0315}}, 5)
	compare("ns_out_f64", optim.NewtonSchulz(tensor.NewExec(), read("ns_in"), tensor.FP32, five).F32(), 1e-5)
	for _, scale := range []string{"match_rms_adamw", "original"} {
		settings := optim.DefaultConfig()
		settings.Name, settings.Scale = "muon", scale
		rule, err := settings.Rule()
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			first := read(fmt.Sprintf("%s_p%d_0", scale, n))
			g := &moe.Group{Name: "matrix", Work: tensor.New(tensor.FP32, first.Len()), Grad: tensor.New(tensor.FP32, first.Len())}
			g.Params = []*moe.Param{{Name: "matrix", Dims: first.Dims(), Class: moe.Linear, Work: g.Work, Grad: g.Grad}}
			o := optim.New(tensor.NewExec(), []*moe.Group{g}, collective.NewWorld(1).Comm(0), rule)
			for p := range o.Pieces {
				copy(p.Master, first.F32())
			}
			for step := range 5 {
				copy(g.Grad.F32(), read(fmt.Sprintf("%s_g%d_%d", scale, n, step+1)).F32())
				if err := o.Apply(0.02, 1); err != nil {
					t.Fatal(err)
				}
			}
			compare(fmt.Sprintf("%s_p%d_5", scale, n), g.Work.F32(), 1e-2)
		}
	}
}
