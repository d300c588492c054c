package referee

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// small is of DeepSeek-V2's family.
const small = `{"model_type": "deepseek_v2", "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
	"intermediate_size": 96, "moe_intermediate_size": 64, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1,
	"first_k_dense_replace": 1, "topk_method": "greedy", "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32}`

// record writes a step folder of a model with random weights. The step is the reference's, rounded
// after every operation, and makes a mistake if one is named. facts is its step.json. Matrices have
// the first element, if one is given.
func record(b testing.TB, dir, config, facts, mistake string, first ...float32) {
	rng := rand.New(rand.NewPCG(8, 1))
	model, err := reference.ReadConfig([]byte(config))
	if err != nil {
		b.Fatal(err)
	}
	seq := min(256, model.Hidden)
	var weights []safetensors.Tensor
	var tokens []byte
	var names []string
	for _, m := range model.Modules() {
		names = append(append(names, m.Params...), m.Buffers...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		dims, _ := model.ParamDims(name)
		t := safetensors.Tensor{Name: name, DType: "BF16", Shape: dims}
		for range dims[0] * dims[len(dims)-1] / max(1, (2-len(dims))*dims[0]) {
			x := 1 + rng.NormFloat64()/8
			if len(dims) == 2 {
				x = rng.NormFloat64() / math.Sqrt(float64(dims[1]))
			}
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(math.Float32bits(float32(reference.BF16.Round(x)))>>16))
		}
		if len(dims) == 2 && len(first) > 0 {
			binary.LittleEndian.PutUint16(t.Data, uint16(math.Float32bits(first[0])>>16))
		}
		weights = append(weights, t)
	}
	for range 2 * seq {
		tokens = binary.LittleEndian.AppendUint32(tokens, rng.Uint32N(uint32(model.Vocab)))
	}
	ids := safetensors.Tensor{DType: "I32", Shape: []int{2, seq}, Data: tokens}
	labels := ids
	ids.Name, labels.Name = "input_ids", "labels"
	err = errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644), os.WriteFile(filepath.Join(dir, "step.json"), []byte(facts), 0o644),
		safetensors.Write(filepath.Join(dir, "model.safetensors"), weights, nil), safetensors.Write(filepath.Join(dir, "batch.safetensors"), []safetensors.Tensor{ids, labels}, nil))
	folder, opened := step.Open(dir)
	if err := errors.Join(err, opened); err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	j := newJudge(folder)
	t, err := j.model(j.repeats[0], 1)
	if err != nil {
		b.Fatal(err)
	}
	t.call.Rounding, t.call.Mistake, t.call.Fast = t.ways[0], mistake, true
	results, err := t.run(t.call)
	if err == nil {
		err = t.write(results, dir)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func TestQuantizedLayers(t *testing.T) {
	for path, covers := range map[string]string{"model.layers.1.mlp.experts.3.up_proj": "experts", "model.layers.1.mlp.shared_experts.up_proj": "linears",
		"model.layers.0.self_attn.o_proj": "linears", "lm_head": "", "model.layers.2.shared_head.head": ""} {
		for _, what := range []string{"experts", "linears"} {
			j := &judge{folder: &step.Folder{Info: step.Info{FP8: "mxfp8 " + what}}}
			if got := j.quantized(path); got != (what == covers) {
				t.Errorf("%s is quantized: %v, where the recipe covers %s", path, got, what)
			}
		}
	}
}

// Sums of 8,192 products of 8 bits may be off by what a GPU's fast mode makes of them, and by no
// multiple of it: in forward, and in dgrad, which sums over the rows of the weight.
func TestSumsOf8Bits(t *testing.T) {
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(strings.Replace(small, `"intermediate_size": 96`, `"intermediate_size": 8192`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	folder, err := step.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, c := range []struct {
		fp8, path, what string
		error           float64
		wrong           bool
	}{
		{"rowwise linears", "model.layers.0.mlp.down_proj", "output", 8192 * 0x1p-21, false}, {"rowwise linears", "model.layers.0.mlp.down_proj", "output", 8192 * 0x1p-19, true},
		{"rowwise linears", "model.layers.0.mlp.gate_proj", "grad_input", 8192 * 0x1p-21, false}, {"rowwise experts", "model.layers.0.mlp.down_proj", "output", 8192 * 0x1p-21, true},
	} {
		j := newJudge(folder)
		folder.Info.FP8 = c.fp8
		m := j.byPath[c.path]
		u := &trial{judge: j, module: m, tokens: 16, call: reference.Call{Batch: &reference.Batch{}}}
		_, u.least = j.roundings(m, step.Repeat{})
		port := map[string]reference.Port{"output": m.Outputs[0], "grad_input": m.Inputs[0].Gradient()}[c.what]
		want, got := reference.Tensor{Dims: []int{16, 64}}, reference.Tensor{Dims: []int{16, 64}}
		for range 16 * 64 {
			x := rng.NormFloat64()
			want.Data, got.Data = append(want.Data, x), append(got.Data, x*(1+c.error*rng.NormFloat64()))
		}
		u.held = map[string]*step.Value{port.Label(): {DType: "F64", Tensor: got}}
		found := u.compare(nil, c.what, port, outcome{port.Label(): want}, nil, nil)
		if len(found) != 1 || found[0].Wrong() != c.wrong {
			t.Errorf("%s of %s is off by %.2g with FP8 for %s: %+v", c.what, c.path, c.error, c.fp8, found)
		}
	}
}

// The cast to 8 bits is part of the rounding where step.json says so. It hides no mistake that is
// larger. Where the folder does not say how, it cannot be told.
func TestFP8(t *testing.T) {
	dirs := map[string]string{} // by what was recorded
	for _, c := range []struct {
		recorded, said, mistake string
		want                    Verdict
	}{
		{`"mxfp8"`, `"mxfp8"`, "", Right},
		{`"blockwise experts"`, `"blockwise experts"`, "", Right},
		{`"tensorwise"`, `"tensorwise"`, "", Right},
		{`"mxfp8"`, `null`, "", Wrong},
		{`"mxfp8"`, `"mxfp8"`, "experts_weight_squared", Wrong},
		{`"mxfp8"`, `"delayed"`, "", CannotTell},
		{`"mxfp8"`, `"mxfp8 heads"`, "", CannotTell},
	} {
		dir, ok := dirs[c.recorded+c.mistake]
		if !ok {
			dir = t.TempDir()
			dirs[c.recorded+c.mistake] = dir
			record(t, dir, small, `{"format": "step-1", "fp8": `+c.recorded+`}`, c.mistake)
		}
		if err := os.WriteFile(filepath.Join(dir, "step.json"), []byte(`{"format": "step-1", "fp8": `+c.said+`}`), 0o644); err != nil {
			t.Fatal(err)
		}
		report := judgedWith(t, dir, c.want != Right)
		if report.Verdict != c.want || report.Verdict == CannotTell && len(report.Doubts) != 1 {
			text, _ := report.JSON()
			t.Errorf("%+v: %.3000s", c, text[bytes.Index(text, []byte(`"findings"`)):])
		}
		if c.want != Right {
			continue
		}
		lists := func(name string) bool {
			return slices.ContainsFunc(report.Modules, func(l *ModuleLine) bool {
				return slices.ContainsFunc(l.Hidden, func(h Cause) bool { return h.Name == name })
			})
		}
		if report.Hidden < 8 || !lists("norm_eps_1e-12") || !lists("softcap") || lists("norm_missing") || lists("mask_late") || lists("gate_detached") {
			t.Errorf("%+v hides %d others", c, report.Hidden)
		}
		for statistic, strain := range report.Strains {
			if strain >= 0.5 {
				t.Errorf("%+v: %s is at %.2f of its threshold", c, statistic, strain)
			}
		}
	}
}

// A step whose linear layers cast an operand in another way than it says is wrong, and the cause is
// named: also with weights whose scale is a power of two, which makes many ties. Those alone are
// right.
func TestCastMistakes(t *testing.T) {
	defer delete(reference.Recipes, "other")
	for name, recipe := range map[string]string{
		"input_in_forward_off": "tensorwise", "output_gradient_other_type": "tensorwise", "weight_row_scales": "tensorwise", "input_other_axis": "blockwise",
		"operands_of_wgrad_free_scales": "rowwise", "operands_of_all_products_off": "mxfp8",
		"ties, weight_in_dgrad_row_scales": "blockwise", "ties": "tensorwise",
	} {
		name, ties := strings.CutPrefix(name, "ties, ")
		var first []float32
		if ties || name == "ties" {
			first = []float32{1.75 / 2}
		}
		other := *reference.Recipes[recipe]
		for _, o := range castOperands {
			for _, mistake := range castMistakes {
				for _, at := range o.at {
					if strings.ReplaceAll(o.name, " ", "_")+"_"+mistake.name == name {
						mistake.make(&other[at[0]][at[1]])
					}
				}
			}
		}
		delete(reference.Recipes, "other")
		dir, facts := t.TempDir(), `{"format": "step-1", "fp8": "%s linears"}`
		reference.Recipes["other"] = &other
		record(t, dir, strings.Replace(small, `layers": 2`, `layers": 1`, 1), fmt.Sprintf(facts, "other"), "", first...)
		delete(reference.Recipes, "other")
		if err := os.WriteFile(filepath.Join(dir, "step.json"), fmt.Appendf(nil, facts, recipe), 0o644); err != nil {
			t.Fatal(err)
		}
		report := judged(t, dir)
		if len(report.Findings) == 0 != (name == "ties") {
			t.Errorf("%s: verdict %s", name, report.Verdict)
		}
		for _, l := range report.Modules {
			if name == "ties" && len(l.Causes) > 0 {
				t.Errorf("%s is right, and has the causes %v", l.Path, l.Causes)
			}
		}
		named := func(c Cause) bool {
			return c.Name == "fp8_"+name || name == "operands_of_all_products_off" && c.Name == "fp8_missing"
		}
		for _, f := range report.Findings {
			if !slices.ContainsFunc(f.Causes, named) || strings.Contains(fmt.Sprint(f.Says), "No known") {
				t.Errorf("%s: %s: %v, %v", name, f.Module, f.Says, f.Causes)
			}
		}
	}
}

// One row that is farther off, as by ties of its own, does not hide a mistake.
func TestCastMistakeWithOddRow(t *testing.T) {
	other, dir := *reference.Recipes["blockwise"], t.TempDir()
	other[0][0].Block = [2]int{128, 1}
	reference.Recipes["other"] = &other
	record(t, dir, strings.Replace(small, `layers": 2`, `layers": 1`, 1), `{"format": "step-1", "fp8": "other linears"}`, "", 1.75/2)
	delete(reference.Recipes, "other")
	folder, err := step.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	folder.Info.FP8 = "blockwise linears"
	j := newJudge(folder)
	m := j.byPath["model.layers.0.self_attn.o_proj"]
	u, err := j.open(m, j.repeats[0])
	if err != nil {
		t.Fatal(err)
	}
	if u.exact, u.floors, err = u.compute(u.call, u.ways); err != nil {
		t.Fatal(err)
	}
	got := u.held[m.Outputs[0].Label()].Data
	for i := range len(got) / u.tokens {
		got[i] *= 1.03
	}
	line := &ModuleLine{}
	if line.add(u.compareAll(u.exact, u.floors, nil)); len(line.wrong()) > 0 || !j.behindTies(u, line) || line.Causes[0].Name != "fp8_input_other_axis" {
		t.Errorf("%+v", line)
	}
}
