package referee

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor/tensorcore"
)

// grid is a tensor of rows.
type grid struct {
	values []float32
	cols   int
	dtype  string
}

func (g grid) t() grid {
	t := grid{cols: len(g.values) / g.cols, dtype: g.dtype}
	for i := range g.values {
		t.values = append(t.values, g.values[i%t.cols*g.cols+i/t.cols])
	}
	return t
}

// cut rounds to nearest even without the last bits: 16 for BF16, 13 for TF32.
func cut(x float32, bits int) float32 {
	u := math.Float32bits(x)
	u += 1<<(bits-1) - 1 + u>>bits&1
	return math.Float32frombits(u >> bits << bits)
}

// gpuStep is a step whose products an H200 could have computed.
type gpuStep struct {
	random *rand.Rand
	dot    func(a, b []tensorcore.Element) float32
	config map[string]any             // changes to that of the model
	facts  map[string]any             // of step.json
	ranks  int                        // with the same tensors; 0: a folder without ranks
	files  map[string]map[string]grid // weights, gradients and activations
}

func (s *gpuStep) draw(rows, cols int, dtype string) grid {
	g := grid{make([]float32, rows*cols), cols, dtype}
	for i := range g.values {
		if g.values[i] = float32(s.random.NormFloat64()); dtype == "BF16" {
			g.values[i] = cut(g.values[i], 16)
		}
	}
	return g
}

// multiply returns x·wᵀ + bias.
func (s *gpuStep) multiply(x, w grid, bias []float32, dtype string) grid {
	bits := 13 // BF16 keeps its value
	if s.facts["autocast"] != nil {
		bits = 16
	}
	elements := func(g grid) (all []tensorcore.Element) {
		for _, v := range g.values {
			all = append(all, tensorcore.ElementOf(cut(v, bits), -126))
		}
		return all
	}
	a, b, k := elements(x), elements(w), x.cols
	y := grid{cols: len(b) / k, dtype: dtype}
	for i := 0; i < len(a); i += k {
		for j := 0; j < len(b); j += k {
			v := s.dot(a[i:i+k], b[j:j+k])
			if bias != nil {
				v += bias[j/k]
			}
			if dtype == "BF16" {
				v = cut(v, 16)
			}
			y.values = append(y.values, v)
		}
	}
	return y
}

// linear adds a layer [n, k] with its products. Several weights share its rows. output and gradient
// are the names of its output.
func (s *gpuStep) linear(path string, rows, n, k int, dtype, output, gradient string, weights ...string) {
	of := "BF16"
	if s.facts["autocast"] != nil {
		of = "F32"
	}
	x, w, dy, bias := s.draw(rows, k, of), s.draw(n, k, of), s.draw(rows, n, dtype), []float32(nil)
	if s.config["attention_bias"] == true {
		g := s.draw(1, n, "BF16")
		bias, s.files["model"][path+".bias"] = g.values, g
	}
	acts, dw := s.files["activations"], s.multiply(dy.t(), x.t(), nil, "BF16")
	acts[path+".input"], acts[path+output] = x, s.multiply(x, w, bias, dtype)
	acts[path+gradient], acts[path+".grad_input"] = dy, s.multiply(dy, w.t(), nil, "BF16")
	for i, name := range weights {
		lo, hi := i*n/len(weights)*k, (i+1)*n/len(weights)*k
		s.files["model"][name], s.files["gradients"][name] = grid{w.values[lo:hi], k, of}, grid{dw.values[lo:hi], k, of}
	}
}

const (
	oProj    = "model.layers.0.self_attn.o_proj"
	gateProj = "model.layers.0.mlp.gate_proj"
	gate     = "model.layers.1.mlp.gate"
	experts  = "model.layers.1.mlp.experts."
)

func (s *gpuStep) oProj() {
	s.linear(oProj, 24, 64, 128, "BF16", ".output", ".grad_output", oProj+".weight")
}

func (s *gpuStep) router() {
	s.linear(gate, 24, 16, 64, "F32", ".logits", ".logits.grad", gate+".weight")
}

