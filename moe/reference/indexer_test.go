package reference

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// Scores and choices are those of transformers, and the model is nearer to its float64.
func TestIndexerGoldens(t *testing.T) {
	for _, family := range []string{"deepseek_v32_tiny", "glm_moe_dsa_tiny"} {
		g := openGolden(t, family)
		double, err := safetensors.Open(filepath.Join(goldens, family, "activations64.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer double.Close()
		for _, info := range double.Tensors() {
			data, err := double.Bytes(info.Name)
			want := make([]float64, len(data)/8)
			if _, wrong := binary.Decode(data, binary.LittleEndian, want); err != nil || wrong != nil {
				t.Fatal(err, wrong)
			}
			names := map[string]string{"logits": "lm_head.output", "final_norm": "model.norm.output", "layer2_out": "model.layers.2.output"}
			name, isGradient := strings.CutPrefix(info.Name, "gradient:")
			if !isGradient && names[name] != "" {
				name = names[name]
			}
			if d := distance(g.values[name].Data, want); !(d < 2e-7) {
				t.Errorf("%s: %s is off by %.2g", family, info.Name, d)
			}
		}
		for i := range g.config.Layers {
			if g.config.Shared(i) {
				continue
			}
			path, name := fmt.Sprintf("model.layers.%d.self_attn.indexer", i), fmt.Sprintf("layer%d_index", i)
			visible := g.values[path+".choice"]
			want, theirs := g.tensor("activations", name+"_scores").Data, g.ints(name+"er")
			for k, v := range visible.Data {
				row, seen := k/g.batch.Seq, !math.IsInf(v, -1)
				picks := theirs[row*12 : (row+1)*12]
				ours := g.values[path+".indices"].Data[row*12 : (row+1)*12]
				key := int32(k % g.batch.Seq)
				if seen && (math.Abs(v-want[k]) > 2e-6 || slices.Contains(picks, key) != slices.Contains(ours, float64(key))) {
					t.Errorf("%s: token %d scores key %d with %g, want %g", path, row, key, v, want[k])
				}
			}
		}
	}
}

// Of equal scores the lowest place is chosen, and no key that is not seen.
func TestChoiceOfKeys(t *testing.T) {
	none := math.Inf(-1)
	scores := masked([]float64{2, 0, 9, 9, 0, 3, 0, 0}, []float64{0, 0, none, none, 0, 0, 0, 0})
	chosen := topKeys(scores, 4, 3)
	if want := []int{0, 1, -1, 1, 0, 2}; !slices.Equal(chosen, want) {
		t.Errorf("chosen are %v, want %v", chosen, want)
	}
	mask := restrict([]float64{0, 0, none, none, none, 0, 0, 0}, 4, chosen)
	if want := []float64{0, 0, none, none, none, 0, 0, none}; !slices.Equal(mask, want) {
		t.Errorf("the mask is %v, want %v", mask, want)
	}
}

// config.json says in several ways which layers have an indexer.
func TestIndexerTypes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(goldens, "glm_moe_dsa_tiny", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(data), `"indexer_types": [`)
	_, after, _ := strings.Cut(rest, "]")
	for keys, want := range map[string]string{
		`"indexer_types": ["full", "full", "shared"]`: "full full shared", `"index_topk_pattern": "FSS"`: "full shared shared", `"a": 0`: "full full full by neighbours", `"indexer_rope_interleave": false`: "by halves",
		`"index_topk_freq": 2`: "full full shared", `"index_topk_freq": 2, "index_skip_topk_offset": 1`: "full shared full",
		`"indexer_types": ["shared", "full", "full"]`: "the first one full", `"indexer_types": ["full", "half", "full"]`: "full or shared",
		`"index_topk_freq": 0`: "is 0: expected 1 or more", `"index_head_dim": 8`: "at least qk_rope_head_dim", `"mlp_layer_types": ["dense"]`: "has 1 entries",
		`"indexer_types": ["full"]`: "has 1 entries: expected 3", `"index_topk_pattern": "FS"`: "has 2 entries", `"index_topk_pattern": "FSX"`: `layer 2 is ""`,
		`"mlp_layer_types": ["dense", "moe", "moe"]`: "expected dense or sparse",
	} {
		name, _, _ := strings.Cut(keys, ":")
		others := strings.NewReplacer(name, `"old"`)
		c, err := ReadConfig([]byte(others.Replace(before) + keys + others.Replace(after)))
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.Join(append(c.IndexerTypes, map[bool]string{true: "by neighbours", false: "by halves"}[c.IndexInterleaved]), " ")
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", keys, got, want)
		}
	}
}

