package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
)

const (
	goldenV3   = "golden/testdata/deepseek_v3_tiny"
	goldenLite = "golden/testdata/deepseek_v2lite_like"
)

// copied returns a copy of a golden folder that a test may change.
func copied(t *testing.T, folder string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit rewrites a safetensors file with what change makes of its tensors.
func edit(t *testing.T, path string, change func(all map[string]safetensors.Tensor)) {
	t.Helper()
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]safetensors.Tensor{}
	for _, info := range file.Tensors() {
		data, err := file.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = safetensors.Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: data}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	change(all)
	var tensors []safetensors.Tensor
	for name, tensor := range all {
		tensor.Name = name
		tensors = append(tensors, tensor)
	}
	if err := safetensors.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
}

// written returns a folder with a step of the reference itself, of 32 tokens, and what is said of
// it: a golden model with all activations and gradients.
func written(t *testing.T) (dir, out string) {
	t.Helper()
	dir = copied(t, goldenV3)
	golden, err := safetensors.Open(filepath.Join(dir, "activations.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	var batch []safetensors.Tensor
	for from, to := range map[string]string{"input_ids": "input_ids", "target_ids": "labels"} {
		data, err := golden.Bytes(from)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, safetensors.Tensor{Name: to, DType: safetensors.I32, Shape: []int{1, 32}, Data: data[:4*32]})
	}
	write(t, filepath.Join(dir, "step.json"), `{"format": "step-1", "labels_shifted": true, "reduction": "mean", "loss_scale": 1.0, "micro_batches": 1}`)
	if err := errors.Join(safetensors.Write(filepath.Join(dir, "batch.safetensors"), batch, nil),
		os.Remove(filepath.Join(dir, "activations.safetensors")), os.Remove(filepath.Join(dir, "gradients.safetensors"))); err != nil {
		t.Fatal(err)
	}
	return dir, succeed(t, "check", dir, "--write", dir)
}

// The reference's own step is right under all names that it has. A wrong step ends with code 1. The
// report names the module, the pass and the cause.
func TestCheck(t *testing.T) {
	right, out := written(t)
	if !strings.Contains(out, "\nRIGHT: ") || !strings.Contains(out, "  self_attn.core ") {
		t.Errorf("the reference's own step:\n%s", out)
	}
	each := func(pattern string, change func(x safetensors.Tensor)) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) {
			n := 0
			for name, x := range all {
				if regexp.MustCompile(pattern).MatchString(name) {
					change(x)
					n++
				}
			}
			if n == 0 {
				t.Fatalf("no tensor matches %s", pattern)
			}
		}
	}
	times := func(factor float64) func(safetensors.Tensor) {
		return func(x safetensors.Tensor) { scale(x.Data, factor) }
	}
	for name, c := range map[string]struct {
		file   string
		change func(all map[string]safetensors.Tensor)
		want   []string
	}{
		"expert gradients doubled": {"gradients", each(`layers\.[12]\.mlp\.experts`, times(2)), []string{"First in model.layers.1.mlp.experts (gradient)", "75 weights, the experts of layers 1, 2", "2 × the local one"}},
		"all gradients clipped":    {"gradients", each(`.`, times(0.0371)), []string{"a common factor", "0.0371 ×", "clipped"}},
		"another weight":           {"model", each(`layers.2.self_attn.o_proj`, times(1.25)), []string{"First in model.layers.2.self_attn.o_proj (forward)", "weight_other"}},
		"one token":                {"activations", each(`layers.2.self_attn.core|layers.2.self_attn.o_proj.input`, func(x safetensors.Tensor) { put(x.Data, 5*64, 9) }), []string{"First in model.layers.2.self_attn.core (forward)", "worst tokens: "}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, right)
			edit(t, filepath.Join(dir, c.file+".safetensors"), c.change)
			got := launch("check", dir)
			if got.code != cli.ExitFailed {
				t.Errorf("exit code %d: %s", got.code, got.errOut)
			}
			flat := strings.Join(strings.Fields(got.out), " ")
			for _, want := range c.want {
				if !strings.Contains(flat, want) {
					t.Errorf("the report lacks %q:\n%s", want, got.out[max(0, strings.Index(got.out, "\nRead")):])
				}
			}
			if name != "one token" { // the report as JSON takes as long again
				return
			}
			var report struct{ Verdict string }
			if err := json.Unmarshal([]byte(launch("check", "--json", dir).out), &report); err != nil || report.Verdict != "wrong" {
				t.Errorf("the report as JSON: %v, %v", report, err)
			}
		})
	}
}

// A step of another implementation is right. Names that the model lacks are listed. If nothing can
// be compared, that is no success.
func TestCheckUnknownNames(t *testing.T) {
	odd, dir := copied(t, goldenLite), copied(t, goldenLite)
	edit(t, filepath.Join(odd, "activations.safetensors"), func(all map[string]safetensors.Tensor) {
		all["odd_name"] = all["layer0_mlp"]
		delete(all, "layer0_mlp")
	})
	edit(t, filepath.Join(dir, "activations.safetensors"), func(all map[string]safetensors.Tensor) {
		for name, x := range all {
			if name != "input_ids" && name != "target_ids" {
				delete(all, name)
				all["other "+name] = x
			}
		}
	})
	if err := os.Remove(filepath.Join(dir, "gradients.safetensors")); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitUndecided, []string{"check", dir}, "cannot be told")
	got := launch("check", odd, dir)
	if got.code != cli.ExitUndecided || !strings.Contains(got.errOut, "1 of 2 steps") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	flat := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{" RIGHT: ", "gradients end to end", "odd_name", "expected are names such as model.layers.0."} {
		if strings.Count(flat, want) != 1 {
			t.Errorf("the report should have %q once:\n%s", want, got.out)
		}
	}
	if err := os.Remove(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitUsage, []string{"check", dir}, "config.json")
}

// scale multiplies FP32 elements.
func scale(data []byte, factor float64) {
	for i := range len(data) / 4 {
		put(data, i, factor*float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))))
	}
}

// put sets FP32 element i.
func put(data []byte, i int, x float64) {
	binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(x)))
}
