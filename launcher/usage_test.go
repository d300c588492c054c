package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Every mistake of the user ends with code 2, a message that helps, and no trace on the disk.
func TestUsageErrors(t *testing.T) {
	data, other := text(t), t.TempDir()
	config := func(name, content string) string { return write(t, filepath.Join(other, name), content) }
	loop, pipe, empty := filepath.Join(other, "loop"), filepath.Join(other, "pipe"), filepath.Join(other, "empty")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args string
		want []string
	}{
		"ranks do not divide experts": {"-np 3 train --batch 3", []string{"-np 3", "16 experts", "use -np 1, or -np 2, 4, 8 or 16 with a --batch"}},
		"neither experts nor batch":   {"-np 3 train", []string{"-np 3", "neither 16 experts nor a batch of 16", "use -np 1, 2, 4, 8 or 16"}},
		"no ranks":                    {"-np 0 train", []string{"-np is 0", "1 or more"}},
		"negative ranks":              {"train -n -2", []string{"-np is -2", "1 or more"}},
		"ranks no number":             {"-np many train", []string{`"many"`, "-np", "whole number"}},
		"unknown flavor":              {"train --flavor 17B", []string{`"17B"`, "debug, small, 500M, 3B, 16B, 236B, 671B"}},
		"flavor too large":            {"train --flavor 671B", []string{"671B", "TiB", "is available", "--dry-run"}},
		"no command":                  {"-np 2", []string{"-np 2", "train", "check", "help"}},
		"unknown command":             {"trian", []string{`"trian"`, "train, compare, check"}},
		"run":                         {"-np 2 run runs/my.toml", []string{"docs/recipes/five-minutes-2-cores.sh", "settings of your run file"}},
		"run of a recipe":             {"run docs/recipes/night-2-cores.toml", []string{"docs/recipes/night-2-cores.sh does the same"}},
		"help of unknown command":     {"help trian", []string{`"trian"`, "train, compare, check"}},
		"unknown flag":                {"train --stesp 3", []string{"--stesp", "did you mean --steps?", "launcher help train"}},
		"unknown flag, nothing near":  {"train --frobnicate", []string{"unknown flag --frobnicate", "launcher help train"}},
		"unknown flag before command": {"--stesp 3 train", []string{"--stesp", "did you mean --steps?", "launcher help"}},
		"unknown flag of the model":   {"train --model.layer 3", []string{"did you mean --model.layers?"}},
		"missing value":               {"train --steps", []string{"--steps needs a value"}},
		"exchange as ep":              {"train --ep standard", []string{`"standard"`, "--ep: it must be a whole number; --ep-exchange selects"}},
		"bad whole number":            {"train --steps 3.5", []string{`"3.5"`, "steps", "whole number"}},
		"number too large":            {"train --steps 99999999999999999999", []string{"steps", "whole number"}},
		"negative seed":               {"train --seed -1", []string{`"-1"`, "seed", "0 or more"}},
		"bad number":                  {"train --optimizer.lr fast", []string{`"fast"`, "optimizer.lr", "a number"}},
		"bad truth value":             {"train --model.norm-top-k=maybe", []string{`"maybe"`, "model.norm-top-k", "true or false"}},
		"bad count":                   {"compare --seeds x", []string{`"x"`, "seeds", "a whole number"}},
		"bad margin":                  {"compare --margin x", []string{`"x"`, "margin", "a number"}},
		"bad time":                    {"train --timeout 5", []string{`"5"`, "timeout", "800ms"}},
		"bad switch":                  {"train --resume=maybe", []string{`"maybe"`, "resume", "true or false"}},
		"empty switch":                {"train --resume=", []string{"resume", "true or false"}},
		"stray argument":              {"train 100", []string{`"100"`, "--help lists the flags"}},
		"log format":                  {"train --log-format xml", []string{`"xml"`, "text or json"}},
		"batch not divisible":         {"-np 4 train --batch 6", []string{"batch is 6", "multiple of the 4 ranks", "8"}},
		"batch beyond any machine":    {"train --batch 16777216 --data " + data, []string{"memory", "is available"}},
		"sequence beyond the model":   {"train --seq 5000", []string{"seq is 5000", "1 to 4096", "model.max_positions"}},
		"precision":                   {"train --precision fp8", []string{`"fp8"`, "bf16", "fp32"}},
		"decay":                       {"train --optimizer.decay exp", []string{`"exp"`, "cosine, linear, sqrt"}},
		"seed beyond TOML":            {"train --seed 18446744073709551615", []string{"TOML", "18446744073709551615"}},
		"prompt beyond TOML":          {"train --sample-prompt \xff", []string{`"\xff"`, "not UTF-8"}},
		"several at once":             {"train --steps 0 --keep 0 --log-every 0", []string{"steps is 0", "keep is 0", "log_every is 0"}},

		"unknown key":      {"train --config " + config("key.toml", "seq = 8\nsetps = 4\n"), []string{"key.toml:2", `"setps"`, "--dry-run"}},
		"unknown deep key": {"train --config " + config("deep.toml", "[model]\nlayer = 4\n"), []string{"deep.toml:2", `"model.layer"`}},
		"wrong type":       {"train --config " + config("type.toml", "seq = 8\nsteps = \"ten\"\n"), []string{"type.toml:2:", "steps", "string", "whole number"}},
		"wrong deep type":  {"train --config " + config("half.toml", "[model]\nlayers = 1.5\n"), []string{"half.toml:2:", "model.layers", "float", "whole number"}},
		"not TOML":         {"train --config " + config("bad.toml", "seq = 8\nsteps = = 3\n"), []string{"bad.toml:2:", "="}},
		"flavor in config": {"train --config " + config("flavor.toml", "flavor = \"huge\"\n"), []string{`"huge"`, "debug, small"}},
		"no config":        {"train --config " + filepath.Join(other, "none.toml"), []string{"--config", "none.toml", "no such file", "--dry-run"}},

		"no data":            {"train --data " + filepath.Join(other, "none"), []string{"none", "no such file", "expected a file of text, JSONL, Parquet or Arrow, or a folder"}},
		"no data, later":     {"train --data " + data + " " + filepath.Join(other, "none"), []string{"none", "no such file"}},
		"empty data folder":  {"train --data " + empty, []string{"empty", "no files"}},
		"empty data file":    {"train --data " + config("empty.txt", ""), []string{"empty.txt", "is empty"}},
		"unreadable data":    {"train --data " + loop, []string{"loop", "expected a file of text"}},
		"data from a pipe":   {"train --data " + pipe, []string{"pipe", "expected a file of text"}},
		"binary data":        {"train --data " + config("binary", "a\x00b"), []string{"binary", "NUL"}},
		"data too short":     {"train --data " + config("short.txt", strings.Repeat("word ", 200)), []string{"validation data", "128", "more data"}},
		"data far too short": {"train --data " + config("tiny.txt", "a few words"), []string{"training data", "129 tokens", "more data"}},

		"nothing to resume":      {"train --resume", []string{"no run with a checkpoint", "--out"}},
		"nothing to report":      {"report", []string{"no run with a checkpoint", "launcher report RUN"}},
		"nothing to generate":    {"generate --prompt x", []string{"no run with a checkpoint", "--checkpoint"}},
		"nothing in that folder": {"train --resume --out " + data, []string{"nothing to resume", data}},
		"no such run":            {"train --resume --out " + filepath.Join(other, "none"), []string{"nothing to resume", "none"}},
		"resume with config":     {"train --resume --config " + config("good.toml", "seq = 8\n"), []string{"--resume", "leave --config out"}},
		"out in the data":        {"train --data " + data + " --out " + filepath.Join(data, "run"), []string{"run", "lies in the data", "give --out a folder elsewhere"}},
		"runs/ in the data":      {"train --dry-run --data .@1 " + data + "@2", []string{"runs/debug-1 lies in the data, /", "*.txt"}},
		"out is a file":          {"train --data " + data + " --out " + config("file", "x"), []string{"file"}},

		"check without folder": {"check", []string{"golden folder", "model.safetensors"}},

		"checkpoint without verb":      {"checkpoint", []string{"ls, verify, export"}},
		"checkpoint with another verb": {"checkpoint rm x", []string{"ls, verify, export", `"rm"`}},
		"checkpoint of nothing":        {"checkpoint verify", []string{"verify needs the folder"}},
		"checkpoint not there":         {"checkpoint ls " + filepath.Join(other, "none"), []string{"none", "no such file"}},
		"verify not there":             {"checkpoint verify " + filepath.Join(other, "none"), []string{"none", "no such file"}},
		"verify what is none":          {"checkpoint verify " + empty, []string{"empty", "no complete checkpoint"}},
		"export what is none":          {"checkpoint export " + empty + " --out x", []string{"empty", "no complete checkpoint"}},
		"export to nowhere":            {"checkpoint export " + empty, []string{"needs --out FILE"}},
		"export two":                   {"checkpoint export a b --out x", []string{"one checkpoint"}},
		"export as another type":       {"checkpoint export " + empty + " --out x --dtype fp8", []string{`"fp8"`, "bf16 or fp32"}},
		"ls with a file":               {"checkpoint ls " + empty + " --out x", []string{"ls has no flag --out: it is a flag of checkpoint export"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refuse(t, exitUsage, strings.Fields(c.args), c.want...)
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
		refuse(t, exitUsage, strings.Fields(args), "torchrun", "WORLD_SIZE=4", "launcher -np 4", "mpirun or srun")
	}
	succeed(t, "version")
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
		"run there already":     {nil, tiny(data, "--out", "run"), []string{"run holds " + step, "--resume", "another --out"}},
		"end is past":           {nil, append(again, "--steps", "1"), []string{"at step 2", "--steps 2"}},
		"other sequence length": {nil, append(again, "--seq", "16"), []string{"seq is 32 in run/" + step, "not 16", "cannot change"}},
		"other seed":            {nil, append(again, "--seed", "9"), []string{"seed is 1 in run/" + step, "not 9", "cannot change", "leave --seed out"}},
		"other data":            {nil, append(again, "--data", write(t, filepath.Join(t.TempDir(), "x"), strings.Repeat("other ", 2000))), []string{"does not fit", "other data"}},
		"other flavor":          {nil, append(again, "--flavor", "16B"), []string{"flavor is debug", "not 16B", "cannot change"}},
		"other model":           {nil, append(again, "--model.layers", "3"), []string{"model.layers is 2", "not 3", "cannot change"}},
		"other first weights":   {nil, append(again, "--init-from", "x"), []string{"init_from is", "/x: a resumed", "cannot change", "leave --init-from out"}},
		"other precision":       {nil, append(again, "--precision", "mxfp8"), []string{"run/" + step, "precision: bf16 -> mxfp8", "--allow-changes"}},
		"several":               {nil, append(again, "--optimizer.lr", "0.5", "--batch", "8", "--keep", "9"), []string{"\n  batch: 4 -> 8\n  optimizer.lr: 0.003 -> 0.5\n", "--allow-changes"}},
		"changes of a new run":  {nil, tiny(data, "--out", "new", "--allow-changes"), []string{"--allow-changes is for --resume"}},
		"too many ranks":        {nil, append(again, "-np", "3", "--batch", "6"), []string{"-np 3", "-np 1 or 2, or -np 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.damage != nil {
				c.damage()
			}
			before := files(t, ".")
			refuse(t, exitUsage, c.args, c.want...)
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
	refuse(t, exitUsage, again, "nothing to resume", step, shard, "is damaged", "set aside as "+step+".bad")
	same(t, files(t, "run/"+step+".bad"), before)
	if err := os.Rename("run/"+step+".bad", "run/"+step); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join("run", step, shard), whole[step+"/"+shard])
	succeed(t, again...)
}
