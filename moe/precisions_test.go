package moe

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// TestEveryPassDraws: seeds, steps and the passes of a step round the same gradients in different
// ways, so that the errors of a sum over passes cancel. Each operand has random numbers of its own.
func TestEveryPassDraws(t *testing.T) {
	const seq, passes = 16, 4
	cfg := with(quantizable(64, 64), func(c *Config) { c.MTPLayers = 0 })
	o := DefaultOptions().NVFP4
	o.BF16Tail = 0
	model, err := New(cfg, o.precision(), seq, collective.NewWorld(1).Comm(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	spread(model)
	ex, streams := tensor.NewExec(), map[uint32]Quantized{}
	shown := map[string][][]float32{} // gradients of the last layer, of which none has been rounded before
	model.ObserveQuantized(func(q Quantized) {
		if q.Again || q.Operand != Gradient || q.Layer != 1 || !strings.HasSuffix(q.Linear, "experts.down_proj") {
			return
		}
		if q.Cols.Codes.Valid() && q.Cols.Format.Hadamard != 16 {
			t.Errorf("%s: %v, want a transform of 16 points", q.Linear, q.Cols.Format)
		}
		x := tensor.New(tensor.FP32, q.X.Rows, q.X.Cols)
		tensor.Convert(ex, x.Mat(), q.X)
		for name, form := range map[string]mx.Tensor{"x": {}, "rows": q.Rows, "columns": q.Cols} {
			values := x
			if form.Codes.Valid() {
				values = tensor.New(tensor.FP32, q.X.Rows, q.X.Cols)
				mx.Dequantize(ex, values.Mat(), form)
			}
			shown[q.Linear+" "+name] = append(shown[q.Linear+" "+name], values.F32())
		}
	})
	b := batchOf(17, 1, seq, cfg.Vocab)
	for _, key := range [][2]uint32{{1, 1}, {1, 2}, {2, 1}} {
		for _, g := range model.Groups {
			g.ZeroGrad()
			g.Refresh(ex)
		}
		for i := range passes {
			b.Seed, b.Step, b.More = key[0], key[1], i+1 < passes
			if _, err := model.Train(ex, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"shared_experts.down_proj rows", "shared_experts.down_proj columns", "experts.down_proj rows"} {
		linear, _, _ := strings.Cut(name, " ")
		all, x := shown[name], shown[linear+" x"]
		if len(all) != 3*passes {
			t.Fatalf("%s were shown %d times", name, len(all))
		}
		sum, one := make([]float64, len(x[0])), 0.0
		for i, values := range all {
			if !slices.Equal(x[i], x[0]) {
				t.Fatalf("%s: pass %d has other gradients", name, i)
			}
			for j := range i {
				if slices.Equal(values, all[j]) {
					t.Errorf("%s: passes %d and %d have the same codes", name, j, i)
				}
			}
			for k, v := range values {
				sum[k] += float64(v - x[0][k])
				one += float64(v-x[0][k]) * float64(v-x[0][k]) / float64(len(all))
			}
		}
		mean := 0.0
		for _, e := range sum {
			mean += e / float64(len(all)) * e / float64(len(all))
		}
		if ratio := math.Sqrt(mean / one); ratio > 0.35 {
			t.Errorf("%s: the mean of %d passes has %.2f times the error of one, want about 0.29", name, len(all), ratio)
		}
	}
	// No two rows of a gradient share an index: a row follows those of earlier passes. Rows of an
	// input have 2^16 passes of 2^32 rows.
	index := func(place int, o Operand) []uint64 {
		a := &activation{rowGroups: rowGroups{ends: []int32{1, 2}, inPasses: &passRows{[][]int32{{5, 7}, {3, 2}}}}}
		return (&mxLinear{}).draws(phase{passState: &passState{place: place}}, o, mx.AlongRows, mx.Cast{Rounding: mx.Stochastic}, a).Rows
	}
	if first, later := index(0, Gradient), index(2, Gradient); !slices.Equal(later, []uint64{first[0] + 8, first[1] + 9}) {
		t.Errorf("experts 0 and 1 have rows %d in the first pass and %d in the third", first, later)
	}
	if first, next := index(0, Input), index(1<<16-1, Input); first[0] >= next[0] || next[0]+1<<32 > first[1] || first[1] >= next[1] {
		t.Errorf("experts 0 and 1 have rows %d in the first pass and %d in the last", first, next)
	}
	for _, layer := range []int{0, 1} {
		for _, linear := range []string{"experts.down_proj", "self_attn.o_proj"} {
			for _, operand := range []Operand{Input, Weight, Gradient} {
				for _, d := range []mx.Direction{mx.AlongRows, mx.AlongCols} {
					stream := (&mxLinear{identity: identity{layer: layer, linear: linear}}).stream(operand, d)
					if other, taken := streams[stream]; taken {
						t.Errorf("the %v of %d %s %v has the stream of %+v", operand, layer, linear, d, other)
					}
					streams[stream] = Quantized{Layer: layer, Linear: linear, Operand: operand}
				}
			}
		}
	}
}

// TestMXFP4Settings: each setting changes the operands that it names and no others.
func TestMXFP4Settings(t *testing.T) {
	plain := mx.Cast{Format: mx.MXFP4}
	transformed, signed, drawn := plain, plain, plain
	transformed.Format.Hadamard, transformed.Format.NoSigns = 16, true
	signed.Format.Hadamard = 16
	drawn.Rounding = mx.Stochastic
	for o, want := range map[MXFP4]Recipe{
		{"all", "none", false}:     {Forward: Product{plain, plain}, Dgrad: Product{plain, plain}, Wgrad: Product{plain, plain}},
		{"all", "none", true}:      {Forward: Product{plain, plain}, Dgrad: Product{drawn, plain}, Wgrad: Product{drawn, plain}},
		{"forward", "none", false}: {Forward: Product{plain, plain}},
		{"dgrad", "plain", false}:  {Dgrad: Product{transformed, transformed}},
		{"wgrad", "signs", false}:  {Wgrad: Product{signed, signed}},
		{"wgrad", "none", true}:    {Wgrad: Product{drawn, plain}},
	} {
		options := DefaultOptions()
		options.MXFP4 = o
		p, err := options.Precision("mxfp4-e2m1")
		if err != nil || *p.Linears != want || *p.Experts != want {
			t.Errorf("%+v: %+v, %v; want %+v", o, p.Linears, err, want)
		}
	}
	for _, o := range []MXFP4{{"backward", "none", false}, {"all", "rht", false}} {
		options := DefaultOptions()
		options.MXFP4 = o
		if _, err := options.Precision("mxfp4-e2m1"); err == nil || !strings.Contains(err.Error(), "mxfp4.") {
			t.Errorf("%+v: %v, want an error that names the setting", o, err)
		}
	}
}