// newGPUStep has a projection, the products of two experts, one with its gate and up projections in
// one, a layer whose rows have an odd number of elements, and a router with TF32.
func newGPUStep() *gpuStep {
	s := &gpuStep{random: rand.New(rand.NewPCG(1, 2)), dot: tensorcore.H100BF16.Dot}
	s.config, s.facts = map[string]any{"intermediate_size": 33, "num_nextn_predict_layers": 0}, map[string]any{"device": "NVIDIA H200", "format": "step-1"}
	ids := grid{make([]float32, 24), 12, "F32"}
	s.files = map[string]map[string]grid{"model": {}, "gradients": {}, "activations": {}, "batch": {"input_ids": ids, "labels": ids}}
	s.oProj()
	s.linear(experts+"3.gate_up_proj", 37, 64, 64, "BF16", ".output", ".grad_output", experts+"3.gate_proj.weight", experts+"3.up_proj.weight")
	s.linear(experts+"3.down_proj", 37, 64, 32, "BF16", ".output", ".grad_output", experts+"3.down_proj.weight")
	s.linear(experts+"5.up_proj", 5, 32, 64, "BF16", ".output", ".grad_output", experts+"5.up_proj.weight")
	s.dot = tensorcore.H100OddBF16.Dot
	s.linear(gateProj, 24, 33, 64, "BF16", ".output", ".grad_output", gateProj+".weight")
	acts := s.files["activations"] // BF16 would hide the order of blocks
	acts[gateProj+".output"] = s.multiply(acts[gateProj+".input"], s.files["model"][gateProj+".weight"], nil, "F32")
	s.dot = tensorcore.H100TF32.Dot
	s.router()
	s.dot = tensorcore.H100BF16.Dot
	return s
}

