package observe

// OUT/trace.json for Perfetto: the kinds of work of each rank in a few steps, with the waits inside
// them, and the actions of its pipeline.

import (
	"fmt"
	"path/filepath"
	"time"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe/pipe"
	"spmoe/tensor/profile"
)

// TraceFile is the name of a trace in the folder of its run.
const TraceFile = "trace.json"

// mostTrace bounds the bytes of a rank. Later slices are left out, and an alarm says so.
const mostTrace = 16 << 20

// Tracer collects the slices of one rank.
type Tracer struct {
	window Window
	cfg    config.Config
	links  Links
	pipe   *pipe.Rank // nil: the model is not cut into stages
	Timer  *profile.Timer
	alarms *state.Alarms
	open   bool          // between the first and the last step
	begin  time.Time     // of this rank's clock
	zero   int64         // the same on the clock of all processes, in ns modulo 2^50: JSON numbers hold them
	step   time.Duration // beginning of the current step
	text   []byte        // JSON objects, each with a comma
}

// NewTracer returns the tracer of the steps of a window.
func NewTracer(w Window, cfg config.Config, l Links, p *pipe.Rank, a *state.Alarms) *Tracer {
	return &Tracer{window: w, cfg: cfg, links: l, pipe: p, alarms: a, begin: time.Now(), zero: time.Now().UnixNano() % (1 << 50)}
}

// Now returns the time since the tracer was created.
func (t *Tracer) Now() time.Duration { return time.Since(t.begin) }

// add adds a slice to the rank's first row, or to its second one. Times are in microseconds.
func (t *Tracer) add(row int, category, name string, w profile.Work, from, to time.Duration) {
	if len(t.text) > mostTrace {
		return
	}
	at := t.zero + int64(from)
	t.text = fmt.Appendf(t.text, "\n"+`{"name":%q,"cat":%q,"ph":"X","ts":%d.%03d,"dur":%.3f,"pid":0,"tid":%d`,
		name, category, at/1000, at%1000, float64(to-from)/1e3, 2*t.links[0].Rank()+row)
	if w != (profile.Work{}) {
		t.text = fmt.Appendf(t.text, `,"args":{"layer":%d,"shape":"%d x %d x %d","experts":%d,"rows of the busiest expert":%d}`,
			w.Layer-1, w.M, w.N, w.K, w.Groups, w.Largest) // the layer is -1 outside layers
	}
	t.text = append(t.text, "},"...)
}

// During begins a slice between two steps. end ends it.
func (t *Tracer) During(what string) (end func()) {
	if !t.open {
		return func() {}
	}
	from := t.Now()
	return func() { t.add(0, "between steps", what, profile.Work{}, from, t.Now()) }
}

func (t *Tracer) before(step int) {
	if t.window.First < 1 || step < t.window.First || step > t.window.Last {
		return
	}
	t.open, t.step = true, t.Now()
	t.Timer.Trace = func(f profile.Family, w profile.Work, from, to time.Duration) {
		t.add(0, "family", f.String(), w, from, to)
	}
	t.observe(t.action, func(kind collective.Kind, start time.Time, took time.Duration) {
		from := start.Sub(t.begin)
		t.add(0, "waiting", "waiting in "+kind.String(), profile.Work{Layer: t.Timer.Work().Layer}, from, from+took)
	})
}

// observe calls functions for each action of the pipeline and each wait for others; nil ends that.
func (t *Tracer) observe(action func(pipeline.Action, bool) func(), wait func(collective.Kind, time.Time, time.Duration)) {
	if t.pipe != nil {
		t.pipe.Observe = action
	}
	for _, c := range t.links {
		c.ObserveWaits(wait)
	}
}

// action begins the slice of an action of the pipeline. end ends it.
func (t *Tracer) action(a pipeline.Action, paired bool) (end func()) {
	from, name := t.Now(), fmt.Sprintf("%v %d, stage %d", a.Kind, a.Microbatch, a.Stage)
	return func() { t.add(1, map[bool]string{true: "paired"}[paired], name, profile.Work{}, from, t.Now()) }
}

// after writes the trace after the last step of the window.
func (t *Tracer) after(step int, rows []int32) error {
	if t.open {
		t.Timer.Trace = nil
		t.observe(nil, nil)
		t.add(0, "step", fmt.Sprintf("step %d", step), profile.Work{M: len(rows) / (t.cfg.Seq + 1), N: t.cfg.Seq}, t.step, t.Now())
	}
	if step < t.window.Last {
		return nil
	}
	return t.end()
}

// end writes the trace of all ranks, if one is open: one after the other, which bounds the memory
// for it. It is collective.
func (t *Tracer) end() error {
	if !t.open {
		return nil
	}
	c, all, cut := t.links[0], []byte(`{"displayTimeUnit":"ms","traceEvents":[`), len(t.text) > mostTrace
	own := make([]string, c.Size())
	own[c.Rank()] = string(t.text)
	for r := range own {
		texts, err := state.GatherTexts(c, own[r])
		if err != nil {
			return fmt.Errorf("gathering the trace: %w", err)
		}
		if c.Rank() == 0 {
			all = fmt.Appendf(append(all, texts[r]...), `{"name":"thread_name","ph":"M","pid":0,"tid":%d,"args":{"name":"rank %d"}},`, 2*r, r)
		}
	}
	if t.open, t.text = false, nil; c.Rank() != 0 {
		return nil
	}
	err := t.alarms.Events.Held.Check()
	if err == nil {
		err = system.WriteFile(filepath.Join(t.cfg.Out, TraceFile), append(all[:len(all)-1], "]}\n"...))
	}
	if err == nil && cut {
		err = fmt.Errorf("a rank has room for %d bytes: give fewer steps", mostTrace)
	}
	if err != nil {
		t.alarms.Raise("the trace is not complete: %v", err)
	}
	return nil
}
