package main

// The table of all sides' medians for one number of ranks.

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"spmoe/bench"
)

// columns are the compared exchanges: those of the engine, and for each MPI its own and the one
// without duplicates.
var columns = []string{"goroutines", "processes", "Open MPI", "Open MPI dedup", "MPICH", "MPICH dedup"}

// ratios are quotients of columns.
var ratios = []struct{ name, over, under string }{
	{"/gor", "Open MPI", "goroutines"}, {"/proc", "Open MPI", "processes"},
	{"d/gor", "Open MPI dedup", "goroutines"}, {"d/proc", "Open MPI dedup", "processes"},
}

// table collects the times of all sides.
type table struct {
	operations []string                        // in the order of their results
	times      map[string]map[string][]float64 // by column and operation, one per run
	libraries  map[string]string               // versions, by side
	single     map[string]float64              // lowest share of rows transferred by a single copy, by side
}

// add adds one run's results.
func (t *table) add(s side, results []result) error {
	if t.times == nil {
		*t = table{times: map[string]map[string][]float64{}, libraries: map[string]string{}, single: map[string]float64{}}
	}
	for _, r := range results {
		name, ok := strings.CutPrefix(r.Name, s.prefix)
		switch {
		case !ok:
			return fmt.Errorf("result %q does not begin with %q", r.Name, s.prefix)
		case name == "library":
			t.libraries[s.name] = r.Library
		case strings.HasPrefix(name, "single_copy_"):
			least, seen := t.single[s.name]
			if !seen || r.Value < least {
				t.single[s.name] = r.Value
			}
		case r.Unit == "us":
			if column, operation, ok := cellOf(s, name); ok {
				t.put(column, operation, r.time())
			}
		}
	}
	return nil
}

// cellOf returns the column and operation of a result, if the table compares it.
func cellOf(s side, name string) (column, operation string, ok bool) {
	if s.prefix == "" { // the engine
		if operation, ok := strings.CutPrefix(name, "onesided_"); ok {
			return s.name, operation, true
		}
		return s.name, name, name == "barrier" || strings.HasPrefix(name, "all_reduce_")
	}
	if operation, ok := strings.CutPrefix(name, "dedup_"); ok {
		return s.name + " dedup", operation, true
	}
	return s.name, name, true
}

func (t *table) put(column, operation string, us float64) {
	if t.times[column] == nil {
		t.times[column] = map[string][]float64{}
	}
	t.times[column][operation] = append(t.times[column][operation], us)
	if !slices.Contains(t.operations, operation) {
		t.operations = append(t.operations, operation)
	}
}

func (t *table) print(out io.Writer, ranks int) {
	fmt.Fprintf(out, "\n%d ranks\n%-28s", ranks, "operation")
	for _, c := range columns {
		fmt.Fprintf(out, " %14s", c)
	}
	for _, r := range ratios {
		fmt.Fprintf(out, " %6s", r.name)
	}
	fmt.Fprintln(out)
	for _, operation := range t.operations {
		line := fmt.Sprintf("%-28s", operation)
		for _, c := range columns {
			line += fmt.Sprintf(" %14s", cell("%.1f", median(t.times[c][operation])))
		}
		for _, r := range ratios {
			over, under := t.times[r.over][operation], t.times[r.under][operation]
			ratio := math.NaN()
			if len(over) > 0 && len(over) == len(under) {
				ratio = bench.MedianRatio(over, under)
			}
			line += fmt.Sprintf(" %6s", cell("%.2f", ratio))
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	for _, m := range implementations {
		if single, ok := t.single[m.name]; ok {
			fmt.Fprintf(out, "# %s, %s\n", t.libraries[m.name], copies(single))
		}
	}
}

// copies describes how rows travel. single is the share of the rows to other ranks that the system
// copied directly from process to process.
func copies(single float64) string {
	if single < 0.9 {
		return fmt.Sprintf("NOT all rows went by a single copy (CMA), but %.0f%%: it may lack the right to trace processes", 100*single)
	}
	return "all rows to other ranks went by a single copy (CMA)"
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	return bench.Median(x)
}

// cell formats a number, and nothing for a missing one.
func cell(format string, x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf(format, x)
}
