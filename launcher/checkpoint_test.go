package main

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
	"spmoe/tensor"
)

// threeCheckpoints makes a run with checkpoints of steps 2, 4 and 6 by two ranks.
func threeCheckpoints(t *testing.T, more ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	data := text(t)
	succeed(t, tiny(data, append(more, "-np", "2", "--out", "run", "--save-every", "2", "--set", "keep=9")...)...)
}

// breakShard changes a byte in the middle of a file.
func breakShard(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	write(t, path, string(data))
}

func TestCheckpointList(t *testing.T) {
	threeCheckpoints(t)
	if err := errors.Join(os.Rename("run/step-00000002", "run/step-00000002.bad"), os.Remove("run/step-00000004/manifest.json"), os.Mkdir("run/.step-00000009.tmp", 0o777)); err != nil {
		t.Fatal(err)
	}
	before := files(t, ".")
	out := succeed(t, "checkpoint", "ls", "run")
	same(t, files(t, "."), before)
	for _, want := range []string{
		`(?m)^folder +step +written +size +ranks +state$`,
		`(?m)^run/step-00000002.bad +2 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +[\d.]+ [KM]iB +2 +damaged: set aside$`,
		`(?m)^run/step-00000004 +4 .* - +damaged: not complete: it has no manifest.json$`,
		`(?m)^run/step-00000006 +6 .* [KM]iB +2 +complete$`,
		`(?m)^run/.step-00000009.tmp +9 .* - +unfinished$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line is %s in\n%s", want, out)
		}
	}
}

func TestCheckpointVerify(t *testing.T) {
	threeCheckpoints(t)
	if out := succeed(t, "checkpoint", "verify", "run", "run/step-00000002"); strings.Count(out, "ok     run/step-0000000") != 4 || !strings.Contains(out, "step 6 of 2 ranks") {
		t.Errorf("the output is\n%s", out)
	}
	breakShard(t, "run/step-00000004/rank-00001-of-00002.safetensors")
	before := files(t, ".")
	got := launch("checkpoint", "verify", "run")
	if got.code != cli.ExitFailed || !strings.Contains(got.errOut, "broken: run/step-00000004") || strings.Contains(got.errOut, "step-00000002") {
		t.Errorf("exit code %d, errors %q", got.code, got.errOut)
	}
	if strings.Count(got.out, "ok ") != 2 || !strings.Contains(got.out, "BROKEN checkpoint run/step-00000004: rank-00001-of-00002.safetensors is damaged: chunk 0, bytes 0 to ") {
		t.Errorf("the output is\n%s", got.out)
	}
	same(t, files(t, "."), before)
}

// The exported file holds the model's weights under their Hugging Face names, rounded once, and no
// state of the optimizer.
func TestCheckpointExport(t *testing.T) {
	threeCheckpoints(t, "--set", "model.mtp_layers=1")
	whole := map[string][]float32{}
	shape := map[string]int{}
	for _, dtype := range []string{"fp32", "bf16"} {
		if out := succeed(t, "checkpoint", "export", "run", "--out", dtype, "--dtype", dtype); !strings.Contains(out, "tensors of run/step-00000006 to "+dtype) {
			t.Errorf("the output is %q", out)
		}
		f, err := safetensors.Open(dtype)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, info := range f.Tensors() {
			got, err := f.Float32s(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			bias := strings.HasSuffix(info.Name, "e_score_correction_bias")
			if want := map[bool]string{true: safetensors.F32, false: map[string]string{"fp32": safetensors.F32, "bf16": safetensors.BF16}[dtype]}[bias]; info.DType != want {
				t.Errorf("%s is %s, want %s", info.Name, info.DType, want)
			}
			if dtype == "fp32" {
				whole[info.Name], shape[info.Name] = got, len(info.Shape)
				continue
			}
			for i, w := range whole[info.Name] {
				if !bias {
					w = tensor.ToBFloat16(w).Float32()
				}
				if math.Float32bits(w) != math.Float32bits(got[i]) {
					t.Errorf("%s[%d] is %v, want %v", info.Name, i, got[i], w)
					break
				}
			}
			if len(info.Shape) != shape[info.Name] || len(got) != len(whole[info.Name]) {
				t.Errorf("%s has shape %v and %d elements", info.Name, info.Shape, len(got))
			}
		}
	}
	for name, dims := range map[string]int{
		"model.embed_tokens.weight": 2, "lm_head.weight": 2, "model.norm.weight": 1, "model.layers.1.mlp.gate.e_score_correction_bias": 1,
		"model.layers.1.mlp.experts.3.down_proj.weight": 2, "model.layers.0.self_attn.kv_b_proj.weight": 2,
	} {
		if shape[name] != dims {
			t.Errorf("%s has %d dimensions, want %d", name, shape[name], dims)
		}
	}
	for name := range shape {
		if strings.Contains(name, "exp_avg") || strings.HasPrefix(name, "master") {
			t.Errorf("%s is no weight", name)
		}
	}

	breakShard(t, "run/step-00000006/rank-00000-of-00002.safetensors")
	refuse(t, cli.ExitUsage, []string{"checkpoint", "export", "run/step-00000006", "--out", "x"}, "run/step-00000006", "rank-00000-of-00002.safetensors is damaged")
	refuse(t, cli.ExitFailed, []string{"checkpoint", "export", "run/step-00000004", "--out", "none/x"}, "none/")
	if _, err := os.Stat("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of a damaged checkpoint: %v", err)
	}
}
