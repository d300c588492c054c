package reference

// The reference against the golden folders, by its fine modules only: what they hand to each other
// by the names of their ports, forward and backward.

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

const goldens = "../../launcher/golden/testdata"

var families = []string{"deepseek_v2lite_like", "deepseek_v3_tiny", "glm4_moe_tiny", "qwen3_moe_tiny", "deepseek_v32_tiny", "glm_moe_dsa_tiny", "deepseek_v4_tiny"}

// Passes leave garbage: collecting it less often saves a fifth of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// golden is a model of one of the golden folders.
type golden struct {
	t      testing.TB
	config *Config
	files  map[string]*safetensors.File
	batch  *Batch
	params map[string]Tensor
	values map[string]Tensor // results of the whole model
	edit   func(c *Call)
	trace  *Trace // that the next run records; nil: none
}

// results are those of the models that have run, by folder.
var results = map[string]map[string]Tensor{}

// openGolden opens a folder and runs its model.
func openGolden(t testing.TB, name string) *golden {
	t.Helper()
	g := &golden{t: t, files: map[string]*safetensors.File{}, params: map[string]Tensor{}, values: map[string]Tensor{}}
	data, err := os.ReadFile(filepath.Join(goldens, name, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if g.config, err = ReadConfig(data); err != nil {
		t.Fatal(err)
	}
	g.config.MTPLayers = 0 // the weights lack them
	for _, file := range []string{"model", "activations", "gradients"} {
		if g.files[file], err = safetensors.Open(filepath.Join(goldens, name, file+".safetensors")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.files[file].Close() })
	}
	info, _ := g.files["activations"].Info("input_ids")
	g.batch = &Batch{Batch: info.Shape[0], Seq: info.Shape[1], IDs: g.ints("input_ids"), Labels: g.ints("target_ids"), LabelsShifted: true}
	if results[name] == nil {
		results[name] = g.run(g.module("model"))
	}
	for of, x := range results[name] { // tests change them
		x.Data = slices.Clone(x.Data)
		g.values[of] = x
	}
	return g
}

// tensor returns what a file of the folder has under one of its own names.
func (g *golden) tensor(file, name string) Tensor {
	g.t.Helper()
	values, err := g.files[file].Float32s(name)
	if err != nil {
		g.t.Fatal(err)
	}
	info, _ := g.files[file].Info(name)
	x := Tensor{Dims: info.Shape, Data: make([]float64, len(values))}
	for i, v := range values {
		x.Data[i] = float64(v)
	}
	return x
}

func (g *golden) ints(name string) []int32 {
	data, err := g.files["activations"].Bytes(name)
	if err != nil {
		g.t.Fatal(err)
	}
	values := make([]int32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
		g.t.Fatal(err)
	}
	return values
}

// run runs a module on the results of the whole model.
func (g *golden) run(m *Module) map[string]Tensor {
	g.t.Helper()
	call := Call{Batch: g.batch, Backward: true, Given: known(g.values), Param: g.weight}
	if m.Kind.loss() || m.Kind == Model {
		call.Losses = map[string]float64{m.Outputs[0].Name: 1}
	}
	if g.edit != nil {
		g.edit(&call)
	}
	results, err := m.runFrom(call, g.trace, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	return results
}

func (g *golden) weight(name string) (Tensor, error) {
	if _, known := g.params[name]; !known {
		if g.config.Streams > 0 {
			g.params[name] = g.v4Weight(name)
		} else {
			g.params[name] = g.tensor("model", name)
		}
	}
	return g.params[name], nil
}

// distance is ‖x - y‖ / ‖y‖.
func distance(x, y []float64) float64 {
	var diff, norm float64
	for i, v := range y {
		diff += (x[i] - v) * (x[i] - v)
		norm += v * v
	}
	if norm == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / norm)
}

func TestGoldenFolders(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			g := openGolden(t, family)
			worst, buffers := map[string]float64{}, []string{}
			for _, m := range g.config.Modules() {
				buffers = append(buffers, m.Buffers...) // which files of gradients hold too
			}
			near := func(kind, name string, got, want Tensor, bar float64) {
				if len(got.Data) != len(want.Data) {
					t.Errorf("%s: %d elements, want %d", name, len(got.Data), len(want.Data))
					return
				}
				d := distance(got.Data, want.Data)
				if worst[kind] = max(worst[kind], d); !(d <= bar) {
					t.Errorf("%s is off by %.2g", name, d)
				}
			}
			for i := range g.config.Layers {
				path := fmt.Sprintf("model.layers.%d", i)
				for ours, theirs := range map[string]string{".self_attn.output": "attention", ".mlp.input": "mlp_in", ".mlp.output": "mlp", ".output": "out"} {
					near("activations", path+ours, g.values[path+ours], g.tensor("activations", fmt.Sprintf("layer%d_%s", i, theirs)), 2e-6)
				}
			}
			near("activations", "logits", g.values["lm_head.output"], g.tensor("activations", "logits"), 2e-6)
			near("activations", "loss", g.values["loss"], g.tensor("activations", "loss"), 2e-6)
			for _, info := range g.files["gradients"].Tensors() {
				name := info.Name
				if g.config.Streams > 0 {
					name = g.config.V4Name(name)
				}
				if _, ok := g.values[name]; ok || !slices.Contains(buffers, name) {
					near("gradients", name, g.values[name], g.tensor("gradients", info.Name), 2e-5)
				}
			}
			if g.config.Streams > 0 {
				g.v4Activations(near)
			}
			t.Logf("worst %v", worst)
			g.coarse(near)
		})
	}
}

// coarse compares the coarse modules with the fine ones inside them.
func (g *golden) coarse(near func(kind, name string, got, want Tensor, bar float64)) {
	for _, m := range g.config.Modules() {
		if m.Children == nil || m.Kind == Model {
			continue
		}
		results := g.run(m)
		for _, p := range m.Outputs {
			near("coarse", p.Name, results[p.Name], g.values[p.Label()], 1e-12)
		}
		for _, p := range m.Inputs {
			near("coarse", p.Grad, results[p.Grad], g.values[p.Gradient().Label()], 1e-12)
		}
		for _, name := range m.Params {
			near("coarse", m.Path+": "+name, results[name], g.values[name], 1e-12)
		}
	}
}

// A tied weight has the gradients of both its uses.
func TestTiedWeights(t *testing.T) {
	g := openGolden(t, "qwen3_moe_tiny")
	g.edit = func(c *Call) {
		c.Param = func(name string) (Tensor, error) {
			return g.weight(strings.Replace(name, "lm_head", "model.embed_tokens", 1))
		}
	}
	both := g.run(g.module("model"))
	g.config.Tied = true
	tied := g.run(g.module("model"))
	want := both["model.embed_tokens.weight"].Data
	for i, v := range both["lm_head.weight"].Data {
		want[i] += v
	}
	if d := distance(tied["model.embed_tokens.weight"].Data, want); !(d < 1e-12) || tied["lm_head.weight"].Data != nil {
		t.Errorf("the gradient is off by %.2g", d)
	}
}

// known returns a lookup of tensors by name for Call.Given.
func known(tensors map[string]Tensor) func(name string) (Tensor, bool) {
	return func(name string) (Tensor, bool) {
		x, ok := tensors[name]
		return x, ok
	}
}
