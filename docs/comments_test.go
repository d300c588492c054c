package docs

// What a program can check of how comments are written.

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = ".." // of the repository

// mostColumns is the maximum width of a line that holds only a comment. A tab in front of it takes
// 4 columns.
const mostColumns = 100

// goFiles returns the Go files of the repository with their texts, without generated files.
func goFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		if generated := strings.Contains(string(text[:min(len(text), 400)]), "DO NOT EDIT"); !generated {
			files[name] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 500 {
		t.Fatalf("only %d Go files below %s", len(files), root)
	}
	return files
}

func TestCommentsWrap(t *testing.T) {
	for name, text := range goFiles(t) {
		for i, line := range strings.Split(text, "\n") {
			comment := strings.TrimLeft(line, "\t")
			columns := 4*(len(line)-len(comment)) + utf8.RuneCountInString(comment)
			if strings.HasPrefix(comment, "//") && !strings.HasPrefix(comment, "//go:") && columns > mostColumns {
				t.Errorf("%s:%d: a comment of %d columns, at most %d", name, i+1, columns, mostColumns)
			}
		}
	}
}

// TestPackageComments: a package is described in one file. Headers of the others stand below their
// package clauses, where go doc leaves them out.
func TestPackageComments(t *testing.T) {
	described := map[string][]string{}
	for name := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		if file.Doc != nil {
			folder := filepath.Dir(name)
			described[folder] = append(described[folder], name)
		}
	}
	for folder, files := range described {
		if slices.Sort(files); len(files) > 1 {
			t.Errorf("%s is described in %s: leave one, and move the others below the package clause", folder, strings.Join(files, ", "))
		}
	}
}