const lastIndexer = "model.layers.2.self_attn.indexer."

// indexLoss returns the loss of the last indexer, with one element of a parameter moved. The model
// and the choice stay.
func (g *golden) indexLoss(warmup bool, param string, at int, by float64) float64 {
	values := maps.Clone(g.values)
	g.edit = func(c *Call) {
		c.Given, c.Warmup, c.Backward = known(values), warmup, false
		c.Param = func(name string) (Tensor, error) {
			x, err := g.weight(name)
			x.Data = slices.Clone(x.Data)
			if name == param {
				x.Data[at] += by
			}
			return x, err
		}
	}
	for _, module := range []string{"wq_b", "wk", "k_norm.handover", "k_norm", "weights_proj", "loss"} {
		maps.Copy(values, g.run(g.module(lastIndexer+module)))
	}
	return values[lastIndexer+"loss"].Data[0]
}

// The gradients of an indexer's loss are those of finite differences, in both stages. They reach no
// weight of the model.
func TestIndexLossGradients(t *testing.T) {
	for _, family := range []string{"deepseek_v32_tiny", "glm_moe_dsa_tiny"} {
		g := openGolden(t, family)
		for i := range g.batch.Labels {
			if i%5 == 0 {
				g.batch.Labels[i] = -100
			}
		}
		for _, warmup := range []bool{false, true} {
			g.edit = func(c *Call) { c.Losses, c.Warmup = map[string]float64{lastIndexer + "loss": 1}, warmup }
			all := g.run(g.module("model"))
			for _, name := range g.module("model").Params {
				gradient := all[name].Data
				at := largest(gradient, 1)[0]
				if !strings.HasPrefix(name, lastIndexer) {
					if gradient[at] != 0 {
						t.Errorf("%s has a gradient", name)
					}
					continue
				}
				g.values = all
				const step = 1e-6
				want := (g.indexLoss(warmup, name, at, step) - g.indexLoss(warmup, name, at, -step)) / (2 * step)
				if !(math.Abs(gradient[at]-want) < 1e-6*want) {
					t.Errorf("%s: the gradient is %.9g, finite differences give %.9g", name, gradient[at], want)
				}
			}
		}
	}
}

// A recorded choice that is missing, too short or outside the sequence is refused.
func TestWrongChoices(t *testing.T) {
	g := openGolden(t, "deepseek_v32_tiny")
	for want, indices := range map[string][]float64{"give the choices": nil, "96 tokens": {1, 2, 3}, "below 48": slices.Repeat([]float64{48}, 96)} {
		values := maps.Clone(g.values)
		values["model.layers.1.self_attn.indexer.indices"] = Tensor{Data: indices}
		if indices == nil {
			delete(values, "model.layers.1.self_attn.indexer.indices")
		}
		call := Call{Batch: g.batch, Given: known(values), Param: g.weight}
		if _, err := g.module("model.layers.1.self_attn.core").Run(call); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Attention replays the recorded choice: of one key, all tokens of a sequence get the same.
func TestReplayedChoice(t *testing.T) {
	g := openGolden(t, "deepseek_v32_tiny")
	values := maps.Clone(g.values)
	values["model.layers.1.self_attn.indexer.indices"] = Tensor{Data: make([]float64, 96)}
	g.edit = func(c *Call) { c.Given = known(values) }
	y := g.run(g.module("model.layers.1.self_attn"))["model.layers.1.self_attn.output"]
	if d := distance(y.Data[40*47:40*48], y.Data[:40]); d > 1e-12 {
		t.Errorf("the last token is off the first one by %.2g", d)
	}
}
