package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// canary is a secret that a run has in its environment.
const canary = "canary-3f9a61c07b52"

// refusals are command lines with a mistake, and a word of the message. Values are tested where
// they are checked: here stands what the command line itself decides. The working directory has
// rows.jsonl, the folder empty, a run in runs/run, and files with mistakes.
var refusals = [][2]string{
	{"-np 2", "use one of train"},
	{"trian", "did you mean train?"},
	{"chat", "did you mean generate?"},
	{"data tokenise x", "did you mean tokenize?"},
	{"data", "needs a subcommand"},
	{"version 2", "no arguments"},
	{"train 100", `"100"`},
	{"train --frobnicate", "unknown flag --frobnicate"},
	{"train --" + strings.Repeat("9", 100_000), "unknown flag"},
	{"train --stesp 3", "did you mean --steps ("},
	{"--learning_rate 1 train", "did you mean --optimizer.lr"},
	{"train --model.layer 3", "did you mean --set model.layers ("},
	{"train --gpus 2", "computes on CPUs"},
	{"train --keep", "needs a value"},
	{"train --ep standard", "whole number"},
	{"train --timeout 5", "a time"},
	{"train --resume=maybe", "true or false"},
	{"train --color always", "no colors"},
	{"train --save-every often", "a number of steps"},
	{"train --set model.layers", "KEY=VALUE"},
	{"train --set model.layer=3", "did you mean model.layers ("},
	{"train --set model.layers=x", "whole number"},
	{"inspect --set out=x", "unknown key"},
	{"train --data rows.jsonl --trace steps=5..7", "--profile"},

	{"checkpoint ls run", "inspect RUN"},
	{"-np 2 run runs/my.toml", "docs/recipes"},
	{"bench link", "bench exchange"},
	{"train --set pp_layout=E", "cost the same"},
	{"train --set ema=0.9", "leave it out"},
	{"generate --fast", "leave it out"},
	{"compare --until-decided", "--seeds"},

	{"-np 0 train", "1 or more"},
	{"-np 1000 train", "at most 256"},
	{"inspect debug -np 5000", "at most 4096"},
	{"-np 3 train", "16 experts"},
	{"-np 4 train --batch 6", "multiple"},
	{"train --ranks process --spares -1", "--spares is -1"},
	{"train --ranks process --spares 1 --restarts 0", "--restarts 0"},
	{"train --restarts 9", "--ranks process"},
	{"train --silence 0", "--silence"},
	{"train --flavor 17B", "671B"},
	{"train --batch 16777216 --data rows.jsonl", "memory"},
	{"train --steps 0 --set keep=-1", "keep is -1"},
	{"train --out \xff --data \xfe", "UTF-8"},

	{"train --config key.toml", "key.toml:2"},
	{"train --config type.toml", "type.toml:2:"},
	{"train --config bad.toml", "bad.toml:2:"},
	{"train --config old.toml", "old.toml:2: fp8.accumulate is gone"},
	{"train --config none.toml", "no such file"},
	{"train --config model.json", "--init-from"},
	{"train --config good.toml --resume", "leave --config out"},

	{"train --data none", "no such file"},
	{"train --data key.toml", "more data"},
	{"train --resume --out empty", "nothing to resume"},
	{"train --data runs/run", "--init-from"},
	{"train --dry-run --data .@1 empty@2", "lies in the data"},
	{"train --out rows.jsonl", "rows.jsonl"},
	{"train --init-from nowhere --out x", "nowhere"},
	{"data tokenize rows.jsonl", "--out FILE"},
	{"data train-tokenizer rows.jsonl --out rows.jsonl", "exists already"},
	{"data train-tokenizer rows.jsonl --out x --vocab 256", "257"},

	{"generate", "--prompt TEXT"},
	{"generate --prompt x --max-tokens 0", "new tokens"},
	{"generate --prompt x -np 3", "4 experts"},
	{"generate --prompt x --checkpoint none", "none"},
	{"generate --prompt x --tokenizer tiktoken:gpt2", "50257 ids"},
	{"eval --seq 5000", "4096"},
	{"eval --max-tokens 20 --seq 32", "window of 32"},
	{"convert --from runs/run", "--to FOLDER"},
	{"convert --from runs/run --to x --shard-size 5G", "one file"},
	{"convert --from runs/run --to empty", "empty exists"},
	{"inspect none --html", "none"},
	{"inspect debug --layouts --schedule", "one of them"},
	{"inspect runs/run --verify --seq 7", "--seq has no meaning"},
	{"inspect --verify empty", "no complete checkpoint"},
	{"inspect debug 16B", "one flavor or folder"},
	{"inspect empty", "config.json"},
	{"inspect small --schedule", "--pp 4"},
	{"-np 8 inspect --layouts --hosts 3", "8 ranks"},
	{"-np 8 inspect --layouts --set dp_replicate=3", "does not divide"},
	{"inspect --recipe bf16", "docs/recipes"},

	{"check", "training step"},
	{"check empty --write x empty", "one folder"},
	{"compare --precision mxfp8", "at least one other"},
	{"compare --jobs 0 --data rows.jsonl", "--jobs is 0"},
	{"compare --out empty/.. --data rows.jsonl", "holds no comparison"},
	{"bench kernels --match (", "missing closing"},
	{"bench train --precision bf16,fp9", "fp9"},
	{"project --gpu tpu", "B200"},
	{"project --hardware model.json", "bf16_tflops"},
	{"project --model none.json", "no such file"},
	{"-np 4 verify-layouts --tp 3", "--tp is"},
	{"verify-layouts --np 2 --batch 8 --seq 48 --precision mxfp8", "blocks"},
}

