// Package export writes a run's record for other programs: TensorBoard's event files.
package export

// The events follow from the record alone. Each process that makes steps writes a file of its own
// with all of them, and so does one whose run went back to an earlier step. The newest file
// replaces the others: a reader finds no event twice. A TensorBoard that has read an older file
// drops its later steps when it finds an earlier one.

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// TensorBoardFolder is the place of event files in the folder of a run.
const TensorBoardFolder = "tensorboard"

// TensorBoard keeps the events of a run up to date. It is not safe for concurrent use.
type TensorBoard struct {
	run   string
	from  *record.Follower
	file  *os.File // nil: no event yet
	start record.Start
	now   float64 // of the last event, in seconds since 1970
}

// OpenTensorBoard returns a writer for the record in the folder of a run.
func OpenTensorBoard(run string) *TensorBoard {
	return &TensorBoard{run: run, from: record.Follow(run)}
}

// Update adds the events that follow from new lines of the record.
func (w *TensorBoard) Update() error {
	lines, again, err := w.from.Next()
	if err != nil || len(lines) == 0 && !again {
		return err
	}
	if w.file != nil && !again {
		_, err = w.file.Write(w.events(lines))
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	dir, err := system.OwnFolder(w.run, TensorBoardFolder)
	if err != nil {
		return err
	}
	old, seconds, err := eventFiles(dir)
	if err != nil {
		return err
	}
	if w.file, err = os.OpenFile(filepath.Join(dir, nameOf(seconds)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
		return err
	}
	w.start, w.now = record.Start{}, 0
	content := w.events(lines)
	_, err = w.file.Write(append(appendFrame(nil, event{time: w.start.Time}.marshal()), content...))
	for _, path := range old {
		if err == nil {
			err = os.Remove(path)
		}
	}
	return err
}

// Close ends the file.
func (w *TensorBoard) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// fileName matches names of event files. In the order of their names, files are in the order of
// time. Those of old runs have no number.
var fileName = regexp.MustCompile(`^events\.out\.tfevents\.(?:(\d{10})\..+|spmoe)$`)

// eventFiles returns the paths of the event files in a folder, and the time in seconds since 1970
// for the name of the next one.
func eventFiles(dir string) (paths []string, seconds int64, err error) {
	entries, err := os.ReadDir(dir)
	seconds = time.Now().Unix()
	for _, e := range entries {
		if match := fileName.FindStringSubmatch(e.Name()); match != nil && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
			last, _ := strconv.ParseInt(match[1], 10, 64)
			seconds = max(seconds, last+1)
		}
	}
	return paths, seconds, err
}

// nameOf returns the name of an event file of this process, as TensorFlow forms it.
func nameOf(seconds int64) string {
	host, _ := os.Hostname()
	host = strings.NewReplacer("/", "-", " ", "-").Replace(cmp.Or(host, "localhost"))
	return fmt.Sprintf("events.out.tfevents.%010d.%s.%d.0", seconds, host, os.Getpid())
}

// events returns the framed events that follow from lines.
func (w *TensorBoard) events(lines []record.Line) (content []byte) {
	for _, l := range lines {
		var e event
		w.values(&e, l)
		if e.time, e.step = w.now, l.Number(); e.values != nil {
			content = appendFrame(content, e.marshal())
		}
	}
	return content
}

// values adds the values of a line to its event, and advances the time.
func (w *TensorBoard) values(e *event, l record.Line) {
	switch {
	case l.Start != nil:
		w.start, w.now = *l.Start, max(w.now, l.Start.Time)
	case l.Step != nil:
		if w.now += l.Step.Seconds; l.Step.Time > 0 { // old records lack the time
			w.now = l.Step.Time
		}
		step := l.Step.With(w.start)
		for _, q := range record.Quantities {
			if x, ok := q.In(&step); ok && q.TensorBoard != "" {
				e.scalar(q.TensorBoard, x)
			}
		}
	case l.Eval != nil:
		e.scalar("loss/held-out", float64(l.Eval.Loss))
	case l.Load != nil:
		e.counts(fmt.Sprintf("experts/layer %02d", l.Load.Layer), l.Load.Tokens)
	case l.Phases != nil:
		for _, name := range slices.Sorted(maps.Keys(l.Phases.Families)) {
			e.scalar("seconds/"+strings.ReplaceAll(name, " ", "_"), l.Phases.Families[name])
		}
	}
}
