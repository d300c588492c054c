package main

import (
	"flag"
	"strings"
	"testing"

	"spmoe/launcher/cli"
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
		rest, err := cli.Parse(fs, strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest || *steps != c.steps || *dry != c.dry {
			t.Errorf("%q: steps %d, dry-run %t, rest %q, error %v", c.args, *steps, *dry, rest, err)
		}
	}
}

// The flags of one command are defined until its line names a flag that it lacks.
func TestFindFlag(t *testing.T) {
	defined := ""
	table := []cli.Command{}
	for _, name := range []string{"a", "b"} {
		table = append(table, cli.Command{Name: name, Define: func(fs *flag.FlagSet) cli.Action {
			defined += name
			fs.Int("of-"+name, 0, "")
			return nil
		}})
	}
	for line, want := range map[string]string{"b --of-a 1": "", "--of-a 1 b": "a", "--of-b 1 a": "ab"} {
		defined = ""
		if _, _, err := cli.SplitCommand(table, strings.Fields(line)); err != nil || defined != want {
			t.Errorf("%q defines the flags of %q, want %q; %v", line, defined, want, err)
		}
	}
}
