package record

// events.jsonl: what has happened to a run beside its steps, to its processes above all, one JSON
// object a line. The launcher and the rank that leads both add to it.

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

// EventLog appends to the file in the folder of a run, which is made with the first event. The zero
// value of all else is ready.
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
		_, err = l.file.Write(append(text, '\n')) // at once, so that lines of several writers do not mix
	}
	l.err = err
}

// Close returns the first error there was.
func (l *EventLog) Close() error {
	if l.file == nil {
		return l.err
	}
	err := errors.Join(l.err, l.file.Close())
	l.file, l.err = nil, nil
	return err
}

// The most that is read of one file.
const (
	maxEvents = 1 << 16
	maxReason = 64 << 10 // bytes
)

// ReadEvents returns the events of a run, none if it has no such file. A last line that was cut off
// is left out.
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

// checkEvent says which rule an event breaks.
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
