package metricscsv

// The columns and the rows of a table.

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"spmoe/launcher/record"
)

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
