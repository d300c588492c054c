package record

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/spmd"
)

// sick is a file on a disk that has room for some bytes only.
type sick struct {
	*os.File
	room int64 // most bytes of the file; -1: any number
}

func (s *sick) WriteAt(b []byte, at int64) (int, error) {
	if s.room < 0 || at+int64(len(b)) <= s.room {
		return s.File.WriteAt(b, at)
	}
	n, err := s.File.WriteAt(b[:max(s.room-at, 0)], at)
	return n, errors.Join(syscall.ENOSPC, err)
}

// After a disk was full the record goes on without a gap. Readers never see part of a line before
// another one.
func TestRecordGoesOn(t *testing.T) {
	for room := int64(0); room < 300; room += 7 {
		run := t.TempDir()
		w := open(t, run, 0)
		file := &sick{File: w.file.(*os.File), room: room}
		w.file = file
		var failed bool
		for step := 1; step <= 6; step++ {
			w.Step(Step{Step: step, Seconds: 0.5})
			err := w.Push()
			if failed = failed || err != nil; err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(run, File))
			if err != nil || len(text) > 0 && text[len(text)-1] != '\n' {
				t.Errorf("room for %d bytes, step %d: the file ends with %q (%v)", room, step, text[max(0, len(text)-20):], err)
			}
			if step == 4 {
				file.room = -1
			}
		}
		if !failed {
			t.Errorf("room for %d bytes: nothing failed", room)
		}
		closed(t, w)
		if steps := readBack(t, run).Steps; len(steps) != 6 || steps[5].Step != 6 {
			t.Errorf("room for %d bytes: the record has %+v", room, steps)
		}
	}
}

// A disk that stays full ends the record when too much waits in memory, and what is there is whole.
func TestRecordEnds(t *testing.T) {
	run := t.TempDir()
	w := open(t, run, 0)
	w.file = &sick{File: w.file.(*os.File), room: 1000}
	for step := 1; w.err == nil; step++ {
		w.Load(Load{Step: step, Layer: 1, Tokens: make([]int64, 1<<18)})
		if len(w.waiting) > mostWaiting+maxLine {
			t.Fatalf("%d bytes wait", len(w.waiting))
		}
	}
	if err := w.Push(); !errors.Is(err, ErrEnded) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if err := w.Close(); !errors.Is(err, ErrEnded) {
		t.Errorf("error %v", err)
	}
	if _, err := Read(run); err != nil {
		t.Error(err)
	}
}

// Events wait in memory while the disk is full, too.
func TestEventsGoOn(t *testing.T) {
	var want []spmd.Event
	run := t.TempDir()
	log := EventLog{Folder: run}
	broken := filepath.Join(run, EventsFile)
	if err := os.Mkdir(broken, 0o777); err != nil { // it cannot be opened
		t.Fatal(err)
	}
	for step := range int64(5) {
		e := spmd.Event{Kind: spmd.Alarm, Rank: -1, Step: step, Reason: strings.Repeat("x", 20)}
		if want = append(want, e); step == 3 {
			if err := os.Remove(broken); err != nil {
				t.Fatal(err)
			}
		}
		log.Add(e)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if got, err := ReadEvents(run); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v come back as %+v (%v)", want, got, err)
	}
}
