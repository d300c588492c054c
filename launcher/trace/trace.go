// Package trace writes what the ranks of a run did when, in the JSON form of the Trace Event
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

// Row is what one rank did, from top to bottom of the picture: slices that lie in each other, or
// after each other.
type Row struct {
	Name   string
	Slices []Slice
}

// Slice is a stretch of time in ns, by a clock that all rows share.
type Slice struct {
	Name, Category string
	From, To       int64
}

// event is an object of the format, whose times are in microseconds.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"` // X: a slice with its duration; M: what a row is called
	Time     json.Number    `json:"ts,omitempty"`
	Duration json.Number    `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// Write writes rows under a title. The time of the first slice is 0; slices of a row are sorted,
// those that others lie in first.
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
				Name: s.Name, Category: s.Category, Phase: "X", Time: microseconds(s.From - begin), Duration: microseconds(s.To - s.From), Thread: i,
			}))
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush()
}

// first is when the first slice begins.
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

// microseconds writes ns, exactly.
func microseconds(ns int64) json.Number { return json.Number(fmt.Sprintf("%d.%03d", ns/1000, ns%1000)) }
