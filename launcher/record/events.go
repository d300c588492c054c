package record

// events.jsonl: the events of a run other than its steps, above all of its processes, one JSON
// object per line. The launcher and the leading rank both append to it.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"spmoe/internal/strictjson"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// EventsFile is the name of the file in the folder of its run.
const EventsFile = "events.jsonl"

// EventLog appends to the file in the folder of a run. The first event creates the file. Only
// Folder needs to be set.
type EventLog struct {
	Folder string
	file   *os.File
	err    error // the first
}

// Add adds an event.
func (l *EventLog) Add(e spmd.Event) {
	if l.file == nil && l.err == nil {
		l.file, l.err = os.OpenFile(filepath.Join(l.Folder, EventsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	}
	if l.err != nil {
		return
	}
	text, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(text, '\n')) // in one write, so that lines of several writers do not mix
	}
	l.err = err
}

// Close returns the first error.
func (l *EventLog) Close() error {
	if l.file == nil {
		return l.err
	}
	err := errors.Join(l.err, l.file.Close())
	l.file, l.err = nil, nil
	return err
}

// Limits on what is read from one file.
const (
	maxEvents = 1 << 16
	maxReason = 64 << 10 // bytes
)

// ReadEvents returns the events of a run, or none if it has no such file. It ignores an incomplete
// last line.
func ReadEvents(run string) (events []spmd.Event, err error) {
	path := filepath.Join(run, EventsFile)
	file, _, err := system.OpenRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	in := bufio.NewScanner(file)
	in.Buffer(nil, maxLine)
	in.Split(endedLines)
	for in.Scan() {
		var e spmd.Event
		err := strictjson.Unmarshal(in.Bytes(), &e)
		if err == nil {
			err = checkEvent(e)
		}
		if err == nil && len(events) == maxEvents {
			err = fmt.Errorf("it has more than %d events", maxEvents)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(events)+1, err)
		}
		events = append(events, e)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, len(events)+1, err)
	}
	return events, nil
}

// checkEvent returns an error if an event breaks a rule.
func checkEvent(e spmd.Event) error {
	switch {
	case e.Kind == "":
		return errors.New(`it has no "event"`)
	case e.Rank < -1 || e.Step < -1 || e.Step > maxCount || e.After < 0:
		return fmt.Errorf("rank %d, step %d, after %v: expected -1 or more, and no negative time", e.Rank, e.Step, e.After)
	case len(e.Reason) > maxReason:
		return fmt.Errorf("a reason of %d bytes is longer than %d", len(e.Reason), maxReason)
	}
	return named(string(e.Kind))
}
