package main

import (
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
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
	checked, names := 0, cli.FlagNames(fs)
	config.EachSetting(config.Config{}, func(key config.Key, _ any) {
		if name := strings.ReplaceAll(key.Name, "_", "-"); fs.Lookup(name) == nil {
			names = append(names, name)
		}
	})
	for _, name := range names {
		for _, v := range cli.FlagChoices("train", name) {
			checked++
			precision := "mxfp8"
			if name == "sum" { // an H100 has no MXFP8
				precision = "bf16"
			}
			args := []string{"train", "--dry-run", "--precision", precision, "--" + name, v}
			if fs.Lookup(name) == nil {
				args = append(args[:4], "--set", name+"="+v)
			}
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
