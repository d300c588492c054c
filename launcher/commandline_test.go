package main

import (
	"flag"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor/cpu"
)

func TestSplitCommand(t *testing.T) {
	for _, c := range []struct{ args, name, rest string }{
		{"train", "train", ""},
		{"-np 8 train --steps 3", "train", "-np 8 --steps 3"},
		{"--resume train", "train", "--resume"},
		{"--dry-run -n 2 train x", "train", "--dry-run -n 2 x"},
		{"--config train train", "train", "--config train"},
		{"", "help", ""},
		{"-np 4 -h", "help", ""},
		{"help train", "help", "train"},
	} {
		name, rest, err := cli.SplitCommand(commands(), strings.Fields(c.args))
		if err != nil || name != c.name || strings.Join(rest, " ") != c.rest {
			t.Errorf("%q: %q with %q, error %v; want %q with %q", c.args, name, rest, err, c.name, c.rest)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args, rest string
		steps      int
		dry        bool
	}{
		{"-steps 3 -dry-run", "", 3, true},
		{"--steps=3 --dry_run x", "x", 3, true},
		{"a --dry-run=false b --steps -4", "a b", -4, false},
		{"--steps 1 --steps 2", "", 2, false},
		{"--dry-run -- --steps 3", "--steps 3", 0, true},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		steps, dry := fs.Int("steps", 0, ""), fs.Bool("dry-run", false, "")
		rest, err := cli.Parse(fs, strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest || *steps != c.steps || *dry != c.dry {
			t.Errorf("%q: steps %d, dry-run %t, rest %q, error %v", c.args, *steps, *dry, rest, err)
		}
	}
}

// Help of each command fits a page and has an example. All examples are command lines that the
// command takes.
func TestHelp(t *testing.T) {
	overview := succeed(t, "help")
	for _, args := range []string{"", "--help", "-np 2 -h"} {
		if out := succeed(t, strings.Fields(args)...); out != overview {
			t.Errorf("%q: %s", args, out)
		}
	}
	for _, parent := range commands() {
		if !strings.Contains(overview, "\n  "+parent.Name+" ") {
			t.Errorf("help does not list %s", parent.Name)
		}
		for _, c := range parent.Family() {
			words := strings.Fields(c.Name)
			out := succeed(t, append([]string{"help"}, words...)...)
			if n := strings.Count(out, "\n"); n > 24 || !strings.Contains(out, "\n  launcher ") || out != succeed(t, append(words, "--help")...) {
				t.Errorf("help of %s has %d lines:\n%s", c.Name, n, out)
			}
		}
		for _, example := range parent.Examples {
			name, rest, err := cli.SplitCommand(commands(), words(example))
			selected := parent
			if err == nil {
				selected, rest, err = parent.SelectSubcommand(rest)
			}
			fs, _ := selected.Flags()
			if err == nil {
				_, err = cli.Parse(fs, rest)
			}
			if err != nil || name != parent.Name || !strings.Contains(succeed(t, "help", parent.Name, "--all"), "\n  launcher "+example+"\n") {
				t.Errorf("%q: command %q, %v", example, name, err)
			}
		}
	}
}

// words splits a command line as a shell does, as far as examples need it.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// Help shows twenty flags of train first, and all keys of a configuration as flags or keys.
func TestKeysOfTrain(t *testing.T) {
	if n := strings.Count(succeed(t, "help", "train"), "\n  --"); n != 20 {
		t.Errorf("help train has %d flags", n)
	}
	out := succeed(t, "help", "train", "--all")
	if n := strings.Count(out, "\n  --"); n > 45 {
		t.Errorf("train has %d flags: give a new key no flag, --set reaches it", n)
	}
	config.EachSetting(config.Config{}, func(key config.Key, _ any) {
		flag, of := "\n  --"+strings.ReplaceAll(key.Name, "_", "-"), "\n  "+key.Name+"="
		if n := strings.Count(out, flag+" ") + strings.Count(out, of); n != 1 {
			t.Errorf("%s is there %d times", key.Name, n)
		}
	})
}

// --set reaches each key, of the commands that read it. The name of a key is a flag too, as in
// command lines of earlier versions.
func TestSet(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "set.toml", strings.Repeat("# text\n", 2000)+"seq = 64\n")
	cfg := resolved(t, strings.Fields("--set model.layers=3 --set optimizer.beta2=0.9 --set=fsdp=true --set save-retry=5m --set batch=8 --set data=set.toml")...)
	if cfg.Model.Layers != 3 || cfg.Optimizer.Beta2 != 0.9 || !cfg.FSDP || time.Duration(cfg.SaveRetry) != 5*time.Minute || cfg.Batch != 8 || len(cfg.Data) != 1 {
		t.Errorf("%+v", cfg)
	}
	if old := resolved(t, strings.Fields("--model.layers 3 --optimizer.beta2=0.9 --fsdp --save_retry 5m --batch 8 --data set.toml")...); !reflect.DeepEqual(old, cfg) {
		t.Errorf("%+v, with --set %+v", old, cfg)
	}
}

func TestVersion(t *testing.T) {
	out := succeed(t, "--version")
	if got := succeed(t, "version"); got != out {
		t.Errorf("%q, want %q", got, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"launcher ", "built:  go1.", "cpu:    ", "text:   the Go sources in ", "tiers of this CPU and build, " + cpu.Best().String() + " in use"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	if i := slices.Index(lines, "kernels in use:"); i < 0 || len(lines) < i+5 {
		t.Errorf("no kernels in\n%s", out)
	}
}
