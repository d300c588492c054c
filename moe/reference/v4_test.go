package reference

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// v4Weight returns a weight by its name in transformers' model. The file has those that it saves.
func (g *golden) v4Weight(name string) Tensor {
	for _, info := range g.files["model"].Tensors() {
		if g.config.V4Name(info.Name) != name {
			continue
		}
		if info.DType != "I64" {
			return g.tensor("model", info.Name)
		}
		data, err := g.files["model"].Bytes(info.Name)
		if err != nil {
			g.t.Fatal(err)
		}
		x := Tensor{Dims: info.Shape}
		for at := 0; at < len(data); at += 8 {
			x.Data = append(x.Data, float64(binary.LittleEndian.Uint64(data[at:])))
		}
		return x
	}
	g.t.Fatalf("model.safetensors has no %s", name)
	return Tensor{}
}

// v4Activations compares what only DeepSeek-V4 has: streams, entries, scores and choices. Choices
// are sets.
func (g *golden) v4Activations(near func(kind, name string, got, want Tensor, bar float64)) {
	forms := map[string]string{
		"hc_head": "model.hc_head.output", "final_norm": "model.norm.output", "attn_hc_0": "attn_hc.output", "attn_hc_1": "attn_hc.output.1",
		"attn_hc_2": "attn_hc.output.2", "ffn_hc_0": "ffn_hc.output", "ffn_hc_1": "ffn_hc.output.1", "ffn_hc_2": "ffn_hc.output.2",
		"compressor_0": "self_attn.compressor.output", "compressor_indexer": "self_attn.compressor.indexer.indices",
		"compressor_indexer_scorer": "self_attn.compressor.indexer.scorer.output", "mlp_gate_0": "mlp.gate.logits", "mlp_gate_2": "mlp.gate.indices",
	}
	seen := 0
	for _, info := range g.files["activations"].Tensors() {
		name := info.Name
		if layer, form, ok := strings.Cut(strings.TrimPrefix(name, "layer"), "_"); ok && strings.HasPrefix(name, "layer") {
			name = "model.layers." + layer + "." + forms[form]
		} else {
			name = forms[name]
		}
		got, ok := g.values[name]
		if !ok {
			continue
		}
		if seen++; info.DType == "F32" {
			near("v4", name, got, g.tensor("activations", info.Name), 2e-6)
			continue
		}
		want, k := g.ints(info.Name), got.Dims[1]
		for at := 0; at < len(want); at += k {
			var mine, theirs []int32
			for i := at; i < at+k; i++ {
				mine, theirs = append(mine, int32(got.Data[i])), append(theirs, want[i])
			}
			if slices.Sort(mine); !slices.Equal(mine, slices.Sorted(slices.Values(theirs))) {
				g.t.Errorf("%s: token %d chooses %v, want %v", name, at/k, mine, theirs)
			}
		}
	}
	if seen < 50 {
		g.t.Errorf("%d activations compared", seen)
	}
	g.v4Doubles(near)
}

