package moe

// Tokens and gradients that travel between ranks as MXFP8.

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// trainedOver is one pass of two ranks over an exchange with options; gradients are summed.
func trainedOver(t *testing.T, cfg Config, name string, o ep.Options) trained {
	t.Helper()
	p, err := PrecisionByName(name)
	if err != nil {
		t.Fatal(err)
	}
	got, mu := trained{grads: map[string][]float32{}}, sync.Mutex{}
	err = collective.NewWorld(2).Run(func(c *collective.Comm) error {
		exchange, err := ep.New("onesided", c, cfg.Experts, o)
		if err != nil {
			return err
		}
		model, err := New(cfg, p, 16, c, exchange)
		if err != nil {
			return err
		}
		spread(model)
		for _, g := range model.Groups {
			g.Refresh(tensor.NewExec())
		}
		m := &member{c, tensor.NewExec(), model}
		loss, err := model.Train(m.ex, batchOf(1, 6, 16, cfg.Vocab).part(3*c.Rank(), 3*c.Rank()+3))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		got.loss += loss.Sum
		got.dropped += loss.Dropped
		for name, g := range m.gradients() {
			if got.grads[name] == nil {
				got.grads[name] = make([]float32, len(g))
			}
			for i, v := range g {
				got.grads[name][i] += v
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Where experts compute in MXFP8 anyway, codes that came over the wire are those that they would
// have made: only the weight gradients that read these rows in another form can tell. In BF16 they
// do; quantized along columns, a number that has been rounded to the bits of E4M3 once is mostly
// not rounded again, whatever the power of two that its new scale is.
func TestMXFP8OnTheWire(t *testing.T) {
	cfg := quantizable(72, 40)
	for _, precision := range []string{"mxfp8", "mxfp8-experts", "mxfp8-wgrad-bf16"} {
		want := trainedOver(t, cfg, precision, ep.Options{})
		for name, wire := range map[string]struct {
			options ep.Options
			reads   []string // expert weights whose gradients read the rows
		}{
			"dispatch":         {ep.Options{Dispatch: ep.MXFP8}, []string{"gate_proj", "up_proj"}},
			"combine backward": {ep.Options{CombineBackward: ep.MXFP8}, []string{"down_proj"}},
		} {
			t.Run(precision+"/"+name, func(t *testing.T) {
				got := trainedOver(t, cfg, precision, wire.options)
				if got.loss != want.loss {
					t.Errorf("loss %v, want %v", got.loss, want.loss)
				}
				for param, w := range want.grads {
					reads := strings.Contains(param, ".experts.") && slices.ContainsFunc(wire.reads, func(s string) bool { return strings.Contains(param, s) })
					g := got.grads[param]
					differs := !slices.Equal(g, w)
					if d := distance(g, w); !(d < 0.05) || differs && !reads || !differs && reads && precision == "mxfp8-wgrad-bf16" {
						t.Errorf("gradient of %s is off by %.2g of its length", param, d)
					}
				}
			})
		}
	}
}

// Other recipes compute with the dequantized rows: near what they would have been.
func TestMXFP8OnTheWireOfOtherRecipes(t *testing.T) {
	cfg := quantizable(72, 40)
	for _, precision := range []string{"fp32", "bf16", "mxint8"} {
		t.Run(precision, func(t *testing.T) {
			want := trainedOver(t, cfg, precision, ep.Options{})
			got := trainedOver(t, cfg, precision, ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8})
			if d := math.Abs(got.loss/want.loss - 1); !(d < 0.01) || d == 0 {
				t.Errorf("the loss is off by %.2g", d)
			}
			worst, worstName := 0.0, ""
			for param, w := range want.grads {
				if d := distance(got.grads[param], w); !(d <= worst) {
					worst, worstName = d, param
				}
			}
			if !(worst < 0.15) || worst == 0 {
				t.Errorf("gradient of %s is off by %.2g of its length", worstName, worst)
			}
			t.Logf("worst gradient, of %s: off by %.2g", worstName, worst)
		})
	}
}

// Experts that take less drop choices, and the pass counts them; the gradients are those of what
// was computed.
func TestCapacityIsCounted(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.TopK = 2 })
	all := trainedOver(t, cfg, "bf16", ep.Options{})
	if roomy := trainedOver(t, cfg, "bf16", ep.Options{Capacity: float64(cfg.Experts)}); all.dropped != 0 || roomy.dropped != 0 || roomy.loss != all.loss {
		t.Errorf("dropped %d and %d, loss %v and %v", all.dropped, roomy.dropped, all.loss, roomy.loss)
	}
	limited := trainedOver(t, cfg, "bf16", ep.Options{Capacity: 0.5})
	layers := cfg.MoELayers()
	if most := 6 * 16 * cfg.TopK * layers; limited.dropped < most/2-layers*cfg.Experts || limited.dropped >= most || limited.loss == all.loss {
		t.Errorf("dropped %d of %d choices, loss %v against %v", limited.dropped, most, limited.loss, all.loss)
	}
	for name, g := range limited.grads {
		if d := l2(g); math.IsNaN(d) || math.IsInf(d, 0) {
			t.Errorf("gradient of %s is %v long", name, d)
		}
	}
}
