package main

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor/cpu"
)

const checkHelp = `usage: launcher check [flags] PATH...
hold this build against golden data of another implementation

examples:
  launcher check golden/
  launcher -np 2 check golden/ mx.safetensors

ranks:
  --n N                        the same as -np (default 1)
  --np N                       ranks to start (default 1)
`

func TestHelpOfCheck(t *testing.T) {
	if got := succeed(t, "help", "check"); got != checkHelp {
		t.Errorf("%s\nwant\n%s", got, checkHelp)
	}
}

// Every command stands in a group, with examples that it would take.
func TestExamples(t *testing.T) {
	all := pages()
	overview := succeed(t, "help")
	for _, c := range commands() {
		p, ok := all[c.name]
		if !ok || len(p.examples) == 0 || len(p.examples) > 5 {
			t.Errorf("help has %d examples of %s, want 1 to 5", len(p.examples), c.name)
		}
		if !strings.Contains(overview, "\n  "+c.name+" ") {
			t.Errorf("help does not list %s:\n%s", c.name, overview)
		}
		for _, example := range p.examples {
			line, _, _ := strings.Cut(example, " > ")
			args := words(line)
			name, rest, err := splitCommand(commands(), args)
			if err != nil || name != c.name {
				t.Errorf("%q: command %q, %v", example, name, err)
				continue
			}
			fs, _ := c.flags()
			if rest, err = parse(fs, rest); err == nil {
				err = c.misspeltAction(rest)
			}
			if err != nil {
				t.Errorf("%q: %v", example, err)
			}
			if !strings.Contains(succeed(t, "help", c.name), "\n  launcher "+example+"\n") {
				t.Errorf("help of %s lacks %q", c.name, example)
			}
		}
	}
	for name := range all {
		if _, ok := find(commands(), name); !ok {
			t.Errorf("help has examples of %s, which is no command", name)
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

// The flags of a big command come in groups, each flag once.
func TestFlagGroups(t *testing.T) {
	out := succeed(t, "help", "train")
	at := 0
	for _, title := range []string{"\nexamples:\n", "\nflags:\n", "\nranks:\n", "\nguard:\n", "\nmodel:\n", "\nmodel.yarn:\n", "\nmx:\n", "\noptimizer:\n"} {
		i := strings.Index(out, title)
		if i < at {
			t.Errorf("%q is missing, or not in its place:\n%s", title, out)
		}
		at = max(at, i)
	}
	fs, _ := command{name: "train", define: defineTrain}.flags()
	fs.VisitAll(func(f *flag.Flag) {
		want := 1
		if strings.HasPrefix(f.Usage, internal) {
			want = 0
		}
		if n := strings.Count(out, "\n  "+flagUsage(f)+" "); n != want {
			t.Errorf("--%s is there %d times, want %d", f.Name, n, want)
		}
	})
}

// On a terminal, descriptions wrap at its width and stay in their column.
func TestEntry(t *testing.T) {
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
		entry(&b, c.width, 10, "name", "one two three four five six")
		if b.String() != c.want {
			t.Errorf("width %d: %q, want %q", c.width, b.String(), c.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	for args, want := range map[string][]string{
		"trian":                   {`"trian"`, "did you mean train?", "checkpoint"},
		"hlep":                    {"did you mean help?"},
		"help trian":              {"did you mean train?"},
		"frobnicate":              {`"frobnicate"`, "commands: train"},
		"checkpoint verfy x":      {`"verfy"`, "ls, verify, export", "did you mean verify?"},
		"bench kernel":            {"did you mean kernels?"},
		"train --precision mxpf8": {"--precision", `"mxpf8"`, "bf16", "did you mean mxfp8?"},
		"bench train --precision bf16,mxfp8-expert": {`"mxfp8-expert"`, "did you mean mxfp8-experts?"},
		"train --flavor 761B":                       {"671B"},
		"train --ep standart":                       {"did you mean standard?"},
		"train --mx.scale celi":                     {"did you mean ceil?"},
		"train --log-format=jsno":                   {"did you mean json?"},
		"--ranks proces train":                      {"did you mean process?"},
		strings.Repeat("x", 1000):                   {"unknown command"},
		"train --ep " + strings.Repeat("x", 1000):   {"onesided"},
	} {
		refuse(t, exitUsage, strings.Fields(args), want...)
	}
	if got := nearest("verfy", named(t, "checkpoint").actions()); got != "verify" {
		t.Errorf("%q", got)
	}
	if got := named(t, "inspect").actions(); got != nil {
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

func TestVersion(t *testing.T) {
	out := succeed(t, "version")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"launcher ", "built:  go1.", "cpu:    ", "tier:   " + cpu.Best().String(), "why:    "} {
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
	refuse(t, exitUsage, []string{"version", "2"}, "no arguments")
	if os.Getenv(cpu.EnvVar) == "" && (strings.Contains(out, "lowered") || strings.Contains(out, cpu.EnvVar)) {
		t.Errorf("the tier was lowered without %s:\n%s", cpu.EnvVar, out)
	}
}
