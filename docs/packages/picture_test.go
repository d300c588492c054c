package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPictureIsCurrent: the committed picture is what the command draws.
func TestPictureIsCurrent(t *testing.T) {
	want, err := draw(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../packages.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/packages.svg is stale: run go run ./docs/packages > docs/packages.svg")
	}
}

// TestBoxes: a box's layer is the longest path to it, and no arrow repeats what a longer path says.
func TestBoxes(t *testing.T) {
	graph := importGraph{
		"launcher":           {"spmoe/moe": "", "spmoe/mx": "", "spmoe/tensor/cpu": "", "fmt": ""},
		"moe/optim":          {"spmoe/mx": ""},
		"moe":                {"spmoe/moe/optim": ""},
		"mx":                 {"spmoe/tensor": ""},
		"tensor":             {},
		"tensor/cpu":         {},
		"docs":               {"spmoe/launcher": ""},
		"internal/testing/x": {},
	}
	all, err := boxes(graph)
	if err != nil {
		t.Fatal(err)
	}
	want := []box{
		{"launcher", nil, 0, []string{"moe"}},
		{"moe", []string{"optim"}, 1, []string{"mx"}},
		{"mx", nil, 2, []string{"tensor"}},
		{"tensor", []string{"cpu"}, 3, nil},
	}
	same := func(b *box, w box) bool {
		return b.folder == w.folder && b.layer == w.layer && slices.Equal(b.packages, w.packages) && slices.Equal(b.arrows, w.arrows)
	}
	if !slices.EqualFunc(all, want, same) {
		for _, b := range all {
			t.Errorf("got %+v", *b)
		}
	}
}

func TestCircleIsRefused(t *testing.T) {
	graph := importGraph{"mx": {"spmoe/tensor/cpu": ""}, "tensor": {"spmoe/mx": ""}, "tensor/cpu": {}}
	if _, err := boxes(graph); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("groups that import each other: %v", err)
	}
}

func TestWrongFolder(t *testing.T) {
	if _, err := draw(t.TempDir()); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("an empty folder: %v", err)
	}
}
