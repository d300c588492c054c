package referee

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

const sparseLoss = `{"kind": "index_kl", "coefficient": 0.5}`

// A step with the loss of indexers is right in both stages, and so is one without.
func TestIndexers(t *testing.T) {
	for _, c := range []struct {
		family, auxiliary string
		compared          int
	}{
		{"deepseek_v32_tiny", "", 400}, {"glm_moe_dsa_tiny", sparseLoss, 390},
		{"deepseek_v32_tiny", `{"kind": "index_kl", "coefficient": 1, "stage": "warmup"}`, 190},
	} {
		dir := written(t, c.family, c.auxiliary)
		withoutScores(t, filepath.Join(dir, "activations.safetensors"))
		r := judged(t, dir)
		folder, err := step.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		j := newJudge(folder)
		tr, err := j.open(j.byPath["model.layers.1.self_attn.core"], j.repeats[0])
		if other, ok := tr.call.Given("model.layers.1.self_attn.output.2"); err != nil || !ok || len(other.Data) != 32*12 {
			t.Errorf("%s: the choice of layer 1 is not read: %v", c.family, err)
		}
		folder.Close()
		chooses := func(l *ModuleLine) bool { return l.Kind == string(reference.Index) && l.worst("choice") != nil }
		coarse := func(l *ModuleLine) bool { return l.Kind == string(reference.Attention) } // finer ones say all
		if r.Verdict != Right || r.Compared < c.compared || !slices.ContainsFunc(r.Modules, chooses) || slices.ContainsFunc(r.Modules, coarse) {
			t.Errorf("%+v: %s, %d compared, %v, %+v", c, r.Verdict, r.Compared, r.Doubts, r.Findings)
		}
		if c.auxiliary != sparseLoss {
			continue
		}
		path := filepath.Join(dir, "step.json")
		facts, err := os.ReadFile(path)
		other := strings.Replace(string(facts), "0.5", "0.25", 1)
		if err := errors.Join(err, os.WriteFile(path, []byte(other), 0o644)); err != nil {
			t.Fatal(err)
		}
		if r := judged(t, dir); len(r.Findings) == 0 || math.Abs(r.Findings[0].Factor-2) > 1e-3 {
			t.Errorf("twice the coefficient of step.json: %s, %+v", r.Verdict, r.Findings)
		}
	}
}

// withoutScores leaves of an indexer's results only the choice, as transformers names it.
func withoutScores(t *testing.T, path string) {
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []safetensors.Tensor
	for _, info := range file.Tensors() {
		data, err := file.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Name == "model.layers.2.self_attn.indexer.indices" { // GLM's layers return the keys
			all = append(all, safetensors.Tensor{Name: "model.layers.1.self_attn.output.2", DType: info.DType, Shape: info.Shape, Data: slices.Clone(data)})
		}
		if name := strings.Replace(info.Name, "indexer.indices", "indexer.output", 1); !strings.HasSuffix(name, "indexer.scores") {
			all = append(all, safetensors.Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: slices.Clone(data)})
		}
	}
	if err := safetensors.Write(path, all, nil); err != nil {
		t.Fatal(err)
	}
}

// Each known mistake of an indexer is named where it is made, in FP32 or in BF16.
func TestIndexerMistakes(t *testing.T) {
	planted := map[string]string{ // "" is none
		"deepseek_v32_tiny 1 indexer.index":  " index_rope_other_pairs index_rope_other_end index_no_relu index_hadamard_on_queries index_mask_late index_mask_early index_mask_missing index_no_topk",
		"deepseek_v32_tiny 1 indexer.k_norm": "index_norm_rms index_norm_eps_1e-5", "deepseek_v32_tiny 1 indexer.input.1.handover": "index_raw_latent",
		"deepseek_v32_tiny 1 indexer.wq_b": "index_input_attached", "deepseek_v32_tiny 1 core": "index_no_topk index_target_attached",
		"deepseek_v32_tiny 1 indexer.loss": "index_target_dense index_scale_missing index_loss_sum", "glm_moe_dsa_tiny 0 indexer.loss": "index_shared_supervised",
		"glm_moe_dsa_tiny 0 indexer.index": "index_rope_other_pairs index_rope_other_end", "glm_moe_dsa_tiny 1 core": "index_not_shared",
	}
	judges := map[string]*judge{}
	for place, mistakes := range planted {
		words := strings.Fields(place)
		j := judges[words[0]]
		if j == nil {
			folder, err := step.Open(written(t, words[0], sparseLoss))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { folder.Close() })
			j = newJudge(folder)
			judges[words[0]] = j
		}
		for i, mistake := range strings.Split(mistakes, " ") {
			for _, low := range []bool{false, true} {
				if always := mistake == "" || mistake == "index_norm_eps_1e-5"; !always && low != (i%2 == 1) { // both take long
					continue
				}
				line := plantedIn(t, j, j.byPath["model.layers."+words[1]+".self_attn."+words[2]], mistake, low)
				named := slices.ContainsFunc(line.Causes, func(c Cause) bool { return c.Name == mistake })
				if hidden := mistake == "" || low && mistake == "index_norm_eps_1e-5"; named == hidden || mistake == "" && len(line.wrong()) > 0 {
					t.Errorf("%s in %s, BF16 %v: %+v, %+v", mistake, place, low, line.Causes, line.Comparisons)
				}
			}
		}
	}
}

