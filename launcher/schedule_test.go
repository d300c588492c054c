package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/pipeline"
)

// A schedule is printed, drawn and written, and what is written is described alike.
func TestSchedule(t *testing.T) {
	for _, name := range pipeline.Names() {
		dir := t.TempDir()
		lists, drawing := filepath.Join(dir, "lists.json"), filepath.Join(dir, "x.svg")
		got := launch("schedule", "--name", name, "--pp", "4", "--microbatches", "8", "--json", lists, "--svg", drawing)
		if got.code != exitOK || got.errOut != "" {
			t.Fatalf("%s: exit code %d: %s", name, got.code, got.errOut)
		}
		for _, want := range []string{name + ": 4 ranks", "0F7", "bubble", "published: idle (p-1)"} {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got.out)
			}
		}
		if again := launch("schedule", "--file", lists); again.out != got.out {
			t.Errorf("%s is described as\n%swant\n%s", lists, again.out, got.out)
		}
		if titles := boxes(t, drawing); titles < 4*8*2 {
			t.Errorf("%s: %d actions are drawn", name, titles)
		}
	}
}

// boxes returns the number of actions in a drawing, which must be well-formed.
func boxes(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "g" {
			n++
		}
	}
}

// What cannot be made or executed is an error, which says what is wrong.
func TestScheduleRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"schedules": {"mine": {"0": ["0F0", "0B0"], "1": ["1B0", "1F0"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--name GPipe":               "unknown schedule",
		"--pp 0":                     "0 pipeline ranks",
		"--costs 1,2":                "give three or four times",
		"--costs 1,0,1":              `"0" is not a time`,
		"--file " + bad:              "1B0, action 0 of rank 1",
		"--file " + bad + " --pp 2":  "--file has lists, and --pp makes others",
		"--file " + bad + "/missing": "bad.json/missing",
	} {
		got := launch(append([]string{"schedule"}, strings.Fields(args)...)...)
		if got.code == exitOK || !strings.Contains(got.errOut, want) || got.out != "" {
			t.Errorf("%s: exit code %d, %s%s", args, got.code, got.out, got.errOut)
		}
	}
}
