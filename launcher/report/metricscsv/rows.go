package metricscsv

// The columns and the rows of a table.

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"spmoe/launcher/record"
)

// stepColumns returns the columns of a step. They come first, in this order, in every table.
func stepColumns() (names []string) {
	for _, q := range record.Quantities {
		if q.CSV != "" {
			names = append(names, q.CSV)
		}
	}
	return names
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
	for _, l := range lines {
		for name := range values(l, r.start) {
			switch {
			case l.Phases != nil:
				phases[name] = true
			case l.Eval != nil && !slices.Contains(evals, name):
				evals = append(evals, name)
			}
		}
	}
	r.columns = slices.Concat(stepColumns(), evals, slices.Sorted(maps.Keys(phases)))
	for i, name := range r.columns {
		r.index[name] = i
	}
	return r
}

// have reports whether there is a column for every value of some lines.
func (r *rows) have(lines []record.Line) bool {
	for _, l := range lines {
		for name := range values(l, r.start) {
			if _, ok := r.index[name]; !ok {
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
		step, ok := stepOf(l)
		if !ok {
			continue
		}
		if r.current == nil || step != r.step {
			complete = append(complete, r.last()...)
			r.step, r.current = step, make([]string, len(r.columns))
			r.current[0] = strconv.Itoa(step)
		}
		for name, x := range values(l, r.start) {
			r.current[r.index[name]] = number(x)
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

// stepOf returns the step whose row has the values of a line.
func stepOf(l record.Line) (step int, ok bool) {
	switch {
	case l.Step != nil:
		return l.Step.Step, true
	case l.Eval != nil:
		return l.Eval.Step, true
	case l.Phases != nil:
		return l.Phases.Step, true
	}
	return 0, false
}

// values yields the columns of a line and its values in them.
func values(l record.Line, start record.Start) func(yield func(string, float64) bool) {
	return func(yield func(string, float64) bool) {
		switch {
		case l.Step != nil:
			stepValues(l.Step, start, yield)
		case l.Eval != nil:
			evalValues(l.Eval, yield)
		case l.Phases != nil:
			for family, seconds := range l.Phases.Families {
				if !yield("phases."+family, seconds) {
					return
				}
			}
		}
	}
}

func stepValues(s *record.Step, start record.Start, yield func(string, float64) bool) {
	step := s.With(start)
	for _, q := range record.Quantities {
		if q.CSV != "" && !yield(q.CSV, q.Of(&step)) {
			return
		}
	}
}

func evalValues(e *record.Eval, yield func(string, float64) bool) {
	if !yield("eval.loss", float64(e.Loss)) || !yield("eval.sequences", float64(e.Sequences)) {
		return
	}
	for _, t := range e.Tasks {
		for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
			if !yield("eval.tasks."+t.Task+"."+name, float64(t.Metrics[name])) {
				return
			}
		}
	}
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
