package main

import (
	"encoding/binary"
	"fmt"
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

// verdicts counts the lines of a check by verdict: ok, MISS or -.
func verdicts(out string) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(out) {
		if m := regexp.MustCompile(`  (ok|MISS|-)  `).FindStringSubmatch(line); m != nil {
			counts[m[1]]++
		}
	}
	return counts
}

// compared returns the numbers of a check's last line.
func compared(t *testing.T, out string) (compared, misses int) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\d+ compared, \d+ out of bounds`).FindString(out)
	if _, err := fmt.Sscanf(m, "%d compared, %d out of bounds", &compared, &misses); err != nil {
		t.Fatalf("no summary in\n%s", out)
	}
	return compared, misses
}

func TestCheck(t *testing.T) {
	for _, np := range []string{"1", "2", "4"} {
		out := succeed(t, "-np", np, "check", goldenV3, goldenLite)
		if v := verdicts(out); v["MISS"] != 0 || v["ok"] < 200 {
			t.Errorf("np %s: %v", np, v)
		}
		for _, want := range []string{"layer2_topk_index", "logits", "loss ", "gradient lm_head.weight", "trajectory loss, steps 1-8", "trajectory loss, steps 9-40"} {
			if !strings.Contains(out, want) {
				t.Errorf("np %s: the check lacks %q", np, want)
			}
		}
	}
}

// What is optional may be missing; what is compared then is less.
func TestCheckWithoutOptional(t *testing.T) {
	all, _ := compared(t, succeed(t, "check", goldenV3))
	for name, c := range map[string]struct {
		remove []string
		less   func(n int) bool
	}{
		"gradients":  {[]string{"gradients.safetensors"}, func(n int) bool { return n > 100 }},
		"trajectory": {[]string{"train_trajectory.json", "train_tokens.safetensors"}, func(n int) bool { return n == 2 }},
	} {
		dir := copied(t, goldenV3)
		for _, file := range c.remove {
			if err := os.Remove(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		n, _ := compared(t, succeed(t, "check", dir))
		if !c.less(all - n) {
			t.Errorf("without %s %d of %d are compared", name, n, all)
		}
	}
}

// A check that finds a difference says where and ends with code 1.
func TestCheckMisses(t *testing.T) {
	double := func(name string) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { scale(all[name].Data, 1.01) }
	}
	for name, c := range map[string]struct {
		file   string
		change func(all map[string]safetensors.Tensor)
		want   []string // names that miss
		only   bool     // no others do
	}{
		"weight of layer 1":  {"model", double("model.layers.1.self_attn.o_proj.weight"), []string{"layer1_attention", "layer1_out", "layer2_mlp", "logits", "gradient lm_head.weight"}, false},
		"weight of the head": {"model", double("lm_head.weight"), []string{"logits", "loss"}, false},
		"one expert":         {"model", double("model.layers.2.mlp.experts.3.down_proj.weight"), []string{"layer2_mlp", "logits"}, false},
		"selection bias": {"model", func(all map[string]safetensors.Tensor) {
			put(all["model.layers.1.mlp.gate.e_score_correction_bias"].Data, 0, 1)
		}, []string{"layer1_topk_index"}, false},
		"one logit":         {"activations", func(all map[string]safetensors.Tensor) { put(all["logits"].Data, 7, 1e3) }, []string{"logits"}, true},
		"a NaN":             {"activations", func(all map[string]safetensors.Tensor) { put(all["layer0_out"].Data, 7, math.NaN()) }, []string{"layer0_out"}, true},
		"one choice":        {"activations", func(all map[string]safetensors.Tensor) { all["layer1_topk_index"].Data[0] ^= 15 }, []string{"layer1_topk_index", "layer1_topk_weight"}, true},
		"one gradient":      {"gradients", double("model.norm.weight"), []string{"gradient model.norm.weight"}, true},
		"expert's gradient": {"gradients", double("model.layers.1.mlp.experts.15.up_proj.weight"), []string{"gradient model.layers.1.mlp.experts.15.up_proj.weight"}, true},
		"zero gradient": {"gradients", func(all map[string]safetensors.Tensor) { clear(all["model.norm.weight"].Data) },
			[]string{"gradient model.norm.weight"}, true},
		"training tokens": {"train_tokens", func(all map[string]safetensors.Tensor) { clear(all["tokens"].Data) }, []string{"trajectory loss, steps 1-8", "trajectory loss, steps 9-40"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, goldenV3)
			edit(t, filepath.Join(dir, c.file+".safetensors"), c.change)
			if c.file != "train_tokens" { // the replay takes longer than all the rest
				if err := os.Remove(filepath.Join(dir, "train_trajectory.json")); err != nil {
					t.Fatal(err)
				}
			}
			got := launch("-np", "2", "check", dir)
			missed := map[string]bool{}
			for line := range strings.Lines(got.out) {
				if name, _, ok := strings.Cut(line, "  "); ok && strings.Contains(line, "  MISS  ") {
					missed[name] = true
				}
			}
			for _, want := range c.want {
				if !missed[want] {
					t.Errorf("%s does not miss: %v", want, missed)
				}
			}
			if c.only && len(missed) != len(c.want) {
				t.Errorf("missed are %v, want only %q", missed, c.want)
			}
			if _, n := compared(t, got.out); n != len(missed) || got.code != cli.ExitFailed || !strings.Contains(got.errOut, fmt.Sprintf("%d out of bounds", n)) {
				t.Errorf("exit code %d, errors %q, %d out of bounds of %d missed", got.code, got.errOut, n, len(missed))
			}
		})
	}
}

// One folder's misses fail the whole check, whatever the others say.
func TestCheckSeveral(t *testing.T) {
	dir := copied(t, goldenLite)
	edit(t, filepath.Join(dir, "gradients.safetensors"), func(all map[string]safetensors.Tensor) { scale(all["model.norm.weight"].Data, 2) })
	for _, folders := range [][]string{{dir, goldenLite}, {goldenLite, dir}} {
		refuse(t, cli.ExitFailed, append([]string{"check"}, folders...), "1 out of bounds")
	}
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

// Names that the model lacks are listed with those that it has, and fail the check.
func TestCheckUnknownNames(t *testing.T) {
	all, _ := compared(t, succeed(t, "check", goldenLite))
	dir := copied(t, goldenLite)
	rename := func(from, to string) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { all[to] = all[from]; delete(all, from) }
	}
	edit(t, filepath.Join(dir, "activations.safetensors"), rename("layer0_mlp", "layer0_feed_forward"))
	edit(t, filepath.Join(dir, "activations.safetensors"), func(all map[string]safetensors.Tensor) {
		all["odd"] = safetensors.Tensor{DType: safetensors.F32, Shape: []int{3}, Data: make([]byte, 12)}
	})
	edit(t, filepath.Join(dir, "gradients.safetensors"), rename("model.norm.weight", "model.final_norm.weight"))
	got := launch("check", dir)
	out := got.out
	if got.code != cli.ExitFailed || !strings.Contains(got.errOut, "3 out of bounds or of unknown names") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	if n, _ := compared(t, out); n != all-2 {
		t.Errorf("%d compared, want %d", n, all-2)
	}
	for _, want := range []string{
		`layer0_feed_forward +UNKNOWN +the model has no such activation, it has .*layerN_mlp, .*logits, loss`, `odd +UNKNOWN`,
		`gradient model\.final_norm\.weight +UNKNOWN +the model has no such parameter`, `gradient model\.norm\.weight +- +not compared: the reference lacks it`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the check lacks %q:\n%s", want, out)
		}
	}

	for _, file := range []string{"activations", "gradients"} {
		edit(t, filepath.Join(dir, file+".safetensors"), func(all map[string]safetensors.Tensor) {
			for name, tensor := range all {
				if name != "input_ids" && name != "target_ids" {
					delete(all, name)
					all["other "+name] = tensor
				}
			}
		})
	}
	refuse(t, cli.ExitFailed, []string{"check", dir}, "nothing was compared")
	// It fails although another folder has no misses.
	refuse(t, cli.ExitFailed, []string{"check", goldenLite, dir}, "nothing was compared")
}
