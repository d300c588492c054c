package main

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor/cpu"
)

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
		for _, want := range []string{"--np N", "--data PATH", "--save-every N", "--optimizer.lr X", "(default 360)", "--resume ", "launcher help train keys lists the keys of --set"} {
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
			if !strings.Contains(succeed(t, "help", c.Name, "--all"), "\n  launcher "+example+"\n") {
				t.Errorf("help of %s lacks %q", c.Name, example)
			}
		}
	}
}

// There are twelve commands. Their help, and that of their subcommands, fits a page.
func TestHelpFits(t *testing.T) {
	if n := len(commands()); n != 12 {
		t.Errorf("%d commands", n)
	}
	if n := strings.Count(succeed(t, "help"), "\n"); n > 24 {
		t.Errorf("help has %d lines", n)
	}
	for _, parent := range commands() {
		for _, c := range parent.Family() {
			out := succeed(t, append([]string{"help"}, strings.Fields(c.Name)...)...)
			if n := strings.Count(out, "\n"); n > 24 || !strings.Contains(out, "\n  launcher ") {
				t.Errorf("help of %s has %d lines:\n%s", c.Name, n, out)
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
	if keys := succeed(t, "help", "train", "keys"); !strings.HasPrefix(keys, "\nrun, with --set:\n") || !strings.HasSuffix(out, keys) {
		t.Errorf("help train keys: %s", keys)
	}
	config.EachSetting(config.Config{}, func(key config.Key, _ any) {
		flag, of := "\n  --"+strings.ReplaceAll(key.Name, "_", "-"), "\n  "+key.Name+"="
		if n := strings.Count(out, flag+" ") + strings.Count(out, flag+"\n") + strings.Count(out, of); n != 1 {
			t.Errorf("%s is there %d times", key.Name, n)
		}
	})
	refuse(t, cli.ExitUsage, []string{"help", "check", "keys"}, "check has no --set")
}

// --set reaches each key, of the commands that read it.
func TestSet(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "set.toml", strings.Repeat("# text\n", 2000)+"seq = 64\n")
	cfg := resolved(t, strings.Fields("--set model.layers=3 --set optimizer.beta2=0.9 --set=fsdp=true --set save-retry=5m --set batch=8 --set data=set.toml")...)
	if cfg.Model.Layers != 3 || cfg.Optimizer.Beta2 != 0.9 || !cfg.FSDP || time.Duration(cfg.SaveRetry) != 5*time.Minute || cfg.Batch != 8 || len(cfg.Data) != 1 {
		t.Errorf("%+v", cfg)
	}
	// The name of a key is a flag too, as in command lines of earlier versions.
	if old := resolved(t, strings.Fields("--model.layers 3 --optimizer.beta2=0.9 --fsdp --save_retry 5m --batch 8 --data set.toml")...); !reflect.DeepEqual(old, cfg) {
		t.Errorf("%+v, with --set %+v", old, cfg)
	}
	if got, all := inspected(t, "debug", "--set", "model.layers=3"), inspected(t, "debug"); got.Parameters.Total >= all.Parameters.Total {
		t.Errorf("inspect --set: %d parameters, %d without", got.Parameters.Total, all.Parameters.Total)
	}
	for line, want := range map[string]string{
		"train --model.layer 3":                  "did you mean --set model.layers=... (transformer layers)?",
		"train --keep":                           "flag --keep needs a value",
		"train --set model.layers":               "give KEY=VALUE",
		"train --set model.layer=3":              `unknown key "model.layer": did you mean model.layers (transformer layers)?`,
		"train --set model.layers=x":             `invalid value "x" for key model.layers: it must be a whole number`,
		"train --set mx.scale=celi":              "mx.scale is \"celi\"",
		"inspect --set out=x":                    `unknown key "out"`,
		"train --config set.toml --set seq=5000": "seq is 5000",
	} {
		refuse(t, cli.ExitUsage, strings.Fields(line), want)
	}
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
	for _, spelling := range []string{"version", "-v", "-V"} {
		if got := succeed(t, spelling); got != out {
			t.Errorf("%s: %q, want %q", spelling, got, out)
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"launcher ", "built:  go1.", "cpu:    ", "text:   the Go sources in ", "tier:   " + cpu.Best().String(), "tiers of this CPU"} {
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
