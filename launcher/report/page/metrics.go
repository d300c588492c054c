package page

// Metrics of the run in the Prometheus text format, version 0.0.4.

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
)

// metrics answers scrapes with the newest values in a run's record.
type metrics struct {
	run  string
	mu   sync.Mutex
	from *record.Follower
	newest
}

// newest holds the last line of each kind, and counts of some kinds.
type newest struct {
	start  record.Start
	step   record.Step
	eval   record.Eval
	phases record.Phases
	loads  map[int]record.Load // by layer
	starts int
	done   bool
}

func newMetrics(run string) *metrics { return &metrics{run: run, from: record.Follow(run)} }

// ServeHTTP implements [http.Handler].
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := m.render()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(text)
}

// render returns the metrics of the run in its current state.
func (m *metrics) render() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.update(); err != nil {
		return nil, err
	}
	events, err := record.ReadEvents(m.run)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	m.write(exposition{&text}, events)
	return text.Bytes(), nil
}

// update reads what was added to the record since the last scrape.
func (m *metrics) update() error {
	lines, again, err := m.from.Next()
	if err != nil {
		return err
	}
	if again {
		m.newest = newest{}
	}
	for _, l := range lines {
		switch {
		case l.Start != nil:
			m.start, m.starts = *l.Start, m.starts+1
		case l.Step != nil:
			skipped := m.step.SkippedTotal
			if m.step = l.Step.With(m.start); m.step.Skipped {
				skipped++
			}
			m.step.SkippedTotal = skipped
		case l.Eval != nil:
			m.eval = *l.Eval
		case l.Phases != nil:
			m.phases = *l.Phases
		case l.Load != nil:
			if m.loads == nil {
				m.loads = map[int]record.Load{}
			}
			m.loads[l.Load.Layer] = *l.Load
		case l.Done != nil:
			m.done = true
		}
	}
	return nil
}

func (m *newest) write(out exposition, events []spmd.Event) {
	if m.starts == 0 {
		return
	}
	out.family("spmoe_run_info", "What the run is made with; always 1.")
	out.sample("spmoe_run_info", 1, "cpu", m.start.CPU, "tier", m.start.Tier, "version", m.start.Version, "ranks", strconv.Itoa(m.start.Ranks))
	out.single("spmoe_starts_total", "Times that ranks have begun or gone on with the run.", float64(m.starts))
	out.single("spmoe_run_done", "1 when the run has made its last step.", truth(m.done))
	for _, q := range record.Quantities {
		if q.Prometheus != "" && m.step.Step > 0 {
			out.single(q.Prometheus, q.Help, q.Of(&m.step))
		}
	}
	if m.eval.Sequences > 0 {
		out.single("spmoe_held_out_loss", "Validation loss of the last evaluation in nats per token.", float64(m.eval.Loss))
	}
	m.writeTasks(out)
	if len(m.phases.Families) > 0 {
		out.family("spmoe_phase_seconds", "Time of a step by kind of work, mean over ranks and recent steps.")
		for _, name := range slices.Sorted(maps.Keys(m.phases.Families)) {
			out.sample("spmoe_phase_seconds", m.phases.Families[name], "phase", name)
		}
	}
	if len(m.loads) > 0 {
		out.family("spmoe_expert_tokens", "Tokens of an expert in the last recorded step.")
		for _, layer := range slices.Sorted(maps.Keys(m.loads)) {
			for expert, tokens := range m.loads[layer].Tokens {
				out.sample("spmoe_expert_tokens", float64(tokens), "layer", strconv.Itoa(layer), "expert", strconv.Itoa(expert))
			}
		}
	}
	out.family("spmoe_events_total", "Alarms, and what has happened to the ranks' processes.")
	for _, kind := range []spmd.Kind{spmd.Alarm, spmd.Stuck, spmd.Accused, spmd.Detected, spmd.Fenced, spmd.Replaced, spmd.Resumed, spmd.Redone, spmd.SpareReady, spmd.SpareLost, spmd.GaveUp} {
		n := 0
		for _, e := range events {
			if e.Kind == kind {
				n++
			}
		}
		out.sample("spmoe_events_total", float64(n), "event", string(kind))
	}
}

// writeTasks writes the results of tasks in the last evaluation.
func (m *newest) writeTasks(out exposition) {
	if len(m.eval.Tasks) == 0 {
		return
	}
	out.family("spmoe_task", "Accuracy or perplexity of a task in the last evaluation.")
	for _, t := range m.eval.Tasks {
		for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
			out.sample("spmoe_task", float64(t.Metrics[name]), "task", t.Task, "metric", name)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// exposition writes the format.
type exposition struct{ w *bytes.Buffer }

// family begins a metric, which is a counter if its name ends in _total and otherwise a gauge.
func (e exposition) family(name, help string) {
	kind := "gauge"
	if strings.HasSuffix(name, "_total") {
		kind = "counter"
	}
	fmt.Fprintf(e.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e exposition) single(name, help string, value float64) {
	e.family(name, help)
	e.sample(name, value)
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// sample writes a value with pairs of label names and label values.
func (e exposition) sample(name string, value float64, labels ...string) {
	var pairs []string
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+`="`+escapes.Replace(labels[i+1])+`"`)
	}
	if len(pairs) > 0 {
		name += "{" + strings.Join(pairs, ",") + "}"
	}
	fmt.Fprintf(e.w, "%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
}