// v4Doubles compares what the same run has in float64. Its rotary tables are of FP32 frequencies.
func (g *golden) v4Doubles(near func(kind, name string, got, want Tensor, bar float64)) {
	file, err := safetensors.Open(filepath.Join(goldens, "deepseek_v4_tiny", "activations64.safetensors"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer file.Close()
	for _, info := range file.Tensors() {
		name, ok := strings.CutPrefix(info.Name, "gradient:")
		if !ok {
			name = map[string]string{"logits": "lm_head.output", "loss": "loss", "layer4_out": "model.layers.4.output", "final_norm": "model.norm.output"}[name]
		}
		data, err := file.Bytes(info.Name)
		if err != nil {
			g.t.Fatal(err)
		}
		want := Tensor{Data: make([]float64, len(data)/8)}
		if _, err := binary.Decode(data, binary.LittleEndian, want.Data); err != nil {
			g.t.Fatal(err)
		}
		near("float64", name, g.values[name], want, 5e-7)
	}
}

// Released names, those that transformers saves, and those of its modules are one. The golden files
// have the second set.
func TestV4Names(t *testing.T) {
	c := &Config{Layers: 5}
	for name, want := range map[string]string{
		"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "hc_head_fn": "model.hc_head.hc_fn", "lm_head.weight": "lm_head.weight",
		"layers.2.attn.kv_norm.weight": "model.layers.2.self_attn.kv_norm.weight", "layers.1.attn.indexer.wq_b.weight": "model.layers.1.self_attn.compressor.indexer.q_b_proj.weight",
		"model.layers.1.self_attn.compressor.indexer.kv_norm": "model.layers.1.self_attn.compressor.indexer.kv_norm", "model.layers.3.mlp.experts.gate_up_proj": "model.layers.3.mlp.experts.gate_up_proj",
		"mtp.0.e_proj.weight": "model.layers.5.e_proj.weight", "mtp.0.hc_head_fn": "model.layers.5.hc_head.hc_fn", "mtp.1.attn.norm.weight": "model.layers.6.self_attn.kv_norm.weight",
		"mtp.0.norm.weight": "model.layers.5.norm.weight", "loss": "loss",
		"layers.1.attn.indexer": "model.layers.1.self_attn.compressor.indexer", "rotary_emb.main": "model.rotary_emb.main", "model.lm_head.weight": "lm_head.weight",
	} {
		if got := c.V4Name(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// v4Config returns the config.json of the golden model with other keys; nil removes one.
func v4Config(t *testing.T, keys map[string]any) (*Config, error) {
	data, err := os.ReadFile(filepath.Join(goldens, "deepseek_v4_tiny", "config.json"))
	all := map[string]any{}
	if err != nil || json.Unmarshal(data, &all) != nil {
		t.Fatal(err)
	}
	for key, value := range keys {
		if all[key] = value; value == nil {
			delete(all, key)
		}
	}
	data, err = json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return ReadConfig(data)
}

// A config.json with the released keys describes the same model, and wrong ones are refused. Keys
// that mean nothing are listed.
func TestV4Configs(t *testing.T) {
	released := map[string]any{
		"layer_types": nil, "compress_rates": nil, "mlp_layer_types": nil, "rope_parameters": nil, "partial_rotary_factor": nil,
		"compress_ratios": []int{0, 4, 8, 4, 8, 0, 0}, "num_hash_layers": 2, "anticipation": 1,
		"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
	}
	g := openGolden(t, "deepseek_v4_tiny")
	c, err := v4Config(t, released)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.config.UnreadKeys) > 0 || !slices.Equal(c.UnreadKeys, []string{"anticipation"}) {
		t.Errorf("unread: %v of the saved form, %v of the released one", g.config.UnreadKeys, c.UnreadKeys)
	}
	loss := g.values["loss"].Data[0]
	g.config, c.MTPLayers = c, 0
	c.Modules()
	if got := g.run(g.module("model"))["loss"].Data[0]; got != loss {
		t.Errorf("the loss is %g, want %g", got, loss)
	}
	for want, keys := range map[string]map[string]any{
		"scoring_func is": {"scoring_func": "sigmoid"}, "norm_topk_prob is false": {"norm_topk_prob": false}, "expected 1": {"num_key_value_heads": 2},
		"has no biases": {"attention_bias": true}, "o_groups is 0": {"o_groups": 0}, "do not divide into o_groups 3": {"o_groups": 3},
		"name 4 and 5 layers: expected 5": {"layer_types": []string{slidingAttention, slidingAttention, slidingAttention, slidingAttention}},
		"layer_types has":                 {"layer_types": []string{"full_attention", slidingAttention, slidingAttention, slidingAttention, slidingAttention}},
		"expected hash_moe":               {"mlp_layer_types": []string{"moe", "dense", "moe", "moe", "moe"}}, "compress_ratios has 16": {"layer_types": nil, "compress_ratios": []int{0, 4, 8, 16, 8}},
		"swiglu_limit is": {"swiglu_limit": -1}, "elements of a head are rotated": {"qk_rope_head_dim": 24}, "hc_mult is": {"hc_mult": 0},
		"rope_type is": {"rope_parameters": map[string]any{"main": map[string]any{"rope_type": "longrope"}}}, "rate of": {"compress_rates": map[string]int{heavyAttention: 1}},
	} {
		if _, err := v4Config(t, keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", keys, err)
		}
	}
}

// Two documents in a sequence are two sequences: windows, entries and their overlaps end with one.
// Entries that cross, as those of transformers 5.17 do, are something else.
func TestV4Documents(t *testing.T) {
	g := openGolden(t, "deepseek_v4_tiny")
	const first = 21 // no multiple of a ratio
	ids, labels := g.batch.IDs[:g.batch.Seq], g.batch.Labels[:g.batch.Seq]
	run := func(from, to int, positions []int32, mistake string) []float64 {
		g.batch = &Batch{Batch: 1, Seq: to - from, IDs: ids[from:to], Labels: labels[from:to], LabelsShifted: true, Positions: positions}
		g.values, g.edit = nil, func(c *Call) { c.Mistake, c.Backward = mistake, false }
		return g.run(g.module("model"))["lm_head.output"].Data
	}
	apart := append(run(0, first, nil, ""), run(first, len(ids), nil, "")...)
	var positions []int32
	for i := range ids {
		positions = append(positions, int32(i-i/first*first))
		if i >= first {
			positions[i] = int32(i - first)
		}
	}
	if d := distance(run(0, len(ids), positions, ""), apart); !(d < 1e-12) {
		t.Errorf("documents in one sequence are off by %.2g", d)
	}
	if d := distance(run(0, len(ids), positions, "entries_cross_documents"), apart); !(d > 1e-3) {
		t.Errorf("entries that cross documents change %.2g", d)
	}
}

// drawn returns random values for a parameter.
func (g *golden) drawn(name string) (x Tensor) {
	rng := rand.New(rand.NewPCG(uint64(len(name)), 90))
	x.Dims, _ = g.config.ParamDims(name)
	n := x.Dims[0]
	if len(x.Dims) == 2 {
		n *= x.Dims[1]
	}
	for range n {
		x.Data = append(x.Data, 0.3*rng.NormFloat64())
	}
	return x
}

// A layer for further tokens adds e_proj of the next token's embedding to h_proj of each stream.
// Its gradients are those of finite differences.
func TestV4FurtherTokens(t *testing.T) {
	g := openGolden(t, "deepseek_v4_tiny")
	g.config.MTPLayers = 1
	g.batch = &Batch{Batch: 1, Seq: 17, IDs: g.batch.IDs[:17], Labels: g.batch.Labels[:17], LabelsShifted: true}
	model, path := g.config.Modules()[len(g.config.Modules())-1], layerPath(g.config.Layers)
	moved, at, by := "", 0, 0.0
	g.edit = func(c *Call) {
		c.Given, c.Losses, c.Backward = known(nil), map[string]float64{"loss": 1, path + ".loss": 0.3}, by == 0
		c.Param = func(name string) (x Tensor, err error) {
			if strings.HasPrefix(name, path) {
				x = g.drawn(name)
			} else {
				x, err = g.weight(name)
			}
			if name == moved {
				x.Data = slices.Clone(x.Data)
				x.Data[at] += by
			}
			return x, err
		}
	}
	all := g.run(model)
	d := g.config.Hidden
	e, h, x := all[path+".e_proj.output"].Data, all[path+".h_proj.output"].Data, all[path+".input"].Data
	for i := range x {
		if want := e[i/(4*d)*d+i%d] + h[i]; math.Abs(x[i]-want) > 1e-12 {
			t.Fatalf("stream element %d is %g, want %g", i, x[i], want)
		}
	}
	next, _ := g.weight("model.embed_tokens.weight")
	if got := all[path+".embed_tokens.output"].Data; !slices.Equal(got[:d], next.Data[int(g.batch.IDs[1])*d:int(g.batch.IDs[1]+1)*d]) {
		t.Error("the embedding is not that of the next token")
	}
	total := func() float64 {
		v := g.run(model)
		return v["loss"].Data[0] + 0.3*v[path+".loss"].Data[0]
	}
	for _, name := range []string{
		path + ".enorm.weight", path + ".hnorm.weight", path + ".e_proj.weight", path + ".h_proj.weight", path + ".hc_head.hc_fn", path + ".norm.weight",
		path + ".attn_hc.fn", path + ".self_attn.sinks", "model.embed_tokens.weight", "lm_head.weight",
	} {
		const step = 1e-5
		gradient := all[name].Data
		moved, at = name, largest(gradient, 1)[0]
		by = step
		up := total()
		by = -step
		want := (up - total()) / (2 * step)
		by = 0
		if !(math.Abs(gradient[at]-want) < 1e-6*max(math.Abs(want), 1e-3)) {
			t.Errorf("%s: the gradient is %.9g, finite differences give %.9g", name, gradient[at], want)
		}
	}
}
