// Package trace writes the timeline of the ranks of a run in the JSON form of the Trace Event
// Format, which Perfetto and chrome://tracing open.
package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// File is the name of a trace in the folder of its run.
const File = "trace.json"

// Row is the timeline of one rank, from top to bottom of the picture. Its slices are nested or
// follow each other.
type Row struct {
	Name   string
	Slices []Slice
}

// Slice is an interval of time in ns, by a clock that all rows share.
type Slice struct {
	Name, Category string
	From, To       int64
	Args           map[string]any // what to show of the slice; nil: nothing
}

// event is an object of the format, whose times are in microseconds.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"` // X: a slice with its duration; M: the name of a row
	Time     json.Number    `json:"ts,omitempty"`
	Duration json.Number    `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// Write writes rows under a title. The first slice begins at time 0. The slices of a row are
// sorted, enclosing slices first.
func Write(w io.Writer, title string, rows []Row) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, `{"displayTimeUnit":"ms","traceEvents":[`)
	sep := "\n"
	add := func(e event) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s%s", sep, text)
		sep = ",\n"
		return nil
	}
	err := add(event{Name: "process_name", Phase: "M", Args: map[string]any{"name": title}})
	begin := first(rows)
	for i, row := range rows {
		err = cmp.Or(err, add(event{Name: "thread_name", Phase: "M", Thread: i, Args: map[string]any{"name": row.Name}}),
			add(event{Name: "thread_sort_index", Phase: "M", Thread: i, Args: map[string]any{"sort_index": i}}))
		for _, s := range sorted(row.Slices) {
			err = cmp.Or(err, add(event{
				Name: s.Name, Category: s.Category, Phase: "X", Time: microseconds(s.From - begin), Duration: microseconds(s.To - s.From), Thread: i, Args: s.Args,
			}))
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush()
}

// first returns the beginning of the first slice.
func first(rows []Row) (begin int64) {
	found := false
	for _, row := range rows {
		for _, s := range row.Slices {
			if !found || s.From < begin {
				begin, found = s.From, true
			}
		}
	}
	return begin
}

func sorted(list []Slice) []Slice {
	return slices.SortedStableFunc(slices.Values(list), func(a, b Slice) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To)) })
}

// microseconds formats ns as microseconds, exactly.
func microseconds(ns int64) json.Number { return json.Number(fmt.Sprintf("%d.%03d", ns/1000, ns%1000)) }
