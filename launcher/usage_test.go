package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
)

// Every mistake of the user ends with code 2, a message that helps, and no trace on the disk.
func TestUsageErrors(t *testing.T) {
	data, other := text(t), t.TempDir()
	config := func(name, content string) string { return write(t, filepath.Join(other, name), content) }
	pipe, empty := filepath.Join(other, "pipe"), filepath.Join(other, "empty")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(empty, 0o777), os.Mkdir(filepath.Join(other, "run"), 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want []string
	}{
		{"-np 3 train", []string{"-np 3", "16 experts", "use -np 1, 2, 4, 8 or 16"}},
		{"-np 0 train", []string{"-np is 0", "1 or more"}},
		{"train --flavor 17B", []string{`"17B"`, "debug, small, 500M, 3B, 16B, 30B-A3B, 236B, 671B"}},
		{"train --flavor 671B", []string{"671B", "TiB", "is available", "--dry-run"}},
		{"-np 2", []string{"-np 2", "train", "check", "help"}},
		{"trian", []string{`"trian"`, "did you mean train?", "train, generate, eval"}},
		{"-np 2 run runs/my.toml", []string{"scripts in docs/recipes", "train --config"}},
		{"train --stesp 3", []string{"--stesp", "did you mean --steps (number of optimizer steps of the run)?", "launcher help train"}},
		{"train --frobnicate", []string{"unknown flag --frobnicate", "launcher help train"}},
		{"train --ep standard", []string{`"standard"`, "--ep: it must be a whole number"}},
		{"train --seed -1", []string{`"-1"`, "seed", "0 or more"}},
		{"train --set model.norm_top_k=maybe", []string{`"maybe"`, "model.norm_top_k", "true or false"}},
		{"train --timeout 5", []string{`"5"`, "timeout", "800ms"}},
		{"train --resume=maybe", []string{`"maybe"`, "resume", "true or false"}},
		{"train 100", []string{`"100"`, "--help lists the flags"}},
		{"-np 4 train --batch 6", []string{"batch is 6", "multiple of the 4 ranks", "8"}},
		{"train --batch 16777216 --data " + data, []string{"memory", "is available"}},
		{"train --steps 0 --set keep=-1 --set log_every=0", []string{"steps is 0", "keep is -1", "log_every is 0"}},

		{"train --config " + config("key.toml", "seq = 8\nsetps = 4\n"), []string{"key.toml:2", `"setps"`, "--dry-run"}},
		{"train --config " + config("type.toml", "seq = 8\nsteps = \"ten\"\n"), []string{"type.toml:2:", "steps", "string", "whole number"}},
		{"train --config " + config("bad.toml", "seq = 8\nsteps = = 3\n"), []string{"bad.toml:2:", "="}},
		{"train --config " + filepath.Join(other, "none.toml"), []string{"--config", "none.toml", "no such file", "--dry-run"}},

		{"train --data " + filepath.Join(other, "none"), []string{"none", "no such file", "expected a file of text, JSON Lines, CSV or Parquet, or a folder"}},
		{"inspect " + pipe, []string{"pipe", "not a directory"}},
		{"convert --from " + pipe + " --to " + empty + "/new", []string{"pipe is not a folder"}},
		{"train --data " + config("short.txt", strings.Repeat("word ", 200)), []string{"validation data", "128", "more data"}},
		{"train --data " + config("tiny.txt", "a few words"), []string{"training data", "129 tokens", "more data"}},

		{"train --resume", []string{"no run with a checkpoint", "--out"}},
		{"inspect --html", []string{"no run with a checkpoint", "launcher inspect RUN --html"}},
		{"generate --prompt x", []string{"no run with a checkpoint", "--checkpoint"}},
		{"train --resume --out " + data, []string{"nothing to resume", data}},
		{"train --resume --config " + config("good.toml", "seq = 8\n"), []string{"--resume", "leave --config out"}},
		{"train --data " + data + " --out " + filepath.Join(data, "run"), []string{"run", "lies in the data", "give --out a folder elsewhere"}},
		{"train --dry-run --data .@1 " + data + "@2", []string{"runs/debug-1 lies in the data, /", "*.txt"}},
		{"train --data " + data + " --out " + config("file", "x"), []string{"file"}},
		{"train --data " + filepath.Dir(config("run/metrics.jsonl", "{}")), []string{"run is the folder of a run, not text", "--init-from"}},

		{"check", []string{"a folder with one training step", "model.safetensors"}},

		{"inspect --verify", []string{"--verify needs the folder"}},
		{"inspect --verify " + filepath.Join(other, "none"), []string{"none", "no such file"}},
		{"inspect --verify " + empty, []string{"empty", "no complete checkpoint"}},

		// Suggestions for misspelled words.
		{"hlep", []string{`unknown command "hlep": use one of train, `, "did you mean help?"}},
		{"chat", []string{"did you mean generate?"}},
		{"data tokenise x", []string{`data: unknown subcommand "tokenise"`, "tokenize or train-tokenizer", "did you mean tokenize?"}},
		{"train --precision mxpf8", []string{`precision is "mxpf8": use one of fp32, bf16`, "did you mean mxfp8?"}},
		{"bench train --precision bf16,mxfp8-expert", []string{`"mxfp8-expert"`, "did you mean mxfp8-experts?"}},
		{"train --flavor 16b", []string{"did you mean 16B?"}},
		{"-np 2 train --pp 2 --set pp_schedule=zbv", []string{"did you mean ZBVZeroBubble?"}},
		{"train --tokenizer gpt2", []string{"did you mean tiktoken:gpt2?"}},
		{"train --lr 1", []string{"--lr", "did you mean --optimizer.lr (peak learning rate)?"}},
		{"--learning_rate 1 train", []string{"did you mean --optimizer.lr"}},
		{"train --gpus 2", []string{"there is no flag --gpus: spmoe computes on CPUs"}},
		{"train --config " + config("other0.toml", "learning_rate = 1"), []string{"other0.toml", "did you mean optimizer.lr (peak learning rate)?"}},
		{"train --config " + config("other4.toml", "[training]\nsteps = 4"), []string{"other4.toml", "[model.yarn]"}},
	} {
		t.Run(c.args[:min(len(c.args), 60)], func(t *testing.T) {
			t.Chdir(t.TempDir())
			refuse(t, cli.ExitUsage, strings.Fields(c.args), c.want...)
			same(t, files(t, "."), nil)
		})
	}
}

