package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
	"spmoe/launcher/training"
)

func TestConvert(t *testing.T) {
	threeCheckpoints(t)
	out := succeed(t, "convert", "--from", "run", "--to", "hf/bf16")
	if !strings.Contains(out, "tensors of run/step-00000006, ") || !strings.Contains(out, " in 1 file, to hf/bf16") {
		t.Errorf("the output is %q", out)
	}
	got := launch("convert", "--from", "hf/bf16", "--to", "hf/fp32", "--dtype", "fp32", "--shard-size", "50KB")
	if got.code != cli.ExitOK || !strings.Contains(got.out, " files, to hf/fp32") || !strings.Contains(got.errOut, "KiB written\n") {
		t.Errorf("%+v", got)
	}
	if out := succeed(t, "convert", "--from=hf/fp32", "--to=hf/again", "--dtype=bf16", "--shard-size=0"); !strings.Contains(out, "1 file") {
		t.Errorf("the output is %q", out)
	}
	same(t, files(t, "hf/again"), files(t, "hf/bf16")) // BF16 numbers survive FP32

	refuse(t, cli.ExitUsage, []string{"convert", "--from", "run"}, "needs --from FOLDER and --to FOLDER")
	refuse(t, cli.ExitUsage, []string{"convert", "run", "--from", "run", "--to", "x"}, `unexpected argument "run"`)
	refuse(t, cli.ExitUsage, []string{"convert", "--from", "run", "--to", "x", "--dtype", "fp8"}, `--dtype is "fp8": use `)
	refuse(t, cli.ExitUsage, []string{"convert", "--from", "run", "--to", "x", "--shard-size", "5G"}, `--shard-size: "5G" is not a size`)
	refuse(t, cli.ExitUsage, []string{"convert", "--from", "run", "--to", "hf/bf16"}, "hf/bf16 exists")
	refuse(t, cli.ExitUsage, []string{"convert", "--from", "nowhere", "--to", "x"}, "nowhere", "expected the folder of a run")
	refuse(t, cli.ExitUsage, []string{"convert", "--from", "hf", "--to", "x"}, "hf holds no weights", "config.json")
	refuse(t, cli.ExitInterrupted, []string{"convert", "--from", "run", "--to", "x"})
	if _, err := os.Stat("x"); err == nil {
		t.Error("an interrupted conversion has left a folder")
	}
	if got := launch("convert", "--from", "run", "--to", "run/config.toml/x"); got.code != cli.ExitUsage && got.code != cli.ExitFailed {
		t.Errorf("below a file: %+v", got)
	}
}

func TestConvertWarns(t *testing.T) {
	threeCheckpoints(t, "--set", "model.score_func=softmax", "--set", "model.norm_eps=1e-5")
	got := launch("convert", "--from", "run", "--to", "hf")
	if got.code != cli.ExitOK || strings.Count(got.errOut, "launcher: warning: ") != 2 ||
		!strings.Contains(got.errOut, "router scores by softmax") {
		t.Errorf("%+v", got)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "5GB": 5e9, "5GiB": 5 << 30, "1.5KB": 1500, "500MB": 5e8, "2TiB": 2 << 40, "7B": 7, "1e3MB": 1e9,
	} {
		if got, err := training.ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GB", "5G", "5gb", "-1", "NaN", "inf", "1e30", "5 GB", "5GBGB", "9223372036854775808"} {
		if got, err := training.ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// A check reads a model in shards as one in a single file, and weights in BF16 as what they are.
func TestCheckShards(t *testing.T) {
	dir := copied(t, goldenV3)
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "made")
	if got := launch("convert", "--from", goldenV3, "--to", made, "--shard-size", "200KB"); got.code != cli.ExitOK {
		t.Fatal(got.errOut)
	}
	for name, content := range files(t, made) {
		write(t, filepath.Join(dir, name), content)
	}
	comparisons := regexp.MustCompile(`RIGHT: \d+ comparisons`)
	want := comparisons.FindString(succeed(t, "check", goldenV3))
	if got := comparisons.FindString(succeed(t, "check", dir)); got != want || got == "" {
		t.Errorf("in shards %q, in one file %q", got, want)
	}
}

// A new run takes model and weights from a folder of another program.
func TestInitFrom(t *testing.T) {
	data := text(t)
	golden, err := filepath.Abs(goldenV3)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	line := func(more ...string) []string {
		return append(strings.Fields("train --steps 2 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --out run --log-format json --precision fp32 --set log_every=1 --data "+data), more...)
	}
	var first float64
	for _, np := range []string{"1", "2", "4"} {
		start := jsonEvents(t, succeed(t, line("-np", np, "--init-from", golden)...), "eval")[0]
		if loss := start.number("held_out_loss"); np == "1" {
			first = loss
		} else if !(math.Abs(loss-first) < 1e-6) {
			t.Errorf("np %s: the first loss is %v, on one rank %v", np, loss, first)
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
		if err := os.RemoveAll("run"); err != nil {
			t.Fatal(err)
		}
	}

	// The tokenizer comes along.
	succeed(t, line("--init-from", golden, "--out", "first")...)
	succeed(t, "convert", "--from", "first", "--to", "hf")
	for from, want := range map[string]string{"first": "tokenizer = 'bytes'", "hf": "/hf/tokenizer.json'"} {
		if out := succeed(t, line("--init-from", from, "--dry-run")...); !strings.Contains(out, want) {
			t.Errorf("from %s the configuration lacks %q:\n%s", from, want, out)
		}
	}
	a, b := succeed(t, line("--init-from", "first", "--out", "a")...), succeed(t, line("--init-from", "hf", "--out", "b")...)
	if x, y := jsonEvents(t, a, "eval")[0].number("held_out_loss"), jsonEvents(t, b, "eval")[0].number("held_out_loss"); !(math.Abs(x-y) < 1e-2) {
		t.Errorf("the first loss is %v, and %v from the same weights in BF16", x, y)
	}

	// Flags may say what is so, and set what no weights depend on.
	args := line("--init-from", golden, "--set", "model.layers=3", "--set", "model.bias_speed=0.01", "--dry-run")
	if out := succeed(t, args...); !strings.Contains(out, "bias_speed = 0.01") {
		t.Errorf("the output is\n%s", out)
	}
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--set", "model.layers=4"), golden, "have a different model", "model.layers is 3 there and 4 here")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--set", "model.yarn.factor=4", "--set", "model.yarn.original_positions=64"), "model.yarn.factor is 0 there and 4 here")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--flavor", "debug"), "model.dim is 64 there and 256 here")
	refuse(t, cli.ExitUsage, line("--init-from", "nowhere"), "init_from: ", "nowhere", "expected the folder of a run")
	refuse(t, cli.ExitUsage, line("--init-from", golden, "--seq", "129"), "seq is 129: give 1 to 128")
}