// refusalMemory is what refusing may allocate, all together, in bytes: twice what the worst case
// takes, because the race detector makes some objects larger.
const refusalMemory = 48 << 20

// allocated is how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Refused command lines end with code 2, a message that helps and no trace on the disk, in little
// memory.
func TestRefusals(t *testing.T) {
	trainedRun(t, "--steps", "1")
	for name, content := range map[string]string{
		"rows.jsonl": strings.Repeat(`{"text":"a row of a set"}`+"\n", 1000),
		"model.json": "{\n  \"model_type\": \"deepseek_v3\"\n}",
		"old.toml":   "[fp8]\naccumulate = '14bit'\n",
		"key.toml":   "seq = 8\nsetps = 4\n",
		"good.toml":  "seq = 8\n",
		"type.toml":  "seq = 8\nsteps = \"ten\"\n",
		"bad.toml":   "seq = 8\nsteps = = 3\n",
	} {
		write(t, name, content)
	}
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	before := files(t, ".")
	for _, c := range refusals {
		t.Run(fmt.Sprintf("%.60s", c[0]), func(t *testing.T) {
			if n := allocated(func() { refuse(t, cli.ExitUsage, strings.Split(c[0], " "), c[1]) }); n > refusalMemory {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
	same(t, files(t, "."), before)
	if got := launch("train", "--token="+canary); strings.Contains(got.errOut, canary) {
		t.Errorf("the value of an unknown flag is printed: %s", got.errOut)
	}
}

// A checkpoint that cannot be resumed as asked ends with code 2, and the run stays as it was.
func TestResumeErrors(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--steps", "2", "--out", "run")...)
	const step, shard = "step-00000002", "rank-00000-of-00001.safetensors"
	again := []string{"train", "--resume", "--out", "run", "--steps", "3"}
	before := files(t, ".")
	for want, args := range map[string][]string{
		"another --out":                   tiny(data, "--out", "run"),
		"--steps 2":                       append(again, "--steps", "1"),
		"seed is 1 in run/" + step:        append(again, "--seed", "9"),
		"--allow-changes is for --resume": tiny(data, "--out", "new", "--allow-changes"),
	} {
		refuse(t, cli.ExitUsage, args, want)
	}
	same(t, files(t, "."), before)
	// Nothing is deleted when all that there is turns out to be damaged.
	breakShard(t, filepath.Join("run", step, shard))
	damaged := files(t, "run/"+step)
	refuse(t, cli.ExitUsage, again, "nothing to resume", step+".bad")
	same(t, files(t, "run/"+step+".bad"), damaged)
	if err := os.Rename("run/"+step+".bad", "run/"+step); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join("run", step, shard), before["run/"+step+"/"+shard])
	succeed(t, again...)
}

// tbyte is a size that no reader may believe.
const tbyte = 1 << 40

// Files that were made to do harm are refused in little memory and without waiting for anyone. What
// their contents may be is tested where they are parsed.
func TestBombs(t *testing.T) {
	data := text(t)
	golden := map[string][]string{"config.json": {"model.safetensors"}, "model.safetensors": {"config.json"}, "model.safetensors.index.json": {"config.json"}}
	for name, line := range map[string][]string{
		"c.toml":                       {"train", "--dry-run", "--out", "none", "--config", "FILE"},
		"plan.toml":                    {"compare", "--quick", "--out", "DIR"},
		"data.txt":                     {"train", "--data", "FILE", "--out", "DIR/run"},
		"config.json":                  {"generate", "--checkpoint", "DIR", "--prompt", "x"},
		"model.safetensors":            {"generate", "--checkpoint", "DIR", "--prompt", "x"},
		"model.safetensors.index.json": {"generate", "--checkpoint", "DIR", "--prompt", "x"},
		"gpu.json":                     {"project", "--hardware", "FILE"},
		"routes.arrow":                 tiny(data, "--set", "replay_routes=FILE", "--out", "DIR/run"),
		"tokenizer.json":               tiny(data, "--tokenizer", "FILE", "--out", "DIR/run"),
		"recipe.toml":                  tiny(data, "--set", "recipe=FILE", "--out", "DIR/run"),
	} {
		for kind, make := range map[string]func(path string) error{
			"1 TB": func(path string) error {
				return errors.Join(os.WriteFile(path, []byte("{"), 0o666), os.Truncate(path, tbyte))
			},
			"pipe":   makePipe,
			"device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"loop":   func(path string) error { return os.Symlink(path, path) },
		} {
			if kind == "1 TB" && name == "tokenizer.json" {
				continue // it is read up to a size that is more than others may allocate
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, name)
				for _, other := range golden[name] { // the other files of the folder are good
					content, err := os.ReadFile(filepath.Join(goldenV3, other))
					if err != nil {
						t.Fatal(err)
					}
					write(t, filepath.Join(dir, other), string(content))
				}
				if err := make(path); err != nil {
					t.Fatal(err)
				}
				var args []string
				for _, word := range line {
					args = append(args, strings.NewReplacer("FILE", path, "DIR", dir).Replace(word))
				}
				var got outcome
				if n := allocated(func() { got = soon(t, args...) }); n > refusalMemory {
					t.Errorf("%d bytes were allocated", n)
				}
				if got.code != cli.ExitUsage || len(got.errOut) > 4000 {
					t.Errorf("exit code %d: %.400s", got.code, got.errOut)
				}
			})
		}
	}
}
