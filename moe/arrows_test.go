//go:build arrows

package moe

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostArrows is the number of arrows that may run against the order of the files in doc.go, as one
// of every circle does. It only goes down.
const mostArrows = 17

// longestFile is the number of lines that a file may have, so that files are not merged to hide
// arrows.
const longestFile = 400

// An arrow leads from a file to another one whose definitions it uses: types, fields, functions,
// methods, variables and constants.
type arrow struct{ from, to string }

// Files use what stands below them in doc.go. The test draws the arrows that run upwards.
func TestArrows(t *testing.T) {
	files, fset := parsePackage(t)
	place := map[string]int{}
	for i, name := range orderOfFiles(t) {
		place[name] = i
	}
	for name, file := range files {
		if _, ok := place[name]; !ok {
			t.Errorf("%s has no place in doc.go", name)
		}
		if n := fset.Position(file.FileEnd).Line; n > longestFile {
			t.Errorf("%s has %d lines: at most %d", name, n, longestFile)
		}
	}
	arrows := drawArrows(t, files, fset)
	var against []string
	for a, uses := range arrows {
		if place[a.from] > place[a.to] {
			names := slices.Sorted(maps.Keys(uses))
			against = append(against, fmt.Sprintf("%3d %s -> %s: %s", len(names), a.from, a.to, strings.Join(names, " ")))
		}
	}
	slices.Sort(against)
	t.Logf("%d of %d arrows run against the order", len(against), len(arrows))
	if n := len(against); n > mostArrows {
		t.Errorf("%d arrows: at most %d. Those with the fewest names first:\n%s", n, mostArrows, strings.Join(against, "\n"))
	}
}

// parsePackage returns the files of the package without its tests, by name without ".go".
func parsePackage(t *testing.T) (map[string]*ast.File, *token.FileSet) {
	t.Helper()
	files, fset := map[string]*ast.File{}, token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || path == "doc.go" {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(path, ".go")] = file
	}
	return files, fset
}

// orderOfFiles returns the files in the order of doc.go, which draws them after its heading.
func orderOfFiles(t *testing.T) (names []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, drawn, found := bytes.Cut(doc, []byte("\n// # The order of the files\n"))
	if !found {
		t.Fatal("doc.go does not draw the order of the files")
	}
	drawn, _, _ = bytes.Cut(drawn, []byte("\n// # "))
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(string(drawn), -1) {
		if _, err := os.Stat(word + ".go"); err == nil && !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	return names
}

// drawArrows returns the definitions that each file uses of another one.
func drawArrows(t *testing.T, files map[string]*ast.File, fset *token.FileSet) map[arrow]map[string]bool {
	t.Helper()
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", exportData(t))}
	pkg, err := config.Check("moe", fset, slices.Collect(maps.Values(files)), &info)
	if err != nil {
		t.Fatal(err)
	}
	arrows := map[arrow]map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != pkg || isLocal(object) {
			continue
		}
		a := arrow{fileOf(fset, id.Pos()), fileOf(fset, object.Pos())}
		if a.from == a.to {
			continue
		}
		if arrows[a] == nil {
			arrows[a] = map[string]bool{}
		}
		arrows[a][object.Name()] = true
	}
	return arrows
}

// isLocal reports whether an object belongs to a function.
func isLocal(object types.Object) bool {
	if v, ok := object.(*types.Var); ok && v.IsField() {
		return false
	}
	if f, ok := object.(*types.Func); ok && f.Signature().Recv() != nil {
		return false
	}
	return object.Parent() != object.Pkg().Scope()
}

func fileOf(fset *token.FileSet, at token.Pos) string {
	return strings.TrimSuffix(filepath.Base(fset.Position(at).Filename), ".go")
}

// exportData finds the compiled packages that the package imports.
func exportData(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, export, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[path] = export
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(paths[path]) }
}
