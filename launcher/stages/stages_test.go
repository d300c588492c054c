package stages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copying is a job of two stages: the second copies what the first has written.
type copying struct {
	folder string
	text   string // input of the first stage
	fail   string // stage that fails, after it has written a part
	log    []string
}

func (c *copying) run() (string, error) {
	c.log = nil
	j, err := Open(c.folder, func(stage, what string) { c.log = append(c.log, strings.TrimSpace(stage+" "+what)) })
	if err != nil {
		return "", err
	}
	stage := func(name, input string, resumes bool) Stage[string] {
		path := filepath.Join(c.folder, name)
		return Stage[string]{Name: name, Inputs: input, Files: []string{name}, Resumes: resumes, Run: func(context.Context) (string, error) {
			before, _ := os.ReadFile(path)
			if c.fail == name {
				return "", errors.Join(errors.New("failed"), os.WriteFile(path, []byte("part "), 0o666))
			}
			text := string(before) + input
			return text, os.WriteFile(path, []byte(text), 0o666)
		}}
	}
	first, err := Do(context.Background(), j, stage("first", c.text, false))
	if err != nil {
		return "", err
	}
	return Do(context.Background(), j, stage("second", first, true))
}

// want runs the job and compares its result and what it tells.
func (c *copying) want(t *testing.T, result string, log ...string) {
	t.Helper()
	got, err := c.run()
	if err != nil || got != result || !slices.Equal(c.log, log) {
		t.Errorf("result %q, want %q; told %q, want %q; %v", got, result, c.log, log, err)
	}
}

// Stages that are done are not repeated, unless their inputs changed or their files are gone.
func TestStagesAreNotRepeated(t *testing.T) {
	c := &copying{folder: filepath.Join(t.TempDir(), "job"), text: "a"}
	c.want(t, "a", "first", "second")
	c.want(t, "a", "first done before", "second done before")
	c.text = "b"
	c.want(t, "b", "first its inputs changed: the earlier first is now first.old", "first",
		"second its inputs changed: the earlier second is now second.old", "second")
	c.text = "a"
	c.want(t, "a", "first its inputs changed: the earlier first is now first.old-2", "first",
		"second its inputs changed: the earlier second is now second.old-2", "second")
	for name, text := range map[string]string{"first.old": "a", "first.old-2": "b", "second.old-2": "b"} {
		if got, err := os.ReadFile(filepath.Join(c.folder, name)); err != nil || string(got) != text {
			t.Errorf("%s holds %q: %v", name, got, err)
		}
	}
	if err := os.Remove(filepath.Join(c.folder, "first")); err != nil {
		t.Fatal(err)
	}
	c.want(t, "a", "first", "second done before")
}

// A stage that was interrupted runs again: one that resumes with its files, another one without.
func TestInterruptedStages(t *testing.T) {
	c := &copying{folder: t.TempDir(), text: "a", fail: "first"}
	if _, err := c.run(); err == nil {
		t.Fatal("it has not failed")
	}
	c.fail = "second"
	if _, err := c.run(); err == nil || !slices.Equal(c.log, []string{"first", "second"}) {
		t.Errorf("told %q, %v", c.log, err)
	}
	c.fail = ""
	c.want(t, "part a", "first done before", "second")
}

// Files that no stage has written are left alone, and a damaged record is an error.
func TestForeignFiles(t *testing.T) {
	c := &copying{folder: t.TempDir(), text: "a"}
	for name, want := range map[string]string{"first": "has not written it", File: "remove this file"} {
		path := filepath.Join(c.folder, name)
		if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := c.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
			t.Errorf("%s holds %q: %v", name, text, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Times of several attempts add up.
func TestTimesAddUp(t *testing.T) {
	j, err := Open(t.TempDir(), func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	var seconds []float64
	for attempt := range 2 {
		Do(t.Context(), j, Stage[int]{Name: "s", Run: func(context.Context) (int, error) {
			if attempt == 0 {
				return 0, fmt.Errorf("failed")
			}
			return 1, nil
		}})
		seconds = append(seconds, j.Entries[0].Seconds)
	}
	if !(0 < seconds[0] && seconds[0] < seconds[1]) || !j.Entries[0].Done {
		t.Errorf("%v, %+v", seconds, j.Entries)
	}
}