// Processes that torchrun starts do not train side by side.
func TestTorchrun(t *testing.T) {
	for name, value := range map[string]string{"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"} {
		t.Setenv(name, value)
	}
	t.Chdir(t.TempDir())
	for _, args := range []string{"train --data " + text(t), "train --ranks process", "compare", "bench exchange"} {
		refuse(t, cli.ExitUsage, strings.Fields(args), "torchrun", "WORLD_SIZE=4", "launcher -np 4", "mpirun or srun")
	}
	succeed(t, "--version")
	t.Setenv("WORLD_SIZE", "1")
	succeed(t, "train", "--dry-run")
}

// A checkpoint that cannot be resumed as asked ends with code 2, and the run stays as it was.
func TestResumeErrors(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--steps", "2", "--out", "run")...)
	whole := files(t, "run")
	const step = "step-00000002"
	flip := func(name string) func() {
		return func() {
			b := []byte(whole[step+"/"+name])
			b[len(b)/2] ^= 4
			write(t, filepath.Join("run", step, name), string(b))
		}
	}
	again := []string{"train", "--resume", "--out", "run", "--steps", "3"}
	for name, c := range map[string]struct {
		damage func()
		args   []string
		want   []string
	}{
		"run there already":    {nil, tiny(data, "--out", "run"), []string{"run holds " + step, "--resume", "another --out"}},
		"end is past":          {nil, append(again, "--steps", "1"), []string{"at step 2", "--steps 2"}},
		"other seed":           {nil, append(again, "--seed", "9"), []string{"seed is 1 in run/" + step, "not 9", "cannot change", "leave seed out"}},
		"other data":           {nil, append(again, "--data", write(t, filepath.Join(t.TempDir(), "x"), strings.Repeat("other ", 2000))), []string{"does not fit", "other data"}},
		"other first weights":  {nil, append(again, "--init-from", "x"), []string{"init_from is", "/x: a resumed", "cannot change", "leave init_from out"}},
		"other precision":      {nil, append(again, "--precision", "mxfp8"), []string{"run/" + step, "precision: bf16 -> mxfp8", "--allow-changes"}},
		"several":              {nil, append(again, "--optimizer.lr", "0.5", "--batch", "8", "--set", "keep=9"), []string{"\n  batch: 4 -> 8\n  optimizer.lr: 0.003 -> 0.5\n", "--allow-changes"}},
		"changes of a new run": {nil, tiny(data, "--out", "new", "--allow-changes"), []string{"--allow-changes is for --resume"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.damage != nil {
				c.damage()
			}
			before := files(t, ".")
			refuse(t, cli.ExitUsage, c.args, c.want...)
			same(t, files(t, "."), before)
			for file, content := range whole {
				if !strings.HasSuffix(file, "/") {
					write(t, filepath.Join("run", file), content)
				}
			}
		})
	}
	// Nothing is deleted when all that there is turns out to be damaged.
	const shard = "rank-00000-of-00001.safetensors"
	flip(shard)()
	before := files(t, "run/"+step)
	refuse(t, cli.ExitUsage, again, "nothing to resume", step, shard, "is damaged", "set aside as "+step+".bad")
	same(t, files(t, "run/"+step+".bad"), before)
	if err := os.Rename("run/"+step+".bad", "run/"+step); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join("run", step, shard), whole[step+"/"+shard])
	succeed(t, again...)
}
