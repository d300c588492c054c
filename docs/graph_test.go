package docs

// What the packages of this module import, read from their source files.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the prefix of this module's import paths.
const module = "spmoe/"

// importGraph maps each folder with Go code to its imports, and each import to one file that has
// it.
type importGraph map[string]map[string]string

// readPackages returns the imports of all folders below root. It leaves out tests
// and reads the files of all architectures and build tags.
func readPackages(root string) (importGraph, error) {
	graph := importGraph{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != root && (base == "testdata" || base[0] == '.' || base[0] == '_') {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		return graph.add(file, relative)
	})
	return graph, err
}

// add records the imports of a file, which stands at relative below the root.
func (g importGraph) add(file *ast.File, relative string) error {
	folder := path.Dir(relative)
	if g[folder] == nil {
		g[folder] = map[string]string{}
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		g[folder][imported] = relative
	}
	return nil
}

// local returns, in order, the folders of this module that a folder imports.
func (g importGraph) local(folder string) (folders []string) {
	for imported := range g[folder] {
		if to, ok := strings.CutPrefix(imported, module); ok {
			folders = append(folders, to)
		}
	}
	slices.Sort(folders)
	return folders
}

// within reports whether folder is parent or lies below it.
func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// imports reports whether a folder below one top-level folder imports one below another.
func (g importGraph) imports(from, to string) bool {
	for folder := range g {
		if within(folder, from) && slices.ContainsFunc(g.local(folder), func(f string) bool { return within(f, to) }) {
			return true
		}
	}
	return false
}