// plantedIn judges a module whose recorded results are those of a mistake, in FP32 or in BF16.
func plantedIn(t *testing.T, j *judge, m *reference.Module, mistake string, low bool) *ModuleLine {
	tr, err := j.open(m, j.repeats[0])
	if err != nil || tr == nil {
		t.Fatalf("%s: %v", m.Path, err)
	}
	if low {
		tr.ways, tr.least = threeWays(reference.Rounding{Format: reference.BF16}), leastOf("BF16")
		for _, v := range tr.held {
			if v != nil {
				v.DType, v.Data = "BF16", roundedBF16(v.Data)
			}
		}
		param := tr.call.Param
		tr.call.Param = func(name string) (reference.Tensor, error) {
			x, err := param(name)
			x.Data = roundedBF16(x.Data)
			return x, err
		}
	}
	if strings.HasSuffix(m.Path, "core") { // GLM's attention also returns its choice
		other, err := tr.read(reference.Port{Name: "model.layers.2.self_attn.indexer.indices"})
		if err != nil {
			t.Fatal(err)
		}
		tr.held["model.layers.1.self_attn.output.2"] = other
	}
	hold := func(name string, x reference.Tensor) {
		tr.held[name] = &step.Value{Tensor: x, DType: map[bool]string{true: "BF16", false: "F32"}[low]}
	}
	if strings.Contains(mistake, "repeats") { // a table may name an expert twice
		chosen, _ := tr.call.Given("model.layers.1.mlp.gate.indices")
		chosen.Data[0], chosen.Data[9] = chosen.Data[1], chosen.Data[11]
		hold("model.layers.1.mlp.gate.indices", chosen)
	}
	call := tr.call
	call.Mistake, call.Rounding = mistake, tr.ways[0]
	o, err := tr.run(call)
	if m.Kind == reference.Router && err == nil { // its weights follow from its choice, and its gradient from both
		for _, name := range [][2]string{{m.Path + ".indices", m.Path + ".indices"}, {m.Outputs[0].Grad, localLogits}} {
			hold(name[0], o[name[1]])
			o, err = tr.run(call)
		}
		delete(o, m.Outputs[1].Grad)
	}
	if err != nil {
		t.Fatalf("%s: %v", m.Path, err)
	}
	for i, s := range o[m.Choice()+".choice"].Data { // folders have anything for keys that a token does not see
		if scores := o[m.Outputs[0].Name].Data; math.IsInf(s, -1) {
			scores[i] = -1e38
		}
	}
	for name, x := range o {
		hold(name, x)
	}
	line := &ModuleLine{Path: m.Path, Kind: string(m.Kind), Layer: m.Layer}
	if tr.exact, tr.floors, err = tr.compute(tr.call, tr.ways); err != nil {
		t.Fatal(err)
	}
	if line.add(tr.compareAll(tr.exact, tr.floors, nil)); len(line.wrong()) > 0 {
		line.Causes = j.explain(tr, line)
	}
	return line
}

func roundedBF16(values []float64) []float64 {
	y := slices.Clone(values)
	for i, v := range y {
		y[i] = reference.BF16.Round(v)
	}
	return y
}
