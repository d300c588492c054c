package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
)

// The first line of every recipe is the command that runs it, which can be run.
func TestRecipes(t *testing.T) {
	t.Chdir("..")
	files, err := filepath.Glob("launcher/recipes/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recipes, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(content), "\n")
			first, _, _ = strings.Cut(first, "   ")
			args, ok := strings.CutPrefix(first, "# launcher ")
			words := strings.Fields(args)
			if !ok || !slices.Contains(words, file) {
				t.Fatalf("the first line is %q, want a command with --config %s", first, file)
			}
			if slices.Contains(words, "train") {
				succeed(t, append(words, "--dry-run")...)
				return
			}
			f := new(checking.CompareFlags)
			fs, _ := cli.Command{Name: "compare", Define: f.Define}.Flags()
			if _, err := cli.Parse(fs, slices.DeleteFunc(words, func(w string) bool { return w == "compare" })); err != nil {
				t.Fatal(err)
			}
			c, err := f.Comparison(*f.Given, &running.RunClaim{})
			if err == nil {
				c.Out, c.Console = t.TempDir(), io.Discard
				if c.Config.Data == nil { // the sources of Go, which take long to read
					c.Config.Data = []string{ownText}
				}
				err = c.Check()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
