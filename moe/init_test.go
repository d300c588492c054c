package moe

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"spmoe/moe/internal/normal"
	"spmoe/tensor"
)

func TestFillDoesNotDependOnSharding(t *testing.T) {
	for name, init := range map[string]Init{
		"zeros": {}, "ones": {Kind: Constant, Value: 1}, "normal": {Kind: Normal, Std: 1},
		"cut often": {Kind: TruncNormal, Std: 1, Cut: 0.5},
	} {
		p := &Param{Name: "model.w.weight", Init: init}
		whole := p.draw(1000, 3)
		for _, cuts := range [][]int{{0, 500, 1000}, {0, 1, 2, 999, 1000}, {0, 333, 334, 1000}} {
			var parts []float32
			for i, lo := range cuts[:len(cuts)-1] {
				part := make([]float32, cuts[i+1]-lo)
				p.Fill(part, lo, 3)
				parts = append(parts, part...)
			}
			if !slices.Equal(parts, whole) {
				t.Errorf("%s: drawn in parts %v the values differ", name, cuts)
			}
		}
	}
}

// Fill has the bits of the definition, whatever the kernel: for many elements, and where the kernel
// cannot know them, with a cosine of 0 or a logarithm near 0.
func TestFillIsAsDefined(t *testing.T) {
	const offset uint64 = 5
	for _, in := range []Init{truncNormal(0.02), headInit(512), {Kind: Normal, Std: 1}, {Kind: TruncNormal, Std: 1, Cut: 0.5}} {
		check := func(key uint64, n int) {
			drawn := make([]float32, n)
			in.fill(drawn, key, offset)
			for i, v := range drawn {
				if want := in.element(key, offset+uint64(i)); v != want {
					t.Fatalf("%+v, key %#x: element %d is %v, want %v", in, key, i, v, want)
				}
			}
		}
		check(77, 1<<20+33)
		for _, u := range []uint64{0, 1, 1 << 31, 3 << 30, 1<<32 - 2, 1<<32 - 1} {
			for _, quarter := range []uint64{0, 1, 2, 3} {
				for _, step := range []int64{-1 << 20, -1000, -1, 0, 1, 1000, 1 << 20} {
					v := uint64(int64(quarter<<30)+step) & (1<<32 - 1)
					first := unmix(u<<32 | v)
					for range offset {
						first -= golden
					}
					check(first, normal.Run)
				}
			}
		}
	}
}

// A kernel that knows few elements would have the right bits too, slowly.
func TestKernelDrawsAlmostAll(t *testing.T) {
	if !normal.Fast {
		t.Skip("this tier has no kernel")
	}
	unknown, run := 0, [normal.Run]float32{}
	const runs = 1000
	for i := range uint64(runs) {
		unknown += bits.OnesCount64(normal.Draw(&run, mix(i), 0.02, 2))
	}
	if most := runs * normal.Run / 500; unknown > most {
		t.Errorf("the kernel does not know %d of %d elements, want at most %d", unknown, runs*normal.Run, most)
	}
}

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	unshift := func(x uint64, n int) uint64 { return x ^ x>>n ^ x>>(2*n) }
	x = unshift(x, 31) * 0x319642b2d24d8ec3
	x = unshift(x, 27) * 0x96de1b173f119089
	return unshift(x, 30) - golden
}

// Means and deviations of a million draws, within five of their standard errors.
func TestFillDistributions(t *testing.T) {
	const n = 1 << 20
	for _, c := range []struct {
		name string
		init Init
		std  float64 // of the cut distribution
	}{
		{"embedding", Init{Kind: Normal, Std: 1}, 1},
		{"linear", truncNormal(0.02), 0.02},
		{"head", headInit(256), 0.98658 / 16},                          // cut at 3 deviations
		{"cut at 1", Init{Kind: TruncNormal, Std: 2, Cut: 2}, 1.07912}, // 2·sqrt(1 - 2·φ(1)/(2Φ(1)-1))
	} {
		t.Run(c.name, func(t *testing.T) {
			values := (&Param{Name: c.name, Init: c.init}).draw(n, 1)
			var mean, square, neighbours, largest float64
			for i, v := range values {
				x := float64(v)
				mean += x / n
				square += x * x / n
				neighbours += x * float64(values[(i+1)%n]) / n
				largest = max(largest, math.Abs(x))
			}
			if bound := 5 * c.std / math.Sqrt(n); math.Abs(mean) > bound {
				t.Errorf("mean %.3g, want 0 within %.3g", mean, bound)
			}
			if std := math.Sqrt(square); math.Abs(std/c.std-1) > 5/math.Sqrt(2*n) {
				t.Errorf("standard deviation %.5g, want %.5g", std, c.std)
			}
			if r := neighbours / square; math.Abs(r) > 5/math.Sqrt(n) {
				t.Errorf("neighbours correlate by %.3g", r)
			}
			if cut := c.init.Cut; c.init.Kind == TruncNormal && largest > cut {
				t.Errorf("largest value %g, cut at %g", largest, cut)
			}
			if largest < 4*c.init.Std && largest < 0.99*c.init.Cut {
				t.Errorf("largest of %d values is %g: the tail is missing", n, largest)
			}
		})
	}
}

// The scheme of TorchTitan's DeepSeek-V3: outputs to the residual stream shrink with depth.
func TestInitOfModel(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers, c.QRank, c.Layers = 1, 10, 3 })
	deep := func(layer int) Init {
		return Init{Kind: TruncNormal, Std: 0.02 / math.Sqrt(2*float64(layer+1)), Cut: 2}
	}
	plain := Init{Kind: TruncNormal, Std: 0.02, Cut: 2}
	for _, p := range alone(t, cfg, tensor.FP32, 8).model.Params() {
		var layer int
		fmt.Sscanf(p.Name, "model.layers.%d.", &layer)
		parts := strings.Split(p.Name, ".")
		var want Init
		switch part := parts[len(parts)-2]; {
		case strings.HasSuffix(part, "norm"):
			want = Init{Kind: Constant, Value: 1}
		case part == "embed_tokens":
			want = Init{Kind: Normal, Std: 1}
		case part == "lm_head":
			want = Init{Kind: TruncNormal, Std: 0.25, Cut: 0.75} // 1/sqrt(16)
		case slices.Contains([]string{"o_proj", "up_proj", "down_proj", "gate"}, part):
			want = deep(layer)
		case slices.Contains([]string{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "gate_proj", "eh_proj"}, part):
			want = plain
		default:
			t.Errorf("%s: a parameter that this test does not know", p.Name)
			continue
		}
		if p.Init != want {
			t.Errorf("%s starts as %+v, want %+v", p.Name, p.Init, want)
		}
	}
}
