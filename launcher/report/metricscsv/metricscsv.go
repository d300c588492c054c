// Package metricscsv writes a run's metrics as a table with one row per step, for spreadsheets and
// data frames: metrics.csv, next to metrics.jsonl.
package metricscsv

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// File is the name of the table in the folder of its run.
const File = "metrics.csv"

// Writer keeps the table of a run up to date. The table follows from the record alone, so it is cut
// with it when a run goes back. It is not safe for concurrent use.
type Writer struct {
	run  string
	from *record.Follower
	file *os.File // nil: not written yet
	rows rows
}

// Open returns a Writer for the record in the folder of a run.
func Open(run string) *Writer { return &Writer{run: run, from: record.Follow(run)} }

// Update adds the rows that follow from new lines of the record. The row of the last step waits for
// the next step, because its evaluation may follow. If a line has a value without a column, the
// table is written again with more columns.
func (w *Writer) Update() error {
	lines, again, err := w.from.Next()
	if err != nil || len(lines) == 0 && !again {
		return err
	}
	if w.file == nil || again {
		return w.rewrite(lines)
	}
	if !w.rows.have(lines) {
		w.from = record.Follow(w.run)
		if lines, _, err = w.from.Next(); err != nil {
			return err
		}
		return w.rewrite(lines)
	}
	return w.write(w.rows.add(lines))
}

// rewrite replaces the table by that of all lines.
func (w *Writer) rewrite(lines []record.Line) error {
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			return err
		}
		w.file = nil
	}
	w.rows = newRows(lines)
	text, err := format(append([][]string{w.rows.columns}, w.rows.add(lines)...))
	if err != nil {
		return err
	}
	if err := system.WriteFile(filepath.Join(w.run, File), text); err != nil {
		return err
	}
	w.file, err = system.OpenOwn(w.run, File, os.O_WRONLY|os.O_APPEND)
	return err
}

// write adds rows to the file.
func (w *Writer) write(rows [][]string) error {
	text, err := format(rows)
	if err != nil || len(text) == 0 {
		return err
	}
	_, err = w.file.Write(text)
	return err
}

// Close writes the row of the last step and ends the file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.write(w.rows.last()), w.file.Close())
	w.file = nil
	return err
}

func format(rows [][]string) ([]byte, error) {
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	err := out.WriteAll(rows)
	return text.Bytes(), err
}
