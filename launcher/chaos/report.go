//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"spmoe/launcher/report"
)

// report prints the outcome of all faults.
func (s *session) report(mode string) {
	table := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	byKind := map[string][]*attack{}
	for _, a := range s.attacks {
		byKind[a.Kind] = append(byKind[a.Kind], a)
	}
	if len(byKind) > 0 {
		fmt.Fprintln(table, "fault\tmade\tdetected p50\tp99\tmax\tresumed p50\tp99\tmax\tredone p50\tp99\tmax")
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		all := byKind[kind]
		made := 0
		for _, a := range all {
			if a.Made {
				made++
			}
		}
		fmt.Fprintf(table, "%s\t%d of %d", kind, made, len(all))
		for _, of := range []func(*attack) time.Duration{
			func(a *attack) time.Duration { return a.Detected }, func(a *attack) time.Duration { return a.Resumed }, func(a *attack) time.Duration { return a.Redone },
		} {
			for _, d := range quantiles(all, of) {
				if d == 0 {
					fmt.Fprint(table, "\t-")
				} else {
					fmt.Fprintf(table, "\t%v", d)
				}
			}
		}
		fmt.Fprintln(table)
	}
	table.Flush()
	if n := s.vanished(); n > 0 {
		s.say("%d were not detected and changed no result: a sum rounded them away", n)
	}
	goodput := 0.0
	if s.took > 0 {
		goodput = s.usual.Seconds() / s.took.Seconds()
		s.say("goodput: %.1f %% (undisturbed %v, disturbed %v)", 100*goodput, s.usual.Round(time.Millisecond), s.took.Round(time.Millisecond))
	}
	verdict := "all faults handled"
	if len(s.problems) > 0 {
		verdict = report.Plural(len(s.problems), "problem")
	}
	s.say("%s: seed %d, %s, %s: %s", mode, s.Seed, report.Plural(s.runs, "run"), report.Plural(len(s.attacks), "fault"), verdict)
	s.line(map[string]any{
		"mode": mode, "seed": s.Seed, "ranks": s.Ranks, "spares": s.Spares, "runs": s.runs, "faults": len(s.attacks), "goodput": goodput, "problems": s.problems,
	})
}

// vanished counts the faults that had no effect.
func (s *session) vanished() (n int) {
	for _, a := range s.attacks {
		if a.vanishes && a.Made && a.Detected == 0 {
			n++
		}
	}
	return n
}

// quantiles returns the median, the 99th percentile and the largest of the known times.
func quantiles(all []*attack, of func(*attack) time.Duration) (q [3]time.Duration) {
	var times []time.Duration
	for _, a := range all {
		if d := of(a); d > 0 {
			times = append(times, d.Round(10*time.Microsecond))
		}
	}
	if n := len(times); n > 0 {
		slices.Sort(times)
		q = [3]time.Duration{times[(n-1)/2], times[(99*n+99)/100-1], times[n-1]}
	}
	return q
}
