package mutations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the root of the repository.
const root = "../../.."

// few are the mutations that run by default. SPMOE_MUTATIONS=all runs all.
var few = []string{"dense-ep-lost", "expert-sum-missing"}

func TestMutations(t *testing.T) {
	text, all := writeText(t), os.Getenv("SPMOE_MUTATIONS") == "all"
	for _, m := range Table {
		t.Run(m.Name, func(t *testing.T) {
			overlay := m.overlay(t)
			if !all && !slices.Contains(few, m.Name) {
				t.Skip("it fits the source; SPMOE_MUTATIONS=all builds and runs it")
			}
			t.Parallel()
			m.find(t, overlay, text)
		})
	}
}

// The documentation lists the table.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "layouts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, m := range Table {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", m.Text, m.Axis, m.Tensor.Words)
	}
	if !strings.Contains(string(page), "|---|---|---|\n"+table.String()+"\n") {
		t.Errorf("docs/layouts.md must have this table of mistakes:\n%s", table.String())
	}
}

// writeText writes a text whose parts differ, so that the experts' loads do.
func writeText(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Len() < 100_000 {
		fmt.Fprintf(&b, "%x rank %d sends %d rows.\n", rng.Uint64()>>rng.IntN(64), rng.IntN(4), rng.IntN(1000))
	}
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// overlay writes the changed source and returns the file for go build -overlay.
func (m Mutation) overlay(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("%s has %d times %q, want 1: adapt the mutation to the source", m.File, n, m.Old)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(strings.Replace(string(source), m.Old, m.New, 1)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// line is what the test reads of a line of verify-layouts --json.
type line struct {
	Layout string
	Same   bool
	Axis   string
	First  *struct {
		Step          int
		Layer, Tensor string
		Distance      float64
	} `json:"first_difference"`
}

// verify are the flags of verify-layouts: a model with all parts whose sums cross ranks.
var verify = strings.Fields(`-np 4 verify-layouts --steps 2 --seq 96 --batch 8 --optimizer.clip-norm 0 --model.dim 32 --model.layers 2
	--model.dense-inter 64 --model.heads 2 --model.kv-rank 16 --model.nope-dim 8 --model.rope-dim 8 --model.value-dim 16 --model.experts 8
	--model.top-k 2 --model.expert-inter 32`)

// find builds the launcher with the mistake and checks what verify-layouts says about it.
func (m Mutation) find(t *testing.T, overlay, text string) {
	launcher, lines := filepath.Join(t.TempDir(), "launcher"), filepath.Join(t.TempDir(), "lines")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", launcher, "./launcher")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := slices.Concat(verify, []string{"--data", text, "--json", lines}, strings.Fields(m.Args))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a mistake may also make ranks wait
	defer cancel()
	out, err := exec.CommandContext(ctx, launcher, args...).CombinedOutput()
	if failed, ok := err.(*exec.ExitError); !ok || failed.ExitCode() != 1 {
		t.Fatalf("%v, want exit code 1: %s", err, out)
	}
	data, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for text := range bytes.Lines(data) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if l.Same {
			continue
		}
		found++
		if d := l.First; l.Axis != m.Axis || !matches(m.Tensor.Layer, d.Layer) || !matches(m.Tensor.Name, d.Tensor) {
			t.Errorf("%s: axis %s (want %s), step %d, %s (want %s), %s (want %s), by %g",
				l.Layout, l.Axis, m.Axis, d.Step, d.Layer, m.Tensor.Layer, d.Tensor, m.Tensor.Name, d.Distance)
		}
	}
	if found == 0 {
		t.Errorf("no layout differs: %s", out)
	}
}

// matches reports whether all of s matches a regular expression.
func matches(expression, s string) bool {
	return regexp.MustCompile("^(" + expression + ")$").MatchString(s)
}
