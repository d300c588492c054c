package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every place is passed by some code of the module: one that has lost its hook would be tested in
// vain.
func TestPlacesHaveHooks(t *testing.T) {
	passed := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && passes(call.Fun) {
				if place, ok := call.Args[0].(*ast.SelectorExpr); ok && isSelector(place, place.Sel.Name) {
					passed[place.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range constants(t) {
		if !passed[name] {
			t.Errorf("no code passes fault.%s", name)
		}
	}
}

// passes reports whether a function is one by which code passes places.
func passes(f ast.Expr) bool {
	return isSelector(f, "Point") || isSelector(f, "Touch") || isSelector(f, "Try")
}

// isSelector reports whether an expression is a name of this package.
func isSelector(e ast.Expr, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "fault"
}

// constants lists the names of the places in the source of this package.
func constants(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "places.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, spec := range g.Specs {
				if name := spec.(*ast.ValueSpec).Names[0]; name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d places in the source", len(names))
	}
	return names
}
