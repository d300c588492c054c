package observe

// The timeline of each rank in a few steps, for OUT/trace.json: the kinds of work of the profile
// one after the other, with the waits inside them.

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"spmoe/collective"
	"spmoe/launcher/system"
	"spmoe/launcher/trace"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe/pipe"
	"spmoe/tensor/profile"
)

// Window is a range of steps, from the first to the last. The zero value is empty.
type Window struct{ First, Last int }

func (w Window) has(step int) bool { return w.First >= 1 && w.First <= step && step <= w.Last }

// MaxSlices bounds the slices of a rank: some hundred MiB of JSON for 8 ranks. Later ones are left
// out, and an alarm says so.
const MaxSlices = 1 << 17

// The kinds of slices that are neither kinds of work of the profile nor, above those, waits in a
// collective. A step has its negative number.
const (
	traceWaits      = int64(profile.Families)
	TraceEvaluation = 1000
	TraceSave       = 1001
	TraceWriting    = 1002 // of a checkpoint, while training continues
	TraceSample     = 1004
	traceAction     = 1003 // of a pipeline's schedule: see stageRows
)

// Tracer collects the slices of one rank. It is an [observer].
type Tracer struct {
	window Window
	path   string // of the trace
	title  string // of the model
	seq    int
	links  Links
	pipe   *pipe.Rank       // nil: the model is not cut into stages
	comm   *collective.Comm // all ranks
	Timer  *profile.Timer
	alarms *state.Alarms

	Begin  time.Time     // of this rank's clock
	zero   int64         // the same time on the clock of all processes, in ns
	Open   bool          // between the first and the last step
	step   time.Duration // beginning of the current step
	last   int           // number of the previous step
	Slices []tracedSlice
	Cut    bool // slices were left out
}

// tracedSlice is a slice of one rank, by its own clock in ns.
type tracedSlice struct {
	kind, from, to int64
	work           profile.Work
}

// sliceNumbers is the number of integers that a slice is sent as.
const sliceNumbers = 9

// appendTo appends the integers of a slice.
func (s tracedSlice) appendTo(list []int64) []int64 {
	w := s.work
	return append(list, s.kind, s.from, s.to, int64(w.Layer), int64(w.M), int64(w.N), int64(w.K), int64(w.Groups), int64(w.Largest))
}

// tracedFrom returns the slice with the given integers.
func tracedFrom(n []int64) tracedSlice {
	return tracedSlice{n[0], n[1], n[2], profile.Work{Layer: int(n[3]), M: int(n[4]), N: int(n[5]), K: int(n[6]), Groups: int(n[7]), Largest: int(n[8])}}
}

// NewTracer returns the tracer of the steps of a window.
func NewTracer(w Window, cfg config.Config, l Links, p *pipe.Rank, a *state.Alarms) *Tracer {
	t := &Tracer{window: w, path: filepath.Join(cfg.Out, trace.File), title: cfg.Flavor, seq: cfg.Seq, links: l, pipe: p, comm: l[0].Comm, alarms: a, Begin: time.Now()}
	t.zero = monotonic() - int64(t.Now())
	return t
}

// Now returns the time since the tracer was created.
func (t *Tracer) Now() time.Duration { return time.Since(t.Begin) }

// Add adds a slice without a description.
func (t *Tracer) Add(kind int64, from, to time.Duration) { t.addWork(kind, profile.Work{}, from, to) }

func (t *Tracer) addWork(kind int64, work profile.Work, from, to time.Duration) {
	if n := len(t.Slices); n > 0 && kind < traceWaits && kind >= 0 {
		if last := &t.Slices[n-1]; last.kind == kind && last.to == int64(from) && last.work == work {
			last.to = int64(to) // it continues
			return
		}
	}
	if t.Cut = t.Cut || len(t.Slices) >= MaxSlices; !t.Cut {
		t.Slices = append(t.Slices, tracedSlice{kind, int64(from), int64(to), work})
	}
}

// During begins a slice between two steps. end ends it.
func (t *Tracer) During(what int64) (end func()) {
	if !t.Open {
		return func() {}
	}
	from := t.Now()
	return func() { t.Add(what, from, t.Now()) }
}

// Before implements [observer].
func (t *Tracer) Before(step int) {
	if !t.window.has(step) {
		return
	}
	t.Open, t.step = true, t.Now()
	t.Timer.Trace = func(f profile.Family, w profile.Work, from, to time.Duration) { t.addWork(int64(f), w, from, to) }
	t.observeActions(true)
	t.observeWaits(func(kind collective.Kind, start time.Time, took time.Duration) {
		from := start.Sub(t.Begin)
		t.addWork(traceWaits+int64(kind), profile.Work{Layer: t.Timer.Work().Layer}, from, from+took)
	})
}

// observeWaits calls f after each wait of this rank for others; nil ends that.
func (t *Tracer) observeWaits(f func(kind collective.Kind, start time.Time, took time.Duration)) {
	for _, c := range t.links {
		c.ObserveWaits(f)
	}
}

// After implements [observer]. It writes the trace after the last step of the window.
func (t *Tracer) After(s FinishedStep) error {
	if !t.Open {
		return nil
	}
	t.Timer.Trace = nil
	t.observeActions(false)
	t.observeWaits(nil)
	t.addWork(-int64(s.Step.Step), profile.Work{M: len(s.rows) / (t.seq + 1), N: t.seq}, t.step, t.Now())
	t.last = s.Step.Step
	if t.last < t.window.Last {
		return nil
	}
	return t.end()
}