func (s *gpuStep) write(t *testing.T) (dir string) {
	dir = t.TempDir()
	config := map[string]any{}
	text, err := os.ReadFile("../golden/testdata/deepseek_v3_tiny/config.json")
	err = errors.Join(err, json.Unmarshal(text, &config))
	maps.Copy(config, s.config)
	for r := range max(s.ranks, 1) {
		folder := dir
		if s.ranks > 0 {
			folder = filepath.Join(dir, fmt.Sprintf("rank-%d", r))
			err = errors.Join(err, os.Mkdir(folder, 0o755))
		}
		placement := map[string]any{"mesh": map[string]int{"tp": max(s.ranks, 1)}, "coordinate": map[string]int{"tp": r}}
		for name, facts := range map[string]map[string]any{"config.json": config, "step.json": s.facts, "placement.json": placement} {
			text, encoding := json.Marshal(facts)
			err = errors.Join(err, encoding, os.WriteFile(filepath.Join(folder, name), text, 0o644))
		}
		err = errors.Join(err, s.writeTensors(folder))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *gpuStep) writeTensors(dir string) (err error) {
	for file, grids := range s.files {
		var all []safetensors.Tensor
		for name, g := range grids {
			tensor := safetensors.Tensor{Name: name, DType: g.dtype, Shape: []int{len(g.values) / g.cols, g.cols}}
			if strings.HasSuffix(name, "bias") {
				tensor.Shape = tensor.Shape[1:]
			}
			for _, v := range g.values {
				if g.dtype == "BF16" {
					tensor.Data = binary.LittleEndian.AppendUint16(tensor.Data, uint16(math.Float32bits(v)>>16))
				} else {
					tensor.Data = binary.LittleEndian.AppendUint32(tensor.Data, math.Float32bits(v))
				}
			}
			all = append(all, tensor)
		}
		err = errors.Join(err, safetensors.Write(filepath.Join(dir, file+".safetensors"), all, nil))
	}
	return err
}

func TestProductsOfGPU(t *testing.T) {
	high := func(s *gpuStep) { s.facts["float32_matmul_precision"] = "high" }
	flip := func(file, name string, bit int) func(s *gpuStep) { // of element [3, 2]
		return func(s *gpuStep) {
			g := s.files[file][name]
			at := 3*g.cols + 2
			g.values[at] = math.Float32frombits(math.Float32bits(g.values[at]) ^ 1<<bit)
		}
	}
	head := func(s *gpuStep) { // whose outputs are random, so that the loss is wrong
		weight := map[bool]string{true: "model.embed_tokens.weight", false: "lm_head.weight"}[s.config["tie_word_embeddings"] == true]
		s.config["vocab_size"] = 32
		s.linear("lm_head", 24, 32, 64, "BF16", ".output", ".grad_output", weight)
	}
	fact := func(name string, value any) func(s *gpuStep) { return func(s *gpuStep) { s.facts[name] = value } }
	for name, c := range map[string]struct {
		change func(s *gpuStep)
		equal  string // the first sentence about products begins so
		says   string // in the findings or in the report on products, with "; " between two
		wrong  bool
	}{
		"right":                                {func(*gpuStep) {}, "15 of 15", "not checked: 3 of FP32 operands, which", false},
		"right, with TF32":                     {high, "18 of 18", "not checked: 276 of experts", false},
		"a bit too small for rounding's bound": {flip("activations", oProj+".output", 18), "14 of 15", "the GPU computed this product wrong: forward of " + oProj + ".output: element [3, 2] is", true},
		"a high bit":                           {flip("activations", oProj+".grad_input", 30), "14 of 15", "dgrad of " + oProj + ".grad_input: element [3, 2] is", true},
		"of an expert":                         {flip("activations", experts+"3.gate_up_proj.output", 30), "14 of 15", "element [3, 2] is", true},
		"a stuck product": {func(s *gpuStep) {
			right := s.dot
			s.dot = func(a, b []tensorcore.Element) float32 {
				a = slices.Clone(a)
				for k := 5; k < len(a); k += 16 {
					a[k].Value *= -1
				}
				return right(a, b)
			}
			s.oProj()
		}, "12 of 14", "is not the product of the recorded operands", true},
		"another order": {func(s *gpuStep) {
			high(s)
			s.dot = func(a, b []tensorcore.Element) (sum float32) {
				for k, x := range a {
					sum += float32(x.Value * b[k].Value)
				}
				return sum
			}
			s.router()
		}, "17 of 18", "forward of " + gate + ": another order of sums", false},
		"of a gradient": {flip("gradients", oProj+".weight", 30), "14 of 15", "wgrad of " + oProj + ".weight: element [3, 2] is", true},
		"a bias, and a last bit": {func(s *gpuStep) {
			s.config["attention_bias"], s.facts["frozen"] = true, []string{oProj + ".bias"}
			s.oProj()
			flip("activations", oProj+".output", 16)(s)
		}, "14 of 15", "element [3, 2] is -16.25, exact -16.39", true},
		"BF16 results in FP32": {func(s *gpuStep) {
			g := s.files["gradients"][oProj+".weight"]
			g.dtype = "F32"
			s.files["gradients"][oProj+".weight"] = g
		}, "15 of 15", "", false},
		"FP32 weights, which FSDP casts": {func(s *gpuStep) {
			g := s.files["model"][oProj+".weight"]
			for i := range g.values {
				g.values[i] *= 1 + 0x1p-12
			}
			g.dtype = "F32"
			s.files["model"][oProj+".weight"] = g
		}, "15 of 15", "", false},
		"a router in BF16": {func(s *gpuStep) {
			s.linear(gate, 24, 16, 64, "BF16", ".logits", ".logits.grad", gate+".weight")
		}, "18 of 18", "", false},
		"tensor-parallel ranks": {func(s *gpuStep) { s.ranks = 2 }, "none could", "9 of experts on several ranks", false},
		"autocast": {func(s *gpuStep) {
			s.facts["autocast"] = "bfloat16"
			s.oProj()
			delete(s.files["model"], gate+".weight")
			delete(s.files["activations"], gateProj+".output")
		}, "14 of 14", "", false},
		"a mistake of the model": {func(s *gpuStep) {
			g := s.files["gradients"][oProj+".weight"]
			for i := range g.values {
				g.values[i] *= 2
			}
		}, "14 of 14", "Not the GPU: 2 products of this module", true},
		"FP8": {func(s *gpuStep) {
			s.facts["fp8"] = "mxfp8 experts"
			head(s)
		}, "9 of 9", "not checked: 9 of quantized operands", true},
		"FP8 of all linear layers, whose operands were not cast": {func(s *gpuStep) { high(s); s.facts["fp8"] = "mxfp8" }, "3 of 3", "not checked: 15 of quantized operands; FP8: no operand is cast", true},
		"micro-batches": {fact("micro_batches", 2), "10 of 10", "6 of gradients summed over micro-batches", false},
		"ranks":         {fact("ranks", 2), "10 of 10", "6 of gradients summed over ranks", false},
		"a shared weight": {func(s *gpuStep) {
			s.config["tie_word_embeddings"] = true
			head(s)
		}, "17 of 17", "1 of gradients summed over layers", true},
		"no gradient": {func(s *gpuStep) { delete(s.files["gradients"], oProj+".weight") }, "14 of 14", "73 with a tensor", false},
		"other rows": {func(s *gpuStep) {
			g := s.files["activations"][oProj+".input"]
			g.values = g.values[g.cols:]
			s.files["activations"][oProj+".input"] = g
		}, "13 of 13", "not checked: 2 with tensors whose shapes do not fit", false},
		"another GPU": {fact("device", "NVIDIA A100"), "no rules for NVIDIA A100", "", false},
		"no GPU":      {fact("device", "cpu"), "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGPUStep()
			c.change(s)
			r := judged(t, s.write(t))
			all := append(r.Products.Says(), "")
			says := strings.Join(all, "\n")
			for _, f := range r.Findings {
				says += strings.Join(f.Says, "\n") + fmt.Sprint(f.Causes)
			}
			lacks := func(word string) bool { return !strings.Contains(says, word) }
			if !strings.HasPrefix(all[0], c.equal) || slices.ContainsFunc(strings.Split(c.says, "; "), lacks) || (r.Verdict == Wrong) != c.wrong {
				t.Errorf("%s: %s", r.Verdict, says)
			}
			if cleared := strings.Contains(says, "Not the GPU"); cleared != (name == "a mistake of the model") {
				t.Errorf("the GPU is cleared: %v: %s", cleared, says)
			}
		})
	}
}
