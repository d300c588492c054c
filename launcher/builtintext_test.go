package main

import (
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// A machine with the binary alone, without Go, runs the main job and evaluates, compares and
// benchmarks, and every command says which text it reads.
func TestWithoutGo(t *testing.T) {
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", t.TempDir())
	t.Chdir(t.TempDir())
	const model = " --set model.dim=32 --set model.layers=2 --set model.dense_inter=64 --set model.heads=2 --set model.expert_inter=32"
	const size = " --seq 32 --batch 2 --set eval_sequences=2 --set sample_tokens=0 --steps 2"
	const notice = "\ntext: built-in, spmoe's own sources and documentation (no Go installation found); --data PATH reads other text\n"
	for _, line := range []string{
		"-np 2 train --out run" + model + size,
		"eval --checkpoint run",
		"-np 2 compare --quick --seeds 2 --margin 99 --seed 3 --out compared --optimizer.lr 1e-3" + model + size,
		"-np 2 bench train --quick --precision bf16 --seq 32 --batch 2" + model,
	} {
		got := launch(strings.Fields(line)...)
		if got.code == cli.ExitUsage || got.errOut != "" && !strings.Contains(line, "compare") {
			t.Errorf("%s: exit code %d: %s", line, got.code, got.errOut)
		}
		if strings.Count("\n"+got.out, notice) != 1 {
			t.Errorf("%s does not say once which text it reads:\n%s", line, got.out)
		}
	}
	if out := succeed(t, "--version"); !strings.Contains(out, "\ntext:   built-in, spmoe's own") {
		t.Errorf("version: %s", out)
	}
	start := jsonEvents(t, succeed(t, strings.Fields("train --log-format json --out json"+model+size)...), "start")[0]
	if text, ok := start["text"].(string); !ok || !strings.HasPrefix(text, "built-in") {
		t.Errorf("the JSON log has text %v", start["text"])
	}
}
