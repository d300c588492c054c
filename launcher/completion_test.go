package main

import (
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/training"
)

func TestSuggestions(t *testing.T) {
	for _, c := range []struct {
		words string // the last is typed; a final space begins a new one
		want  []string
		only  bool // nothing else
	}{
		{"tra", []string{"train"}, true},
		{"", []string{"train", "help", "inspect", "completion"}, false},
		{"-np 4 tra", []string{"train"}, true},
		{"-np ", nil, true},
		{"--ranks ", []string{"goroutine", "process"}, true},
		{"train --prec", []string{"--precision"}, true},
		{"train --save_e", []string{"--save-every"}, true},
		{"train -opt", []string{"--optimizer.lr", "--optimizer.decay"}, false},
		{"train --optimizer.name ", []string{"adamw", "muon"}, true},
		{"train --optimizer.moments ", []string{"fp32", "bf16"}, true},
		{"train --recompute ", []string{"none", "selective", "full"}, true},
		{"train --precision ", []string{"bf16", "mxfp8-experts", "mxint8"}, false},
		{"train --precision mxf", []string{"mxfp8", "mxfp8-experts", "mxfp8-wgrad-bf16", "mxfp4", "mxfp4-mxfp8", "mxfp4-e2m1", "mxfp6-e2m3", "mxfp6-e3m2"}, true},
		{"train --precision=mxi", []string{"--precision=mxint8"}, true},
		{"train --precision = mxi", []string{"mxint8"}, true},
		{"train --precision =", []string{"bf16", "fp32"}, false},
		{"train --precision = mxint8 --ep-exchange ", []string{"onesided", "standard"}, true},
		{"compare --precision ", nil, true},
		{"train --resume=", []string{"--resume=true", "--resume=false"}, true},
		{"train --resume --flav", []string{"--flavor"}, true},
		{"train --flavor 6", []string{"671B", "671B-slice", "671B-slice-128G"}, true},
		{"train --config ", []string{":file"}, true},
		{"train --out ", []string{":folder"}, true},
		{"train --data ", []string{":file"}, true},
		{"train --data a ", []string{":file"}, true},
		{"train --steps ", nil, true},
		{"train --rel", nil, true}, // it is internal
		{"check ", []string{":file"}, true},
		{"checkpoint ", []string{"ls", "verify", "export"}, true},
		{"checkpoint v", []string{"verify"}, true},
		{"checkpoint --out x ver", []string{"verify"}, true},
		{"checkpoint ls r", []string{":file"}, true},
		{"inspect 16", []string{"16B", "16B-slice", "16B-slice-128G", ":folder"}, true},
		{"help ben", []string{"bench"}, true},
		{"help bench ", []string{"kernels", "exchange", "link", "train", "ratios"}, true},
		{"help bench kernels ", nil, true},
		{"bench ", []string{"kernels", "exchange", "link", "train", "ratios"}, true},
		{"bench kernels --", []string{"--help", "--quick", "--match", "--json"}, true},
		{"bench exchange --sample", nil, true},
		{"bench --json x exchange --ma", []string{"--match"}, true},
		{"project --gpu b200 explain --lay", []string{"--layers"}, true},
		{"project --precision ", []string{"bf16", "mxfp8-experts", "mxfp8", "fp8", "nvfp4"}, true},
		{"data inspect ", []string{":file"}, true},
		{"completion ", []string{"bash", "zsh", "fish"}, true},
		{"version ", nil, true},
		{"nonsense ", []string{"train"}, false},
	} {
		got := strings.Fields(succeed(t, append([]string{cli.Complete, "--"}, strings.Split(c.words, " ")...)...))
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q is not among %q", c.words, want, got)
			}
		}
		if c.only && len(got) != len(c.want) {
			t.Errorf("%q: %q, want %q alone", c.words, got, c.want)
		}
	}
	refuse(t, cli.ExitUsage, []string{"completion"}, "name the shell", "bash, zsh or fish")
	refuse(t, cli.ExitUsage, []string{"completion", "bsh"}, `"bsh"`, "did you mean bash?")
}

// Where the shell shows descriptions, flags and commands have one, and values do not.
func TestDescribedSuggestions(t *testing.T) {
	for words, want := range map[string]string{
		"tra": "train\ttrain a model on text\n", "train --save-ev": "--save-every\tsteps (500) or time (10m) between checkpoints", "checkpoint ver": "verify\tverify the checksums", "help rep": "report\twrite the report pages of runs",
		"train --recompute sel": "selective\n", "train --recompute=sel": "--recompute=selective\n", "train --resume=t": "--resume=true\n", "train --config ": ":file\n",
	} {
		got := succeed(t, append([]string{cli.Complete, cli.Described}, strings.Split(words, " ")...)...)
		if !strings.HasPrefix(got, want) || strings.Contains(got, "`") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(succeed(t, cli.Complete, cli.Described, "train", "--")), "\n") {
		if _, text, _ := strings.Cut(line, "\t"); text == "" && line != "--help" && line != "--n\t" {
			t.Errorf("%q has no description", line)
		}
	}
}

// Every value that is suggested is one that train takes.
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
