package moe

// Tokens and gradients that travel between ranks as MXFP8.

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/ep"
)

// overWire is one pass of two ranks over an exchange with options.
func overWire(t *testing.T, cfg Config, precision string, o ep.Options) summed {
	t.Helper()
	return way{ranks: 2, wire: o}.train(t, cfg, defaultOutputSizes(), precision, batchOf(1, 6, 16, cfg.Vocab))
}

// Where experts compute in MXFP8 anyway, codes that came over the wire are those that they would
// have made: only the weight gradients that read these rows in another form can tell. In BF16 they
// do; quantized along columns, a number that has been rounded to the bits of E4M3 once is mostly
// not rounded again, whatever the power of two that its new scale is.
func TestMXFP8OnTheWire(t *testing.T) {
	cfg := quantizable(72, 40)
	for _, precision := range []string{"mxfp8", "mxfp8-experts", "mxfp8-wgrad-bf16"} {
		want := overWire(t, cfg, precision, ep.Options{})
		for name, wire := range map[string]struct {
			options ep.Options
			reads   []string // expert weights whose gradients read the rows
		}{
			"dispatch":         {ep.Options{Dispatch: ep.MXFP8}, []string{"gate_proj", "up_proj"}},
			"combine backward": {ep.Options{CombineBackward: ep.MXFP8}, []string{"down_proj"}},
		} {
			t.Run(precision+"/"+name, func(t *testing.T) {
				got := overWire(t, cfg, precision, wire.options)
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

// Experts that take less drop choices, and the pass counts them; the gradients are those of what
// was computed.
func TestCapacityIsCounted(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.TopK = 2 })
	all := overWire(t, cfg, "bf16", ep.Options{})
	if roomy := overWire(t, cfg, "bf16", ep.Options{Capacity: float64(cfg.Experts)}); all.loss.Dropped != 0 || roomy.loss.Dropped != 0 || roomy.loss.Sum != all.loss.Sum {
		t.Errorf("dropped %d and %d, loss %v and %v", all.loss.Dropped, roomy.loss.Dropped, all.loss, roomy.loss)
	}
	limited := overWire(t, cfg, "bf16", ep.Options{Capacity: 0.5})
	layers := cfg.MoELayers()
	if most := 6 * 16 * cfg.TopK * layers; limited.loss.Dropped < most/2-layers*cfg.Experts || limited.loss.Dropped >= most || limited.loss == all.loss {
		t.Errorf("dropped %d of %d choices, loss %v against %v", limited.loss.Dropped, most, limited.loss, all.loss)
	}
	for name, g := range limited.grads {
		if d := l2(g); math.IsNaN(d) || math.IsInf(d, 0) {
			t.Errorf("gradient of %s is %v long", name, d)
		}
	}
}
