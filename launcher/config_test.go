package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// resolved returns the configuration that a command line would run.
func resolved(t *testing.T, args ...string) config.Config {
	t.Helper()
	out := succeed(t, append([]string{"train", "--dry-run"}, args...)...)
	var cfg config.Config
	if err := toml.Unmarshal([]byte(out), &cfg); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return cfg
}

// Defaults give way to the flavor, the flavor to the file, the file to flags.
func TestPrecedence(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range strings.Fields("a b c d e") {
		write(t, name, "text")
	}
	before := files(t, ".")
	file := write(t, filepath.Join(t.TempDir(), "c.toml"),
		"flavor = \"small\"\nsteps = 7\nseq = 64\ndata = [\"a\", \"b\"]\n[model]\nlayers = 5\n[optimizer]\nlr = 0.5\n")
	debug, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	small, err := config.Default("small")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args string
		want func(*config.Config)
	}{
		"defaults":              {"", func(c *config.Config) { *c = debug }},
		"flavor":                {"--flavor small", func(c *config.Config) { *c = small }},
		"file":                  {"--config FILE", func(*config.Config) {}},
		"file, then flags":      {"--config FILE --steps 9", func(c *config.Config) { c.Steps = 9 }},
		"more steps in a flag":  {"--config FILE --steps 900", func(c *config.Config) { c.Steps, c.Optimizer.Warmup = 900, 90 }},
		"a warm-up in a flag":   {"--config FILE --set optimizer.warmup=500", func(c *config.Config) { c.Optimizer.Warmup = 500 }},
		"flag of the optimizer": {"--config FILE --optimizer.lr 1e-3", func(c *config.Config) { c.Optimizer.LR = 1e-3 }},
		"flavor over the file's": {"--config FILE --flavor debug", func(c *config.Config) {
			*c = debug
			c.Steps, c.Seq, c.Data, c.Model.Layers, c.Optimizer.LR = 7, 64, []string{"a", "b"}, 5, 0.5
		}},
		"data replaces the file's": {"--config FILE --data c", func(c *config.Config) { c.Data = []string{"c"} }},
		"data in a list":           {"--config FILE --data c d --steps 9 e", func(c *config.Config) { c.Data, c.Steps = []string{"c", "d", "e"}, 9 }},
	} {
		t.Run(name, func(t *testing.T) {
			want := small
			want.SetSteps(7)
			want.Seq, want.Data, want.Model.Layers, want.Optimizer.LR = 64, []string{"a", "b"}, 5, 0.5
			c.want(&want)
			if want.Data == nil {
				want.Data = []string{}
			}
			if err := want.MakeAbsolute(); err != nil {
				t.Fatal(err)
			}
			want.Out = "runs/" + want.Flavor + "-1"
			got := resolved(t, strings.Fields(strings.ReplaceAll(c.args, "FILE", file))...)
			if got.Data == nil {
				got.Data = []string{}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q gives\n%+v, want\n%+v", c.args, got, want)
			}
		})
	}
	same(t, files(t, "."), before)
}

// A configuration that was printed or saved is the same when it is read.
func TestConfigRoundTrip(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a", "text")
	write(t, "b", "text")
	other := t.TempDir()
	for i, flavor := range moe.Flavors() {
		args := []string{"train", "--dry-run", "--flavor", flavor.Name}
		if i == 0 {
			args = append(args, strings.Fields("--data a b --seed 9223372036854775807 --optimizer.lr 0.00012345678901234567 --set sample_prompt=\"\u00e9\\'#")...)
		}
		printed := succeed(t, args...)
		file := write(t, filepath.Join(other, "c.toml"), printed)
		if again := succeed(t, "train", "--dry-run", "--config", file); stable(again) != stable(printed) {
			t.Errorf("%q prints\n%s\nand from that\n%s", args, printed, again)
		}
	}
}

// stable drops the lines about the machine.
func stable(printed string) string {
	var kept []string
	for line := range strings.Lines(printed) {
		if !strings.Contains(line, "this machine") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// A model far too large for this machine can still be described, with the published numbers.
func TestDryRun(t *testing.T) {
	t.Chdir(t.TempDir())
	for flavor, want := range map[string][]string{
		"16B":  {"parameters: 15.71 B total, 2.661 B active"},
		"671B": {"parameters: 671 B total, 37.55 B active", "memory per rank, of 64 ranks", "TiB", "this machine"},
	} {
		out := succeed(t, "-np", "64", "train", "--batch", "64", "--dry-run", "--flavor", flavor)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: the dry run lacks %q:\n%s", flavor, w, out)
			}
		}
	}
	// It says what is odd, and so does the run.
	odd := strings.Fields("--set model.vocab=8192 --set optimizer.warmup=500")
	for name, out := range map[string]string{
		"dry run": succeed(t, append(strings.Fields("train --dry-run --steps 10"), odd...)...),
		"run":     succeed(t, tiny(text(t), append(odd, "--steps", "1", "--out", t.TempDir())...)...),
	} {
		for _, w := range []string{"NOTE: tokenizer bytes uses 256 of the vocabulary's 8192 rows", "NOTE: optimizer.warmup is 500"} {
			if !strings.Contains(out, w) {
				t.Errorf("the %s lacks %q:\n%s", name, w, out)
			}
		}
	}
	same(t, files(t, "."), nil)
}

// A slice of a flavor trains at the flavor's rate, and a model from elsewhere with the settings of
// the flavor of its size.
func TestDefaultsOfModels(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg := resolved(t, strings.Fields("-np 2 --flavor 16B --set model.layers=3 --seq 128 --batch 16 --steps 4")...)
	if s := cfg.Optimizer.Schedule; s.LR != 4.2e-4 || s.Warmup != 20 || cfg.Model.Layers != 3 || cfg.MicroBatch != 1 {
		t.Errorf("%+v", cfg)
	}
	model, err := moe.FlavorByName("16B")
	if err != nil {
		t.Fatal(err)
	}
	model.Layers = 24
	cfg, err = cli.Resolve(running.DefaultsOf(model, cli.TrainDefaults), "", nil, nil) // as train --init-from does
	if err != nil || cfg.Optimizer.LR != 4.2e-4 || cfg.Model != model || cfg.Seq != 4096 {
		t.Errorf("%+v, %v", cfg, err)
	}
}
