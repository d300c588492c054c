package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
)

// A run becomes a model of Hugging Face's form.
func TestConvert(t *testing.T) {
	t.Chdir(t.TempDir())
	succeed(t, tiny(text(t), "-np", "2", "--out", "run", "--set", "model.score_func=softmax", "--set", "model.norm_eps=1e-5")...)
	got := launch("convert", "--from", "run", "--to", "hf/bf16")
	if got.code != cli.ExitOK || !strings.Contains(got.out, "tensors of run/step-00000006, ") || !strings.Contains(got.out, ", to hf/bf16") ||
		strings.Count(got.errOut, "launcher: warning: ") != 2 || !strings.Contains(got.errOut, "router scores by softmax") {
		t.Errorf("%+v", got)
	}
	got = launch("convert", "--from", "run/step-00000006", "--to", "hf/fp32", "--dtype", "fp32")
	if got.code != cli.ExitOK || !strings.Contains(got.out, ", to hf/fp32") {
		t.Errorf("%+v", got)
	}
	launch("convert", "--from", "hf/fp32", "--to", "hf/again") // with the same warnings
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		once, err := os.ReadFile("hf/bf16/" + name)
		again, wrong := os.ReadFile("hf/again/" + name)
		if err != nil || wrong != nil || !bytes.Equal(once, again) {
			t.Errorf("%s differs, or: %v, %v", name, err, wrong)
		}
	}
	refuse(t, cli.ExitInterrupted, []string{"convert", "--from", "run", "--to", "x"})
	if _, err := os.Stat("x"); err == nil {
		t.Error("an interrupted conversion has left a folder")
	}
}

// A new run takes model, weights and tokenizer from a folder of another program. Once it has a
// checkpoint, it does not need them.
func TestInitFrom(t *testing.T) {
	data := text(t)
	golden := copied(t, goldenV3)
	t.Chdir(t.TempDir())
	line := func(more ...string) []string {
		return append(strings.Fields("train --steps 2 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --log-format json --precision fp32 --set log_every=1 --data "+data), more...)
	}
	first := map[string]float64{} // loss of each run
	for out, args := range map[string]string{"run": "-np 1", "ranks": "-np 4"} {
		log := succeed(t, line(append(strings.Fields(args), "--out", out, "--init-from", golden)...)...)
		first[out] = jsonEvents(t, log, "eval")[0].number("held_out_loss")
	}
	config, err := os.ReadFile("run/step-00000002/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"vocab = 512", "layers = 3", "experts = 16", "route_scale = 2.5", "mtp_layers = 0", "init_from = '" + golden + "'"} {
		if !strings.Contains(string(config), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, config)
		}
	}
	succeed(t, "convert", "--from", "run", "--to", "hf")
	for from, want := range map[string]string{"run": "tokenizer = 'bytes'", "hf": "/hf/tokenizer.json'"} {
		if out := succeed(t, line("--out", "x", "--init-from", from, "--dry-run")...); !strings.Contains(out, want) {
			t.Errorf("from %s the configuration lacks %q:\n%s", from, want, out)
		}
		log := succeed(t, line("--init-from", from, "--out", "from-"+from)...)
		first["from-"+from] = jsonEvents(t, log, "eval")[0].number("held_out_loss")
	}
	// Ranks add up in another order; a model in BF16 is not quite the run.
	if !(math.Abs(first["run"]-first["ranks"]) < 1e-6) || !(math.Abs(first["from-run"]-first["from-hf"]) < 1e-2) {
		t.Errorf("the first losses are %v", first)
	}

	// Flags may say what is so, and set what no weights depend on.
	args := line("--init-from", golden, "--set", "model.layers=3", "--set", "model.bias_speed=0.01", "--dry-run")
	if out := succeed(t, args...); !strings.Contains(out, "bias_speed = 0.01") {
		t.Errorf("the output is\n%s", out)
	}
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--set", "model.layers=4"), golden, "have a different model", "model.layers is 3 there and 4 here")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--set", "model.yarn.factor=4", "--set", "model.yarn.original_positions=64"), "model.yarn.factor is 0 there and 4 here")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--flavor", "debug"), "model.dim is 64 there and 256 here")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--seq", "129"), "seq is 129: give 1 to 128")

	if err := os.RemoveAll(golden); err != nil {
		t.Fatal(err)
	}
	succeed(t, line("--out", "run", "--init-from", golden)...) // the same command: it is complete
	log := succeed(t, strings.Fields("train --resume --out run --steps 3 --log-format json")...)
	if start := jsonEvents(t, log, "start")[0]; start["from_step"] != 2.0 {
		t.Errorf("it starts with %v", start)
	}
}

// Weights that are not finite are no start of a run, and the error names their tensor.
func TestInitFromNaN(t *testing.T) {
	data := text(t)
	dir := copied(t, goldenV3)
	const name = "model.layers.1.self_attn.o_proj.weight"
	edit(t, filepath.Join(dir, "model.safetensors"), func(all map[string]safetensors.Tensor) {
		one := all[name]
		binary.LittleEndian.PutUint32(one.Data[4*100:], math.Float32bits(float32(math.NaN())))
	})
	t.Chdir(t.TempDir())
	got := launch(strings.Fields("train -np 2 --steps 4 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --init-from " + dir + " --data " + data)...)
	if got.code != cli.ExitFailed || !strings.Contains(got.errOut, name) || !strings.Contains(got.errOut, "element 100 is NaN") || strings.Contains(got.out, "step:") {
		t.Errorf("exit code %d, errors %q, output\n%s", got.code, got.errOut, got.out)
	}
}
