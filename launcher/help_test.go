package main

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/training"
	"spmoe/tensor/cpu"
)

const checkHelp = `usage: launcher check [flags] PATH...
compare this build with another implementation's outputs

examples:
  launcher check golden/
  launcher -np 2 check golden/ mx.safetensors

ranks:
  --n N                        short for --np
  --np N                       ranks to start (default 1)
`

func TestHelpOfCheck(t *testing.T) {
	if got := succeed(t, "help", "check"); got != checkHelp {
		t.Errorf("%s\nwant\n%s", got, checkHelp)
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
		for _, want := range []string{"--np N", "--data PATH", "--save-every N", "--optimizer.lr X", "(default 360)", "--resume ", "launcher help train GROUP (run, layout,"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q: the help lacks %q:\n%s", args, want, out)
			}
		}
	}
	train, _ := cli.Find(commands(), "train")
	fs, _ := train.Flags()
	fs.VisitAll(func(f *flag.Flag) {
		if f.Usage == "" || slices.Contains([]string{"`N` ", "`X` ", "`TEXT` ", "`PATH` "}, f.Usage) {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}

// Every command stands in a group, with examples that it would take.
func TestExamples(t *testing.T) {
	overview := succeed(t, "help")
	for _, c := range commands() {
		if n := len(c.Examples); n == 0 || n > 5 {
			t.Errorf("help has %d examples of %s, want 1 to 5", n, c.Name)
		}
		if !strings.Contains(overview, "\n  "+c.Name+" ") {
			t.Errorf("help does not list %s:\n%s", c.Name, overview)
		}
		for _, example := range c.Examples {
			line, _, _ := strings.Cut(example, " > ")
			args := words(line)
			name, rest, err := cli.SplitCommand(commands(), args)
			if err != nil || name != c.Name {
				t.Errorf("%q: command %q, %v", example, name, err)
				continue
			}
			selected, rest, err := c.SelectSubcommand(rest)
			if err != nil {
				t.Errorf("%q: %v", example, err)
				continue
			}
			fs, _ := selected.Flags()
			if _, err = cli.Parse(fs, rest); err != nil {
				t.Errorf("%q: %v", example, err)
			}
			if !strings.Contains(succeed(t, "help", c.Name), "\n  launcher "+example+"\n") {
				t.Errorf("help of %s lacks %q", c.Name, example)
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

// Help shows the common flags of a big command, with the defaults of a flavor. Each of its flags is
// in one group.
func TestFlagGroups(t *testing.T) {
	if common := succeed(t, "help", "train"); strings.Count(common, "\n  --") != len(strings.Fields(cli.CommonFlags)) {
		t.Errorf("help train has not the common flags:\n%s", common)
	}
	if large := succeed(t, "train", "--flavor", "16B", "--help"); !strings.Contains(large, "optimizer step of all ranks together (the global batch) (default 256)\n") {
		t.Errorf("no defaults of 16B:\n%s", large)
	}
	out, groups := succeed(t, "help", "train", "--all"), ""
	for _, name := range named(t, "train").Topics() {
		one := succeed(t, "help", "train", name)
		if !strings.HasPrefix(one, "\n"+name+":\n") || !strings.Contains(out, one) {
			t.Errorf("group %s is %q", name, one)
		}
		groups += one
	}
	fs, _ := cli.Command{Name: "train", Define: training.DefineTrain}.Flags()
	fs.VisitAll(func(f *flag.Flag) {
		want := 1
		if strings.HasPrefix(f.Usage, cli.Internal) {
			want = 0
		}
		if n, in := strings.Count(out, "\n  "+cli.FlagUsage(f)+" "), strings.Count(groups, "\n  "+cli.FlagUsage(f)+" "); n != want || in != want {
			t.Errorf("--%s is there %d times, and %d times in groups, want %d", f.Name, n, in, want)
		}
	})
	refuse(t, cli.ExitUsage, []string{"help", "train", "lr"}, `help train "lr": use one of run, layout,`)
	refuse(t, cli.ExitUsage, []string{"help", "check", "lr"}, `help check "lr": its flags have no groups`)
}

// On a terminal, descriptions wrap at its width and stay in their column.
func TestPrintEntry(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "  name    one two three four five six\n"},
		{29, "  name    one two three four five six\n"}, // too narrow for two columns
		{30, "  name    one two three four\n          five six\n"},
		{80, "  name    one two three four five six\n"},
	} {
		var b bytes.Buffer
		cli.PrintEntry(&b, c.width, 10, "name", "one two three four five six")
		if b.String() != c.want {
			t.Errorf("width %d: %q, want %q", c.width, b.String(), c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	out := succeed(t, "--version")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"launcher ", "built:  go1.", "cpu:    ", "text:   the Go sources in ", "tier:   " + cpu.Best().String(), "why:    "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	for _, want := range []string{"cores", "  generic ", "  amx ", "\nkernels in use:\n  matrix products ", "\n  quantization ", "\n  streams ", "\n  vectors "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if slices.Contains(lines, "") {
		t.Errorf("%q", lines)
	}
	refuse(t, cli.ExitUsage, []string{"version", "2"}, "no arguments")
	if os.Getenv(cpu.EnvVar) == "" && (strings.Contains(out, "lowered") || strings.Contains(out, cpu.EnvVar)) {
		t.Errorf("the tier was lowered without %s:\n%s", cpu.EnvVar, out)
	}
}
