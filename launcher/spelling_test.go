package main

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/moe"
)

func TestNearest(t *testing.T) {
	candidates := []string{"steps", "seq", "seed", "save-every", "model.layers"}
	for word, want := range map[string]string{
		"stesp": "steps", "step": "steps", "see": "seed", "save-evry": "save-every", "models.layer": "model.layers", "xyz": "", "": "",
	} {
		if got := nearest(word, candidates); got != want {
			t.Errorf("nearest %q is %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("distance of %q and %q is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	for args, want := range map[string][]string{
		"trian":                   {`"trian"`, "did you mean train?", "checkpoint"},
		"hlep":                    {"did you mean help?"},
		"help trian":              {"did you mean train?"},
		"chat":                    {"did you mean generate?"},
		"Infer --np 2":            {"did you mean generate?"},
		"pretrain":                {"did you mean train?"},
		"gemm":                    {"did you mean bench kernels?"},
		"bench all-to-all":        {"did you mean exchange?"},
		"bench exchang":           {"did you mean exchange?"},
		"ablate":                  {"did you mean compare?"},
		"help chat":               {"did you mean generate?"},
		"help bench gemm":         {"did you mean kernels?"},
		"frobnicate":              {`"frobnicate"`, "commands: train"},
		"checkpoint verfy x":      {`"verfy"`, "ls, verify, export", "did you mean verify?"},
		"bench kernel":            {"did you mean kernels?"},
		"train --precision mxpf8": {"--precision", `"mxpf8"`, "bf16", "did you mean mxfp8?"},
		"bench train --precision bf16,mxfp8-expert":        {`"mxfp8-expert"`, "did you mean mxfp8-experts?"},
		"train --flavor 761B":                              {"671B"},
		"train --ep-exchange standart":                     {"did you mean standard?"},
		"train --mx.scale celi":                            {"did you mean ceil?"},
		"train --log-format=jsno":                          {"did you mean json?"},
		"--ranks proces train":                             {"did you mean process?"},
		"train --lr 1":                                     {"--lr", "did you mean --optimizer.lr (peak learning rate)?"},
		"--learning_rate 1 train":                          {"did you mean --optimizer.lr"},
		"train --warmup 5":                                 {"did you mean --optimizer.warmup"},
		"train --batch-size 8":                             {"did you mean --batch (sequences"},
		"train --device-batch-size 8":                      {"did you mean --micro-batch"},
		"train --seq-len 8":                                {"did you mean --seq "},
		"train --dtype bf16":                               {"did you mean --precision"},
		"train --top-k 2":                                  {"did you mean --model.top-k"},
		"train --nproc-per-node 4":                         {"did you mean --np"},
		"train --resume-from x":                            {"did you mean --resume "},
		"train --verbose":                                  {"did you mean --log-every"},
		"train --tensorboard":                              {"always written"},
		"train --wandb":                                    {"not supported", "metrics.jsonl"},
		"-v":                                               {"--version"},
		"-V train":                                         {"--version"},
		"generate --max-new-tokens 3":                      {"did you mean --max-tokens"},
		"inspect --hidden-size 3":                          {"did you mean --model.dim"},
		"train --precision fp8":                            {`"fp8"`, "did you mean fp8-block?"},
		"bench train --precision bf16,fp8":                 {"did you mean fp8-block?"},
		"train --recompute op":                             {"did you mean selective?"},
		strings.Repeat("x", 1000):                          {"unknown command"},
		"train --ep-exchange " + strings.Repeat("x", 1000): {"onesided"},
	} {
		refuse(t, exitUsage, strings.Fields(args), want...)
	}
	if got := named(t, "completion").choices(); len(got) != 3 {
		t.Errorf("%q", got)
	}
	if got := named(t, "inspect").choices(); got != nil {
		t.Errorf("words that stand for others are taken for actions: %q", got)
	}
}

func named(t *testing.T, name string) command {
	t.Helper()
	c, ok := find(commands(), name)
	if !ok {
		t.Fatal(name)
	}
	return c
}

// Synonyms stand for commands that exist, and are not commands themselves.
func TestSynonyms(t *testing.T) {
	names := map[string]bool{}
	for _, parent := range commands() {
		for _, c := range parent.family() {
			names[c.name] = true
		}
	}
	for word, name := range synonyms() {
		if !names[name] || names[word] {
			t.Errorf("%q stands for %q", word, name)
		}
	}
}

// Names of other tools stand for flags and values that exist, and are not flags themselves.
func TestFlagSynonyms(t *testing.T) {
	var all []*flag.FlagSet
	for _, parent := range commands() {
		for _, c := range parent.family() {
			fs, _ := c.flags()
			all = append(all, fs)
		}
	}
	exists := func(ok func(*flag.FlagSet) bool) bool { return slices.ContainsFunc(all, ok) }
	for word, targets := range flagSynonyms() {
		for _, target := range targets {
			if !exists(func(fs *flag.FlagSet) bool { return fs.Lookup(target) != nil && fs.Lookup(word) == nil }) {
				t.Errorf("--%s stands for --%s", word, target)
			}
		}
	}
	train, _ := named(t, "train").flags()
	for word := range flagAdvice() {
		if train.Lookup(word) != nil || flagSynonyms()[word] != nil {
			t.Errorf("--%s is a flag, or stands for one", word)
		}
	}
	for name, command := range map[string]string{"precision": "train", "dtype": "convert", "optimizer.name": "train", "optimizer.decay": "train", "recompute": "train", "ranks": "train"} {
		for word, value := range valueSynonyms(name) {
			if !slices.Contains(flagChoices(command, name), value) {
				t.Errorf("--%s %s stands for %q, which it does not take", name, word, value)
			}
		}
	}
}

// Keys of other trainers' configuration files lead to this program's.
func TestKeySynonyms(t *testing.T) {
	for text, want := range map[string]string{
		"learning_rate = 1":                     "did you mean lr in [optimizer] (peak learning rate)?",
		"steps = 3\n[optimizer]\nmax_norm = 1":  "did you mean clip_norm in [optimizer]",
		"[model]\nnum_hidden_layers = 4":        "did you mean layers in [model]",
		"[optimizer]\nlr = 1\nweight_decey = 1": "did you mean weight_decay in [optimizer]?",
		"per_device_train_batch_size = 4":       "did you mean micro_batch (",
		"precision = \"fp8\"":                   `precision is "fp8": use one of ` + strings.Join(moe.PrecisionNames(), ", ") + ` (did you mean fp8-block?)`,
		"[optimizer]\ndecay = \"cos\"":          `optimizer.decay is "cos"`,
		"[training]\nsteps = 4":                 "[model.yarn]",
		"wandb = true":                          "metrics.jsonl",
	} {
		file := write(t, filepath.Join(t.TempDir(), "c.toml"), text)
		refuse(t, exitUsage, []string{"train", "--config", file}, "c.toml", want)
	}
}

// --version is the version command.
func TestVersionFlag(t *testing.T) {
	if got, want := succeed(t, "--version"), succeed(t, "version"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
