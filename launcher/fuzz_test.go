package main

import (
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// Whatever a config file holds, it is refused with its name, or makes a configuration that is
// refused, or one that can be printed, read again and sized.
func FuzzConfig(f *testing.F) {
	_, text := defaults(f, "debug")
	f.Add(text, uint8(4))
	f.Add([]byte("flavor = \"small\"\nsteps = 7\ndata = [\"a\", \"b\"]\n[model]\nlayers = 5\n[optimizer]\nlr = nan\n"), uint8(1))
	f.Add([]byte("batch = 9223372036854775807\n[model.yarn]\nfactor = 40.0\noriginal_positions = 4096\n"), uint8(7))
	f.Fuzz(func(t *testing.T, text []byte, ranks uint8) {
		cfg, err := cli.Resolve(cli.TrainDefaults, "file.toml", text, nil)
		if err != nil {
			if !strings.Contains(err.Error(), "file.toml") && !strings.Contains(err.Error(), "flavor") || len(err.Error()) > 2000 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if cfg.Validate(int(ranks)) != nil {
			return
		}
		if m := estimate.Memory(cfg, int(ranks)); min(m.Weights, m.Gradients, m.Optimizer, m.Activations, m.Total()) < 0 {
			t.Errorf("%q: %+v", text, m)
		}
		printed, err := config.TOML(cfg)
		if err != nil {
			t.Fatal(err)
		}
		again, err := cli.Resolve(cli.TrainDefaults, "file.toml", printed, nil)
		if err != nil {
			t.Fatalf("%s: %v", printed, err)
		}
		if err := again.Validate(int(ranks)); err != nil {
			t.Errorf("%s: %v", printed, err)
		}
	})
}

// Whatever a command line says, it is refused, or its flags are set and the rest is words. Nothing
// is run.
func FuzzArgs(f *testing.F) {
	for _, line := range []string{
		"-np 8 train --steps 100", "train --data a b --save_every=3 --set model.layers=6 -- --x", "--np=1e9 compare --seeds -1", "check --", "bench kernels --match (",
		"--= train", "- -- ---", "train --steps", "help train", "--help", "train --optimizer.lr=NaN --resume=maybe", "--timeout 9999999h train",
	} {
		f.Add(strings.ReplaceAll(line, " ", "\n"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		name, rest, err := cli.SplitCommand(commands(), args)
		if err != nil || name == "help" {
			return
		}
		cmd, ok := cli.Find(commands(), name)
		if !ok {
			return
		}
		fs, _ := cmd.Flags()
		words, err := cli.Parse(fs, rest)
		if err == nil && len(words) > len(args) {
			t.Errorf("%q: the words %q are left", args, words)
		}
	})
}