// end writes the trace of all ranks, if one is open. It is collective.
func (t *Tracer) end() error {
	if !t.Open {
		return nil
	}
	t.Open = false
	rows, cut, err := t.gather(t.comm)
	t.Slices = nil
	if err != nil {
		return fmt.Errorf("gathering the trace: %w", err)
	}
	if t.comm.Rank() != 0 {
		return nil
	}
	var text bytes.Buffer
	if err = trace.Write(&text, fmt.Sprintf("%s, steps %d to %d", t.title, t.window.First, t.last), rows); err == nil {
		if err = t.alarms.Events.Held.Check(); err == nil {
			err = system.WriteFile(t.path, text.Bytes())
		}
	}
	switch {
	case err != nil:
		t.alarms.Raise("the trace was not written: %v", err)
	case cut:
		t.alarms.Raise("the trace lacks its end: a rank has room for %d slices: give fewer steps", MaxSlices)
	}
	return nil
}

// gather returns the rows of all ranks on the leading rank. cut says that slices are missing. It is
// collective.
func (t *Tracer) gather(c *collective.Comm) (rows []trace.Row, cut bool, err error) {
	const portion = 1 << 10 // slices
	mine := []int64{int64(len(t.Slices)), t.zero, 0}
	if t.Cut {
		mine[2] = 1
	}
	heads, most := make([]int64, len(mine)*c.Size()), int64(0)
	if err := collective.AllGather(c, heads, mine); err != nil {
		return nil, false, err
	}
	all := make([][]tracedSlice, c.Size())
	for r := range all {
		most = max(most, heads[len(mine)*r])
		cut = cut || heads[len(mine)*r+2] > 0
	}
	from, to := make([]int64, sliceNumbers*portion), make([]int64, sliceNumbers*portion*c.Size())
	for at := int64(0); at < most; at += portion {
		clear(from)
		part := from[:0]
		for _, s := range t.Slices[min(at, int64(len(t.Slices))):min(at+portion, int64(len(t.Slices)))] {
			part = s.appendTo(part)
		}
		if err := collective.AllGather(c, to, from); err != nil {
			return nil, false, err
		}
		for r := range all {
			if c.Rank() != 0 {
				break
			}
			for i := range int(min(heads[len(mine)*r]-at, portion)) {
				all[r] = append(all[r], tracedFrom(to[sliceNumbers*(portion*r+i):]))
			}
		}
	}
	stages, writing := stageRows{}, trace.Row{}
	for r, list := range all {
		zero := heads[len(mine)*r+1]
		list = slices.DeleteFunc(list, func(s tracedSlice) bool {
			if s.kind == traceAction {
				stages.add(r, zero, s)
			}
			return s.kind == traceAction
		})
		row, other := SlicesOf(list, zero)
		rows = append(rows, trace.Row{Name: fmt.Sprintf("rank %d", r), Slices: row})
		writing.Slices = append(writing.Slices, other...)
	}
	rows = append(rows, stages.list()...)
	if len(writing.Slices) > 0 {
		writing.Name = "checkpoints, in the background"
		rows = append(rows, writing)
	}
	return rows, cut, nil
}

// SlicesOf returns a rank's slices by the clock of all ranks, on which zero is the beginning of its
// own clock. It returns those of checkpoints written in the background separately.
func SlicesOf(list []tracedSlice, zero int64) (row, apart []trace.Slice) {
	for _, traced := range list {
		s := trace.Slice{From: zero + traced.from, To: zero + traced.to}
		switch what := traced.kind; {
		case what < 0:
			s.Name, s.Category = fmt.Sprintf("step %d", -what), "step"
		case what == TraceEvaluation:
			s.Name, s.Category = "evaluation", "between steps"
		case what == TraceSample:
			s.Name, s.Category = "sample", "between steps"
		case what == TraceSave:
			s.Name, s.Category = "checkpoint", "between steps"
		case what == TraceWriting:
			s.Name, s.Category = "writing", "checkpoint"
		case what >= traceWaits:
			s.Name, s.Category = "waiting in "+collective.Kind(what-traceWaits).String(), "waiting"
		default:
			s.Name, s.Category = profile.Family(what).String(), "family"
		}
		s.Args = argsOf(traced.work, strings.HasSuffix(s.Name, "wgrad"))
		if traced.kind == TraceWriting {
			apart = append(apart, s)
		} else {
			row = append(row, s)
		}
	}
	return row, apart
}

// argsOf returns what a trace shows of the work in a slice. The inner dimension of a wgrad product
// are the rows of the batch.
func argsOf(w profile.Work, wgrad bool) map[string]any {
	if w == (profile.Work{}) {
		return nil
	}
	args := map[string]any{}
	if w.Layer > 0 {
		args["layer"] = w.Layer - 1 // as in the names of weights
	}
	switch {
	case w.K > 0:
		args["shape"] = fmt.Sprintf("%d x %d x %d", w.M, w.N, w.K)
		args["gflop"] = 2e-9 * float64(w.M) * float64(w.N) * float64(w.K)
		if args["rows"] = w.M; wgrad {
			args["rows"] = w.K
		}
	case w.M > 0:
		args["rows"], args["columns"] = w.M, w.N
		args["shape"] = fmt.Sprintf("%d x %d", w.M, w.N)
	}
	if w.Groups > 0 {
		args["experts"], args["rows of the busiest expert"] = w.Groups, w.Largest
	}
	return args
}
