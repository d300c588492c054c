package main

// events.jsonl: what has happened to the processes of a run, one JSON object a line.

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"spmoe/launcher/spmd"
)

// eventLog appends to the file in a run's folder, which is made with the first event.
type eventLog struct {
	folder string
	file   *os.File
	err    error // the first
}

func (l *eventLog) add(e spmd.Event) {
	if e.Kind == spmd.Started { // of this, the console tells
		return
	}
	if l.file == nil && l.err == nil {
		l.file, l.err = os.OpenFile(filepath.Join(l.folder, "events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	}
	if l.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	l.err = err
}

func (l *eventLog) close() error {
	if l.file == nil {
		return l.err
	}
	return errors.Join(l.err, l.file.Close())
}
