package record

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/spmd"
)

// Events come back, those of two writers in the order in which they were added, and a last one that
// was cut off does not.
func TestEvents(t *testing.T) {
	run := t.TempDir()
	if got, err := ReadEvents(run); err != nil || got != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	at := time.Date(2026, 11, 21, 20, 0, 0, 123456789, time.UTC)
	want := []spmd.Event{
		{Time: at, Kind: spmd.Detected, Rank: 2, Process: 4711, Step: 7, Generation: 1, Reason: "killed\n\"by\" somebody"},
		{Time: at, Kind: spmd.Alarm, Rank: -1, Step: 8, Reason: "rank 3 is slow"},
		{Time: at, Kind: spmd.Resumed, Rank: -1, Step: -1, After: 3 * time.Millisecond},
	}
	logs := [2]EventLog{{Folder: run}, {Folder: run}}
	for i, e := range want {
		logs[i%2].Add(e)
	}
	for i := range logs {
		if err := logs[i].Close(); err != nil {
			t.Error(err)
		}
	}
	if got, err := ReadEvents(run); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v come back as %+v (%v)", want, got, err)
	}
	path := filepath.Join(run, EventsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadEvents(run); err != nil || !reflect.DeepEqual(got, want[:2]) {
		t.Errorf("cut off: %+v (%v)", got, err)
	}
	bad := EventLog{Folder: filepath.Join(run, "none")}
	bad.Add(want[0])
	if err := bad.Close(); err == nil {
		t.Error("an event in no folder is no error")
	}
}

func TestEventsRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                             `:2: it has no "event"`,
		`{"event":"alarm","time":"now"}`: ":2: ",
		`event`:                          ":2: ",
		strings.Repeat("x", maxLine):     ":2: ",
	} {
		run := t.TempDir()
		text := `{"time":"2026-11-21T20:00:00Z","event":"detected","rank":1,"step":3,"generation":0}` + "\n" + line + "\n"
		if err := os.WriteFile(filepath.Join(run, EventsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEvents(run); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), EventsFile) {
			t.Errorf("%.80s: error %.200v, want %q", line, err, want)
		}
	}
}