// A run that started from weights does not need them once it has a checkpoint: neither the same
// command again, nor --resume, nor a process that replaces a rank.
func TestInitFromGone(t *testing.T) {
	data := text(t)
	golden := copied(t, goldenV3)
	t.Chdir(t.TempDir())
	args := strings.Fields("train --steps 4 --seq 32 --batch 4 --save-every 2 --set eval_sequences=4 --set sample_tokens=4 --out run --log-format json --set log_every=1 -np 2 --init-from " + golden + " --data " + data)
	succeed(t, args...)
	want := files(t, "run")
	if err := os.RemoveAll(golden); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"the same command": args, "resume": strings.Fields("train --resume --out run -np 2 --log-format json")} {
		if err := os.RemoveAll("run/step-00000004"); err != nil {
			t.Fatal(err)
		}
		if start := jsonEvents(t, succeed(t, args...), "start")[0]; start["from_step"] != 2.0 {
			t.Errorf("%s starts with %v", name, start)
		}
		got := files(t, "run")
		for name, content := range want {
			if strings.Contains(name, "step-") && got[name] != content {
				t.Errorf("%s differs", name)
			}
		}
	}
	if err := os.RemoveAll("run"); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitUsage, args, "init_from: ", golden)
}

// A model in block-scaled FP8 trains as what it stands for.
func TestInitFromFP8(t *testing.T) {
	data := text(t)
	dir := copied(t, goldenV3)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "config.json"), strings.Replace(string(config), "{", `{"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]},`, 1))
	const name = "model.layers.0.mlp.down_proj.weight" // [64, 128], all of it 0.5 now
	edit(t, filepath.Join(dir, "model.safetensors"), func(all map[string]safetensors.Tensor) {
		all[name] = safetensors.Tensor{DType: safetensors.F8E4M3, Shape: []int{64, 128}, Data: []byte(strings.Repeat("\x38", 64*128))}
		all[name+"_scale_inv"] = safetensors.Tensor{DType: safetensors.F32, Shape: []int{1, 1}, Data: binary.LittleEndian.AppendUint32(nil, 0x3f000000)}
	})
	t.Chdir(t.TempDir())
	line := strings.Fields("train --steps 1 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 --log-format json -np 2 --data " + data)
	direct := succeed(t, append(line, "--init-from", dir, "--out", "a")...)
	succeed(t, "convert", "--from", dir, "--to", "plain", "--dtype", "fp32")
	file, err := safetensors.Open("plain/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	values, err := file.Float32s(name)
	if err != nil || values[0] != 0.5 || values[64*128-1] != 0.5 {
		t.Errorf("values %v (%v)", values[0], err)
	}
	converted := succeed(t, append(line, "--init-from", "plain", "--out", "b")...)
	if a, b := jsonEvents(t, direct, "eval")[0].number("held_out_loss"), jsonEvents(t, converted, "eval")[0].number("held_out_loss"); a != b {
		t.Errorf("the first loss is %v, of the converted model %v", a, b)
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
	for _, np := range []string{"1", "2"} {
		got := launch(strings.Fields("train --steps 4 --seq 32 --batch 4 --set eval_sequences=4 --set sample_tokens=4 -np " + np + " --init-from " + dir + " --data " + data)...)
		if got.code != cli.ExitFailed || !strings.Contains(got.errOut, name) || !strings.Contains(got.errOut, "element 100 is NaN") ||
			strings.Contains(got.out, "step:") {
			t.Errorf("np %s: exit code %d, errors %q, output\n%s", np, got.code, got.errOut, got.out)
		}
	}
}
