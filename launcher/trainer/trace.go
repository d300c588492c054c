package trainer

// The timeline of each rank in a few steps, for OUT/trace.json: the kinds of work of the profile
// one after the other, with the waits inside them.

import (
	"bytes"
	"fmt"
	"path/filepath"
	"time"

	"spmoe/collective"
	"spmoe/launcher/system"
	"spmoe/launcher/trace"
	"spmoe/tensor/profile"
)

// Window is a range of steps, from the first to the last. The zero value is empty.
type Window struct{ First, Last int }

func (w Window) has(step int) bool { return w.First >= 1 && w.First <= step && step <= w.Last }

// maxSlices bounds the slices of a rank: some hundred MiB of JSON for 8 ranks. Later ones are left
// out, and an alarm says so.
const maxSlices = 1 << 17

// The kinds of slices that are neither kinds of work of the profile nor, above those, waits in a
// collective. A step has its negative number.
const (
	traceWaits      = int64(profile.Families)
	traceEvaluation = 1000
	traceSave       = 1001
	traceWriting    = 1002 // of a checkpoint, while training continues
)

// tracer collects the slices of one rank. It is an [observer].
type tracer struct {
	window Window
	path   string // of the trace
	title  string // of the model
	comm   *collective.Comm
	timer  *profile.Timer
	alarms *alarms

	begin  time.Time     // of this rank's clock
	zero   int64         // the same time on the clock of all processes, in ns
	open   bool          // between the first and the last step
	step   time.Duration // beginning of the current step
	last   int           // number of the previous step
	slices []int64       // kind, from, to, by this rank's clock in ns
	cut    bool          // slices were left out
}

func newTracer(w Window, cfg Config, c *collective.Comm, a *alarms) *tracer {
	t := &tracer{window: w, path: filepath.Join(cfg.Out, trace.File), title: cfg.Flavor, comm: c, alarms: a, begin: time.Now()}
	t.zero = monotonic() - int64(t.now())
	return t
}

// now returns the time since the tracer was created.
func (t *tracer) now() time.Duration { return time.Since(t.begin) }

func (t *tracer) add(what int64, from, to time.Duration) {
	if n := len(t.slices); n >= 3 && t.slices[n-3] == what && t.slices[n-1] == int64(from) && what < traceWaits && what >= 0 {
		t.slices[n-1] = int64(to) // it continues
		return
	}
	if t.cut = t.cut || len(t.slices) >= 3*maxSlices; !t.cut {
		t.slices = append(t.slices, what, int64(from), int64(to))
	}
}

// during begins a slice between two steps. end ends it.
func (t *tracer) during(what int64) (end func()) {
	if !t.open {
		return func() {}
	}
	from := t.now()
	return func() { t.add(what, from, t.now()) }
}

// Before implements [observer].
func (t *tracer) Before(step int) {
	if !t.window.has(step) {
		return
	}
	t.open, t.step = true, t.now()
	t.timer.Trace = func(f profile.Family, from, to time.Duration) { t.add(int64(f), from, to) }
	t.comm.ObserveWaits(func(kind collective.Kind, start time.Time, took time.Duration) {
		from := start.Sub(t.begin)
		t.add(traceWaits+int64(kind), from, from+took)
	})
}

// After implements [observer]. It writes the trace after the last step of the window.
func (t *tracer) After(s finishedStep) error {
	if !t.open {
		return nil
	}
	t.timer.Trace = nil
	t.comm.ObserveWaits(nil)
	t.add(-int64(s.Step.Step), t.step, t.now())
	t.last = s.Step.Step
	if t.last < t.window.Last {
		return nil
	}
	return t.end()
}

// end writes the trace of all ranks, if one is open. It is collective.
func (t *tracer) end() error {
	if !t.open {
		return nil
	}
	t.open = false
	rows, cut, err := t.gather(t.comm)
	t.slices = nil
	if err != nil {
		return fmt.Errorf("gathering the trace: %w", err)
	}
	if t.comm.Rank() != 0 {
		return nil
	}
	var text bytes.Buffer
	if err = trace.Write(&text, fmt.Sprintf("%s, steps %d to %d", t.title, t.window.First, t.last), rows); err == nil {
		err = system.WriteFile(t.path, text.Bytes())
	}
	switch {
	case err != nil:
		t.alarms.raise("the trace was not written: %v", err)
	case cut:
		t.alarms.raise("the trace lacks its end: a rank has room for %d slices: give fewer steps", maxSlices)
	}
	return nil
}

// gather returns the rows of all ranks on the leading rank. cut says that slices are missing. It is
// collective.
func (t *tracer) gather(c *collective.Comm) (rows []trace.Row, cut bool, err error) {
	const portion = 3 << 10
	mine := []int64{int64(len(t.slices)), t.zero, 0}
	if t.cut {
		mine[2] = 1
	}
	heads, most := make([]int64, len(mine)*c.Size()), int64(0)
	if err := collective.AllGather(c, heads, mine); err != nil {
		return nil, false, err
	}
	all := make([][]int64, c.Size())
	for r := range all {
		most = max(most, heads[len(mine)*r])
		cut = cut || heads[len(mine)*r+2] > 0
	}
	from, to := make([]int64, portion), make([]int64, portion*c.Size())
	for at := int64(0); at < most; at += portion {
		clear(from)
		if at < int64(len(t.slices)) {
			copy(from, t.slices[at:])
		}
		if err := collective.AllGather(c, to, from); err != nil {
			return nil, false, err
		}
		for r := range all {
			if n := min(heads[len(mine)*r]-at, portion); n > 0 && c.Rank() == 0 {
				all[r] = append(all[r], to[portion*r:portion*r+int(n)]...)
			}
		}
	}
	var writing trace.Row
	for r, list := range all {
		row, other := slicesOf(list, heads[len(mine)*r+1])
		rows = append(rows, trace.Row{Name: fmt.Sprintf("rank %d", r), Slices: row})
		writing.Slices = append(writing.Slices, other...)
	}
	if len(writing.Slices) > 0 {
		writing.Name = "checkpoints, in the background"
		rows = append(rows, writing)
	}
	return rows, cut, nil
}

// slicesOf returns a rank's slices by the clock of all ranks, on which zero is the beginning of its
// own clock. It returns those of checkpoints written in the background separately.
func slicesOf(list []int64, zero int64) (row, apart []trace.Slice) {
	for ; len(list) > 0; list = list[3:] {
		s := trace.Slice{From: zero + list[1], To: zero + list[2]}
		switch what := list[0]; {
		case what < 0:
			s.Name, s.Category = fmt.Sprintf("step %d", -what), "step"
		case what == traceEvaluation:
			s.Name, s.Category = "evaluation", "between steps"
		case what == traceSave:
			s.Name, s.Category = "checkpoint", "between steps"
		case what == traceWriting:
			s.Name, s.Category = "writing", "checkpoint"
		case what >= traceWaits:
			s.Name, s.Category = "waiting in "+collective.Kind(what-traceWaits).String(), "waiting"
		default:
			s.Name, s.Category = profile.Family(what).String(), "family"
		}
		if list[0] == traceWriting {
			apart = append(apart, s)
		} else {
			row = append(row, s)
		}
	}
	return row, apart
}
