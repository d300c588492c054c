package main

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/training"
)

func TestNearest(t *testing.T) {
	candidates := []string{"steps", "seq", "seed", "save-every", "model.layers"}
	for word, want := range map[string]string{
		"stesp": "steps", "step": "steps", "see": "seed", "save-evry": "save-every", "models.layer": "model.layers", "xyz": "", "": "",
	} {
		if got := cli.Nearest(word, candidates); got != want {
			t.Errorf("nearest %q is %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := cli.EditDistance(c.a, c.b); got != c.want {
			t.Errorf("distance of %q and %q is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Train takes every value that its errors name.
func TestChoices(t *testing.T) {
	fs, _ := cli.Command{Name: "train", Define: training.DefineTrain}.Flags()
	checked := 0
	for _, name := range cli.FlagNames(fs) {
		for _, v := range cli.FlagChoices("train", name) {
			checked++
			precision := "mxfp8"
			if name == "sum" { // an H100 has no MXFP8
				precision = "bf16"
			}
			args := []string{"train", "--dry-run", "--precision", precision, "--" + name, v}
			if name == "bind-to" {
				args = append(args, "--ranks", "process")
			}
			if got := launch(args...); got.code != cli.ExitOK {
				t.Errorf("--%s %s: %s", name, v, got.errOut)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d values only", checked)
	}
}

func named(t *testing.T, name string) cli.Command {
	t.Helper()
	c, ok := cli.Find(commands(), name)
	if !ok {
		t.Fatal(name)
	}
	return c
}

// Synonyms stand for commands that exist, and are not commands themselves.
func TestSynonyms(t *testing.T) {
	names := map[string]bool{}
	for _, parent := range commands() {
		for _, c := range parent.Family() {
			names[c.Name] = true
		}
	}
	for name, words := range cli.CommandSynonyms {
		for _, word := range strings.Fields(words) {
			if !names[name] || names[word] {
				t.Errorf("%q stands for %q", word, name)
			}
		}
	}
}

// Names of other tools stand for flags and values that exist, and are not flags themselves.
func TestFlagSynonyms(t *testing.T) {
	var all []*flag.FlagSet
	for _, parent := range commands() {
		for _, c := range parent.Family() {
			fs, _ := c.Flags()
			all = append(all, fs)
		}
	}
	exists := func(ok func(*flag.FlagSet) bool) bool { return slices.ContainsFunc(all, ok) }
	for target, words := range cli.FlagSynonyms {
		for _, word := range strings.Fields(words) {
			if !exists(func(fs *flag.FlagSet) bool { return fs.Lookup(target) != nil && fs.Lookup(word) == nil }) {
				t.Errorf("--%s stands for --%s", word, target)
			}
		}
	}
	train, _ := named(t, "train").Flags()
	for _, words := range cli.FlagAdvice {
		for _, word := range strings.Fields(words) {
			if train.Lookup(word) != nil || cli.Meanings(cli.FlagSynonyms, word) != nil {
				t.Errorf("--%s is a flag, or stands for one", word)
			}
		}
	}
	for name, values := range cli.ValueSynonyms {
		command := "train"
		if name == "dtype" {
			command = "convert"
		}
		for value, words := range values {
			if !slices.Contains(cli.FlagChoices(command, name), value) {
				t.Errorf("--%s %s stands for %q, which it does not take", name, words, value)
			}
		}
	}
}

// --version is the version command.
func TestVersionFlag(t *testing.T) {
	if got, want := succeed(t, "--version"), succeed(t, "version"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
