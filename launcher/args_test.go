package main

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

func TestSplitCommand(t *testing.T) {
	for _, c := range []struct{ args, name, rest string }{
		{"train", "train", ""},
		{"-np 8 train --steps 3", "train", "-np 8 --steps 3"},
		{"--np=8 --steps 3 train", "train", "--np=8 --steps 3"},
		{"--resume train", "train", "--resume"},
		{"--dry-run -n 2 train x", "train", "--dry-run -n 2 x"},
		{"check folder", "check", "folder"},
		{"--config train train", "train", "--config train"},
		{"", "help", ""},
		{"--help train", "help", ""},
		{"-np 4 -h", "help", ""},
		{"help train", "help", "train"},
	} {
		name, rest, err := splitCommand(commands(), strings.Fields(c.args))
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
		{"--steps 3", "", 3, false},
		{"-steps 3 -dry-run", "", 3, true},
		{"--steps=3 --dry_run x", "x", 3, true},
		{"a --dry-run=false b --steps 4", "a b", 4, false},
		{"--steps -4", "", -4, false},
		{"--steps 1 --steps 2", "", 2, false},
		{"--dry-run -- --steps 3", "--steps 3", 0, true},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		steps, dry := fs.Int("steps", 0, ""), fs.Bool("dry-run", false, "")
		rest, err := parse(fs, strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest || *steps != c.steps || *dry != c.dry {
			t.Errorf("%q: steps %d, dry-run %t, rest %q, error %v", c.args, *steps, *dry, rest, err)
		}
	}
}

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

// Help never fails, wherever it is asked for, and shows every flag with its default.
func TestHelp(t *testing.T) {
	for _, args := range []string{"", "help", "--help", "-h", "-np 2 --help"} {
		out := succeed(t, strings.Fields(args)...)
		for _, want := range []string{"train", "check", "example: launcher -np 8 train"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q: the help lacks %q:\n%s", args, want, out)
			}
		}
	}
	for _, args := range []string{"help train", "train --help", "train -h", "train -np 2 --steps 3 -help"} {
		out := succeed(t, strings.Fields(args)...)
		for _, want := range []string{"--np N", "--data PATH", "--save-every N", "--model.yarn.factor X", "--optimizer.decay TEXT", "(default linear)", "--resume "} {
			if !strings.Contains(out, want) {
				t.Errorf("%q: the help lacks %q:\n%s", args, want, out)
			}
		}
	}
	train, _ := find(commands(), "train")
	fs, _ := train.flags()
	fs.VisitAll(func(f *flag.Flag) {
		if f.Usage == "" || slices.Contains([]string{"`N` ", "`X` ", "`TEXT` ", "`PATH` "}, f.Usage) {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}
