package model

// The model against the code that it models: by names, since nothing else ties them together.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// counterpart matches a comment of the model: a function's name, and the package, type and method
// that it models.
var counterpart = regexp.MustCompile(`^(\w+) is ((?:collective|heap)\.\w+\.(\w+))\b`)

// mark stands in the comment of every function that the model models.
const mark = "Checked by internal/model."

// methods returns the comments of the methods that some files declare, by package, type and name.
func methods(t *testing.T, files ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of := f.Recv.List[0].Type
			if pointer, ok := of.(*ast.StarExpr); ok {
				of = pointer.X
			}
			receiver, ok := of.(*ast.Ident)
			if !ok {
				continue // a generic type, which the protocol has none of
			}
			all[file.Name.Name+"."+receiver.Name+"."+f.Name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
	return all
}

// packageFiles returns the Go files of a folder that are not tests.
func packageFiles(t *testing.T, folder string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, filepath.Join(folder, name))
		}
	}
	return files
}

// TestCounterparts: every function of the protocol names one of collective or heap that exists, has
// the same name and is marked as modelled. No other function is marked.
func TestCounterparts(t *testing.T) {
	code := methods(t, append(packageFiles(t, "../.."), packageFiles(t, "../../heap")...)...)
	modelled := map[string]bool{}
	for function, comment := range methods(t, "protocol.go", "heap.go") {
		_, name, _ := strings.Cut(strings.TrimPrefix(function, "model."), ".")
		if strings.HasPrefix(comment, "own: "+name+" ") {
			continue
		}
		match := counterpart.FindStringSubmatch(comment)
		if match == nil || match[1] != name || !strings.EqualFold(match[3], name) {
			t.Errorf("%s: its comment %q names no counterpart of the same name, as in \"%s is collective.group.%s.\", and does not begin with \"own: %s\"", function, comment, name, name, name)
			continue
		}
		modelled[match[2]] = true
		text, exists := code[match[2]]
		if !exists {
			t.Errorf("%s models %s, which does not exist", function, match[2])
		} else if !strings.HasSuffix(text, mark) {
			t.Errorf("%s models %s, whose comment does not end with %q", function, match[2], mark)
		}
	}
	for function, comment := range code {
		if strings.Contains(comment, mark) && !modelled[function] {
			t.Errorf("%s is marked as modelled, and the model has no function for it", function)
		}
	}
	if len(modelled) < 12 {
		t.Errorf("the model has %d functions with a counterpart, fewer than the protocol needs", len(modelled))
	}
}
