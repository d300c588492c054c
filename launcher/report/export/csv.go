// Package export writes a run's metrics for other programs: metrics.csv and TensorBoard's events.
package export

// metrics.csv: a table with one row per step, for spreadsheets and data frames, next to
// metrics.jsonl.

import (
	"bytes"
	"encoding/csv"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// CSVFile is the name of the table in the folder of its run.
const CSVFile = "metrics.csv"

// CSV keeps the table of a run up to date. The table follows from the record alone, so it is cut
// with it when a run goes back. It is not safe for concurrent use.
type CSV struct {
	run  string
	from *record.Follower
	file *os.File // nil: not written yet
	rows rows
}

// OpenCSV returns a writer for the record in the folder of a run.
func OpenCSV(run string) *CSV { return &CSV{run: run, from: record.Follow(run)} }

// Update adds the rows that follow from new lines of the record. The row of the last step waits for
// the next step, because its evaluation may follow. If a line has a value without a column, the
// table is written again with more columns.
func (w *CSV) Update() error {
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
func (w *CSV) rewrite(lines []record.Line) error {
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
	if err := system.WriteFile(filepath.Join(w.run, CSVFile), text); err != nil {
		return err
	}
	w.file, err = system.OpenOwn(w.run, CSVFile, os.O_WRONLY|os.O_APPEND)
	return err
}

// write adds rows to the file.
func (w *CSV) write(rows [][]string) error {
	text, err := format(rows)
	if err != nil || len(text) == 0 {
		return err
	}
	_, err = w.file.Write(text)
	return err
}

// Close writes the row of the last step and ends the file.
func (w *CSV) Close() error {
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

// rows turns lines of a record into rows.
type rows struct {
	columns []string
	index   map[string]int
	start   record.Start // of the process that makes the steps
	step    int          // of the current row
	current []string     // nil: none
}

// newRows returns rows with the columns of some lines: those of steps, then those of evaluations in
// the order in which they appear, then those of phases by name.
func newRows(lines []record.Line) rows {
	r := rows{index: map[string]int{}}
	evals, phases := []string{}, map[string]bool{}
	for _, v := range values(record.Line{Step: new(record.Step)}, r.start) {
		r.columns = append(r.columns, v.column)
	}
	for _, l := range lines {
		for _, v := range values(l, r.start) {
			switch {
			case l.Phases != nil:
				phases[v.column] = true
			case l.Eval != nil && !slices.Contains(evals, v.column):
				evals = append(evals, v.column)
			}
		}
	}
	r.columns = slices.Concat(r.columns, evals, slices.Sorted(maps.Keys(phases)))
	for i, name := range r.columns {
		r.index[name] = i
	}
	return r
}

// have reports whether there is a column for every value of some lines.
func (r *rows) have(lines []record.Line) bool {
	for _, l := range lines {
		for _, v := range values(l, r.start) {
			if _, ok := r.index[v.column]; !ok {
				return false
			}
		}
	}
	return true
}

// add returns the rows that lines complete.
func (r *rows) add(lines []record.Line) (complete [][]string) {
	for _, l := range lines {
		if l.Start != nil {
			r.start = *l.Start
		}
		if l.Step == nil && l.Eval == nil && l.Phases == nil {
			continue
		}
		step := l.Number()
		if r.current == nil || step != r.step {
			complete = append(complete, r.last()...)
			r.step, r.current = step, make([]string, len(r.columns))
			r.current[0] = strconv.Itoa(step)
		}
		for _, v := range values(l, r.start) {
			r.current[r.index[v.column]] = number(v.x)
		}
	}
	return complete
}

// last returns the current row, if there is one, and ends it.
func (r *rows) last() [][]string {
	if r.current == nil {
		return nil
	}
	row := r.current
	r.current = nil
	return [][]string{row}
}

// value is a number in a column.
type value struct {
	column string
	x      float64
}

// values returns the values of a line.
func values(l record.Line, start record.Start) (list []value) {
	add := func(column string, x float64) { list = append(list, value{column, x}) }
	switch {
	case l.Step != nil:
		step := l.Step.With(start)
		for _, q := range record.Quantities {
			if q.CSV != "" {
				add(q.CSV, q.Of(&step))
			}
		}
	case l.Eval != nil:
		add("eval.loss", float64(l.Eval.Loss))
		add("eval.sequences", float64(l.Eval.Sequences))
		for _, t := range l.Eval.Tasks {
			for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
				add("eval.tasks."+t.Task+"."+name, float64(t.Metrics[name]))
			}
		}
	case l.Phases != nil:
		for family, seconds := range l.Phases.Families {
			add("phases."+family, seconds)
		}
	}
	return list
}

// number formats a value: NaN if it is not finite, and with an exponent only if it is very small or
// very large.
func number(x float64) string {
	switch size := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "NaN"
	case size != 0 && size < 1e-6 || size >= 1e15:
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}
