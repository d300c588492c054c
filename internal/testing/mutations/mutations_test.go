// Package mutations makes mistakes.toml in the source.
package mutations

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "embed"

	"github.com/pelletier/go-toml/v2"
)

//go:embed mistakes.toml
var list []byte

// mutation is a mistake of the list.
type mutation struct {
	Name, Text, File, Old, New, Args, Axis, Tensor string

	differs tensor // Tensor
}

// tensor describes where states may differ most.
type tensor struct{ Words, Layer, Name string }

// table returns the mistakes.
var table = sync.OnceValue(func() []mutation {
	var all struct {
		Tensor  []tensor
		Mistake []mutation
	}
	if err := toml.NewDecoder(bytes.NewReader(list)).DisallowUnknownFields().Decode(&all); err != nil {
		panic(err)
	}
	for i := range all.Mistake {
		m := &all.Mistake[i]
		m.differs = all.Tensor[slices.IndexFunc(all.Tensor, func(t tensor) bool { return t.Words == m.Tensor })]
	}
	return all.Mistake
})

// root is the root of the repository.
const root = "../../.."

// One launcher has all mistakes: the variable of the environment named by choice says which of them
// it makes.
const choice = "SPMOE_MISTAKE"

// TestMutations builds a launcher with all mistakes and runs each.
func TestMutations(t *testing.T) {
	if os.Getenv("SPMOE_MUTATIONS") != "all" {
		t.Skip("a step of its own in .ci/run, of a minute or more: set SPMOE_MUTATIONS=all")
	}
	text, launcher := writeText(t), build(t)
	for _, m := range table() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			m.find(t, launcher, text)
		})
	}
}

// Each mistake fits the source, and leaves a file that can be parsed.
func TestMutationsFit(t *testing.T) {
	for file, changed := range mutated(t) {
		if _, err := parser.ParseFile(token.NewFileSet(), file, changed, 0); err != nil {
			t.Error(err)
		}
	}
}

// The rows that the documentation shows are those of the table.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "layouts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "| mistake | axis | what differs most |\n|---|---|---|\n")
	rows, _, _ = strings.Cut(rows, "\n\n")
	for row := range strings.SplitSeq(strings.TrimSpace(rows), "\n") {
		if !slices.ContainsFunc(table(), func(m mutation) bool { return row == fmt.Sprintf("| %s | %s | %s |", m.Text, m.Axis, m.Tensor) }) {
			t.Errorf("docs/layouts.md has a mistake that no row of the table is: %s", row)
		}
	}
	if !strings.Contains(string(page), fmt.Sprintf("has all\n%d with their edits", len(table()))) {
		t.Errorf("docs/layouts.md has another number of mistakes than %d", len(table()))
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

// mutated returns the files of the table with all their mistakes.
func mutated(t *testing.T) map[string]string {
	t.Helper()
	sources, files := map[string]string{}, map[string]string{}
	for _, m := range table() {
		if sources[m.File] == "" {
			source, err := os.ReadFile(filepath.Join(root, m.File))
			if err != nil {
				t.Fatal(err)
			}
			sources[m.File], files[m.File] = string(source), string(source)
		}
		changed, err := m.insert(files[m.File], sources[m.File])
		if err != nil {
			t.Fatalf("%s: %s: %v", m.File, m.Name, err)
		}
		files[m.File] = changed
	}
	return files
}

// build builds the launcher with all mistakes and returns its path.
func build(t *testing.T) (launcher string) {
	t.Helper()
	replace, dir := map[string]string{}, t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(dir, fmt.Sprintf("%x.go", sha256.Sum256([]byte(path))))
		if err := os.WriteFile(changed, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		replace[path] = changed
	}
	for file, changed := range mutated(t) {
		write(file, changed)
		name := regexp.MustCompile(`(?m)^package \w+$`).FindString(changed)
		write(filepath.Join(filepath.Dir(file), "mistake_chosen.go"), name+"\n\nimport \"os\"\n\nvar mistake = os.Getenv(\""+choice+"\")\n")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	launcher, list := filepath.Join(dir, "launcher"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", list, "-o", launcher, "./launcher")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return launcher
}

// insert adds a copy of the function that has the mistake to a file. The function calls the copy if
// the mistake is chosen. source is the file as it is.
func (m mutation) insert(file, source string) (string, error) {
	if n := strings.Count(source, m.Old); n != 1 {
		return "", fmt.Errorf("the source has %d times %q, want 1: adapt the mutation to the source", n, m.Old)
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, "", source, 0)
	if err != nil {
		return "", err
	}
	at := token.Pos(fset.File(parsed.Pos()).Base() + strings.Index(source, m.Old))
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || at < f.Body.Pos() || at >= f.End() {
			continue
		}
		offset := func(p token.Pos) int { return fset.Position(p).Offset }
		name := fmt.Sprintf("%sMistake%x", f.Name.Name, sha256.Sum256([]byte(m.Name)))[:len(f.Name.Name)+15]
		call := name
		if f.Recv != nil {
			call = f.Recv.List[0].Names[0].Name + "." + name
		}
		var arguments []string
		for _, field := range f.Type.Params.List {
			for _, n := range field.Names {
				arguments = append(arguments, n.Name)
				if _, ok := field.Type.(*ast.Ellipsis); ok {
					arguments[len(arguments)-1] += "..."
				}
			}
		}
		call += "(" + strings.Join(arguments, ", ") + ")"
		if f.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		head := source[offset(f.Pos()) : offset(f.Body.Pos())+1]
		wrong := source[offset(f.Pos()):offset(f.Name.Pos())] + name +
			strings.Replace(source[offset(f.Name.End()):offset(f.End())], m.Old, m.New, 1)
		file = strings.Replace(file, head, head+fmt.Sprintf("\nif mistake == %q { %s }\n", m.Name, call), 1)
		return file + "\n" + wrong + "\n", nil
	}
	return "", fmt.Errorf("%q is in no function", m.Old)
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
var verify = strings.Fields(`-np 4 verify-layouts --steps 2 --seq 96 --batch 8 --set optimizer.clip_norm=0 --set model.dim=32 --set model.layers=2
	--set model.dense_inter=64 --set model.heads=2 --set model.kv_rank=16 --set model.nope_dim=8 --set model.rope_dim=8 --set model.value_dim=16 --set model.experts=8
	--set model.top_k=2 --set model.expert_inter=32`)

// find runs the launcher with the mistake and checks what verify-layouts says about it.
func (m mutation) find(t *testing.T, launcher, text string) {
	lines := filepath.Join(t.TempDir(), "lines")
	args := slices.Concat(verify, []string{"--data", text, "--json", lines}, strings.Fields(m.Args))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a mistake may also make ranks wait
	defer cancel()
	run := exec.CommandContext(ctx, launcher, args...)
	run.Env = append(os.Environ(), choice+"="+m.Name)
	out, err := run.CombinedOutput()
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
		if d := l.First; l.Axis != m.Axis || !matches(m.differs.Layer, d.Layer) || !matches(m.differs.Name, d.Tensor) {
			t.Errorf("%s: axis %s (want %s), step %d, %s (want %s), %s (want %s), by %g",
				l.Layout, l.Axis, m.Axis, d.Step, d.Layer, m.differs.Layer, d.Tensor, m.differs.Name, d.Distance)
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
