package record

// events.jsonl: the events of a run other than its steps, above all of its processes, one JSON
// object per line. The launcher and the leading rank both append to it.

import (
	"bytes"
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

// EventLog appends to the file in the folder of a run. The first event creates the file. Events
// that cannot be written, for example because the disk is full, wait in memory for the next one.
// Only Folder needs to be set.
type EventLog struct {
	Folder  string
	Held    *system.FolderLock // the folder if the job holds it: the file is created in no other
	file    *os.File
	waiting [][]byte // lines
	err     error    // of the last attempt
	lost    int      // events that were too many to wait
}

// mostEventsWaiting is the maximum number of events that wait.
const mostEventsWaiting = 4096

// Add adds an event.
func (l *EventLog) Add(e spmd.Event) {
	text, err := json.Marshal(e)
	if err != nil {
		l.err = err
		return
	}
	if len(l.waiting) == mostEventsWaiting {
		l.lost++
		return
	}
	l.waiting = append(l.waiting, append(text, '\n'))
	l.err = l.write()
}

// write appends the waiting events to the file.
func (l *EventLog) write() (err error) {
	if l.file == nil {
		if err := l.Held.Check(); err != nil {
			return err
		}
		if l.file, err = system.OpenOwn(l.Folder, EventsFile, os.O_CREATE|os.O_RDWR|os.O_APPEND); err != nil {
			return err
		}
	}
	for len(l.waiting) > 0 {
		line := l.waiting[0]
		n, err := l.file.Write(line) // in one write, so that lines of several writers do not mix
		if err != nil {
			return errors.Join(err, l.cutOff(line[:n]))
		}
		l.waiting = l.waiting[1:]
	}
	return nil
}

// cutOff removes part of a line from the end of the file, so that the next line does not follow it.
func (l *EventLog) cutOff(part []byte) error {
	stat, err := l.file.Stat()
	if err != nil || len(part) == 0 {
		return err
	}
	at := stat.Size() - int64(len(part))
	there := make([]byte, len(part))
	if _, err := l.file.ReadAt(there, max(at, 0)); err != nil || !bytes.Equal(there, part) {
		return err // another writer has added to it
	}
	return l.file.Truncate(at)
}

// Close tries once more to write what waits, and ends the file. Its error says which events are
// missing in it.
func (l *EventLog) Close() error {
	if len(l.waiting) > 0 {
		l.err = l.write()
	}
	err := l.err
	if missing := len(l.waiting) + l.lost; missing > 0 {
		err = fmt.Errorf("%d events are missing in %s: %w", missing, EventsFile, err)
	}
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	*l = EventLog{Folder: l.Folder, Held: l.Held}
	return err
}

// ReadEvents returns the events of a run, or none if it has no such file. It ignores an incomplete
// last line.
func ReadEvents(run string) (events []spmd.Event, err error) {
	path := filepath.Join(run, EventsFile)
	file, err := system.OpenOwn(run, EventsFile, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	err = scan(path, file, 0, func(text []byte) error {
		var e spmd.Event
		if err := strictjson.Unmarshal(text, &e); err != nil {
			return err
		}
		if e.Kind == "" {
			return errors.New(`it has no "event"`)
		}
		events = append(events, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}
