package cli

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// Words of other tools stand for words of this program, and are none themselves. Others stand for
// those that are spelled nearly so.
func TestNearest(t *testing.T) {
	own := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(own, TrainDefaults)
	words := append(FlagNames(own), strings.Fields("generate eval convert check optimizer.lr np max-tokens")...)
	for word, meant := range synonyms {
		if !slices.Contains(words, meant) || slices.Contains(words, word) || flagAdvice[word] != "" {
			t.Errorf("%q stands for %q", word, meant)
		}
	}
	candidates := []string{"steps", "seq", "seed", "save-every", "model.layers"}
	for word, want := range map[string]string{
		"stesp": "steps", "step": "steps", "see": "seed", "save-evry": "save-every", "models.layer": "model.layers", "Max-Steps": "steps", "xyz": "", "": "",
	} {
		if got := nearest(word, candidates); got != want {
			t.Errorf("nearest %q is %q, want %q", word, got, want)
		}
	}
}

// The lines of keys that are gone are blanked where they change no bit, and said to be gone if they
// did something. Others are errors that say what to do.
func TestGoneKeys(t *testing.T) {
	cfg, err := TrainDefaults("debug", 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := config.TOML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for old, want := range map[string]string{
		"pp_layout = ''\neval_tasks = []\n":           "",
		"ema = 0.0\n":                                 "",
		"ema = 0.99\n":                                "ema is gone: runs keep no average of their weights any more: leave it out, which changes no other bit",
		"pp_layout = 'Et|tL'\n":                       "pp_layout is gone: all stages of a pipeline cost the same, which changes no bit",
		"eval_tasks = ['/a.jsonl', \"/b.jsonl\"]\n":   "eval_tasks is gone: lm-evaluation-harness asks the model that launcher convert exports (docs/commands.md)",
		"pp_layout = ''\n" + strings.Repeat("\n", 99): "",
	} {
		text := append([]byte(old), whole...)
		kept, notes := WithoutGoneKeys(text)
		if got := strings.Join(notes, ""); got != want || strings.Count(string(kept), "\n") != strings.Count(string(text), "\n") {
			t.Errorf("%q: %q, want %q", old, got, want)
		}
		if got, err := Resolve(TrainDefaults, "c.toml", text, nil); err != nil || got.Steps != cfg.Steps {
			t.Errorf("%q: %v", old, err)
		}
	}
	for old, want := range map[string]string{
		"eval_tasks = [\n'a.jsonl',\n]\n":         "c.toml:1: eval_tasks is gone: lm-evaluation-harness",
		"[fp8]\naccumulate = '14bit'\n":           "c.toml:2: fp8.accumulate is gone: the sums of 14bit",
		"[nvfp4]\nfour_over_six = true\n":         "c.toml:2: nvfp4.four_over_six is gone: blocks have one scale now",
		"[nvfp4]\nsum = \"exact\"\n":              "c.toml:2: nvfp4.sum is gone: set sum",
		"pp_layout = ''\npp_layout = ''\nx = 1\n": "c.toml:3: unknown key",
	} {
		if _, err := Resolve(TrainDefaults, "c.toml", []byte(old), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", old, err, want)
		}
	}
	if _, err := Resolve(TrainDefaults, "c.toml", []byte("[fp8]\naccumulate = 'fp32'\n[nvfp4]\nsum = 'fp32'\n"), nil); err != nil {
		t.Error(err)
	}
}
