package page

// The charts of a run.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/record"
)

// experts is the section of what the experts do.
const experts = "Experts"

// charts returns those charts of a section that the run has data for.
func (r Run) charts(section string) (list []Chart) {
	add := func(c Chart, ok bool) {
		if ok {
			list = append(list, c)
		}
	}
	for _, q := range record.Quantities {
		if q.Section != section || section == experts && len(r.Log.Loads) == 0 {
			continue
		}
		if q.Figure == "loss" {
			add(r.loss())
		} else {
			add(r.single(q))
		}
	}
	switch section {
	case "Loss":
		rates, ok := curve("learning rate", 3, Steps(&r.Log, "lr"))
		add(Chart{ID: "lr", Title: "Learning rate", X: step, Y: Axis{Min: new(float64)}, Curves: []Curve{rates}}, ok)
		add(r.tasks())
	case "Speed":
		share, ok := curve("MFU", 3, r.utilization())
		add(Chart{ID: "mfu", Title: "MFU", X: step, Y: Axis{Name: "%", Min: new(float64)}, Smooth: true, Curves: []Curve{share},
			Caption: "The model’s FLOP/s as a share of the peak measured at the start of the run."}, ok)
		add(r.phases())
	case experts:
		add(r.loads())
		add(r.biases())
	}
	return list
}

var step = Axis{Name: "step"}

// single is the chart of one quantity.
func (r Run) single(q record.Quantity) (Chart, bool) {
	c, ok := curve(q.Unit, 1, Steps(&r.Log, q.JSON))
	return Chart{ID: q.Figure, Title: q.Title, Caption: q.Caption, X: step, Y: axisFor(q), Smooth: true, Curves: []Curve{c}}, ok
}

// axisFor is the axis of the values of a quantity.
func axisFor(q record.Quantity) Axis {
	a := Axis{Name: q.Unit, Log: q.Log}
	if !q.Log {
		a.Min = &q.Floor
	}
	return a
}

func (r Run) loss() (Chart, bool) {
	train, trained := curve("training text", 1, Steps(&r.Log, "loss"))
	heldOut, evaluated := curve("validation text", 2, HeldOut(&r.Log))
	train.Scale, heldOut.Scale = r.bitsPerNat()
	heldOut.Dots = true
	c := Chart{
		ID: "loss", Title: "Loss", Wide: true, X: step, Y: Axis{Name: "nats/token"}, Smooth: true, Curves: []Curve{train, heldOut},
		Caption: "Both curves are smoothed; thin lines are not. " +
			"A growing gap between training and validation loss means that the run memorizes its text.",
	}
	for _, s := range r.Log.Starts {
		if s.NewData != "" {
			c.Caption += " This run has " + s.NewData + "."
		}
	}
	if train.Scale > 0 && heldOut.Scale > 0 {
		c.Other = "bits/byte"
	}
	return c, trained || evaluated
}

// bitsPerNat returns the bits per byte of a loss of 1 nat per token, for training and for
// validation text; 0 if the record lacks it.
func (r Run) bitsPerNat() (train, heldOut float64) {
	if n := len(r.Log.Starts); n > 0 && r.Log.Starts[n-1].BytesPerToken > 0 {
		train = 1 / (math.Ln2 * r.Log.Starts[n-1].BytesPerToken)
	}
	if n := len(r.Log.Evals); n > 0 && r.Log.Evals[n-1].Loss > 0 && r.Log.Evals[n-1].BitsPerByte > 0 {
		heldOut = float64(r.Log.Evals[n-1].BitsPerByte / r.Log.Evals[n-1].Loss)
	}
	return train, heldOut
}

// shownTasks is the maximum number of tasks in the chart, one per color.
const shownTasks = 6

// tasks shows the accuracy of each task: acc_norm where there is one, acc otherwise.
func (r Run) tasks() (Chart, bool) {
	n := len(r.Log.Evals)
	if n == 0 || len(r.Log.Evals[n-1].Tasks) == 0 {
		return Chart{}, false
	}
	chart := Chart{
		ID: "tasks", Title: "Tasks", X: step, Y: Axis{Name: "accuracy"},
		Caption: "Share of the questions that the model answers rightly, by the log-likelihood of the answers. " +
			"A choice among four at random is right once in four times.",
	}
	for i, task := range r.Log.Evals[n-1].Tasks[:min(shownTasks, len(r.Log.Evals[n-1].Tasks))] {
		s, metric := r.accuracy(task.Task)
		c, _ := curve(task.Task+" "+metric, 1+i, s)
		c.Dots = true
		chart.Curves = append(chart.Curves, c)
	}
	return chart, true
}

// accuracy returns a task's accuracy at each evaluation, and the name of the metric.
func (r Run) accuracy(task string) (s Series, metric string) {
	metric = "acc"
	for _, e := range r.Log.Evals {
		for _, t := range e.Tasks {
			if _, ok := t.Metrics["acc_norm"]; ok && t.Task == task {
				metric = "acc_norm"
			}
			if x, ok := t.Metrics[metric]; ok && t.Task == task {
				s.Add(e.Step, float64(x))
			}
		}
	}
	return s, metric
}

// works are groups of kinds of work, the first one at the bottom. A kind belongs to the first group
// whose list has it or the beginning of its name.
var works = []struct {
	name  string
	kinds []string
	color int
}{
	{"matrix products", []string{"fp32 ", "bf16 ", "mx "}, 1},
	{"attention", []string{"attention"}, 3},
	{"row operations, router, loss", []string{"row operations", "router", "loss"}, 6},
	{"quantization", []string{"quantize"}, 4},
	{"exchange, collectives", []string{"exchange", "collectives"}, 5},
	{"waiting", []string{"waiting", "messages"}, 2},
	{"optimizer and the rest", []string{""}, 0},
}

// phases shows the time of a step by kind of work.
func (r Run) phases() (Chart, bool) {
	if len(r.Log.Phases) < 2 {
		return Chart{}, false
	}
	sums := make([]Series, len(works))
	for _, p := range r.Log.Phases {
		at := make([]float64, len(works))
		for kind, seconds := range p.Families {
			for g, w := range works {
				if slices.ContainsFunc(w.kinds, func(of string) bool { return strings.HasPrefix(kind, of) }) {
					at[g] += 1e3 * max(seconds, 0)
					break
				}
			}
		}
		for g := range works {
			sums[g].Add(p.Step, at[g])
		}
	}
	chart := Chart{
		ID: "phases", Title: "Where the time of a step goes", Wide: true, Kind: Stack, X: step, Y: Axis{Name: "ms per step"},
		Caption: "Means over ranks and over the steps between two points. " +
			"Waiting is waiting for other ranks: much of it means that ranks have unequal work or share cores.",
	}
	for g, w := range works {
		if c, _ := curve(w.name, w.color, sums[g]); slices.ContainsFunc(c.Y, func(v float64) bool { return v > 0 }) {
			c.Low, c.High = nil, nil
			chart.Curves = append(chart.Curves, c)
		}
	}
	return chart, len(chart.Curves) > 0
}

// Limits of heat maps.
const (
	heatColumns = 80
	heatRows    = 160
	layerRows   = 32
)

// thin keeps at most about n elements, among them the last.
func thin[T any](list []T, n int) (some []T) {
	every := (len(list) + n - 1) / n
	for i, x := range list {
		if (len(list)-1-i)%every == 0 {
			some = append(some, x)
		}
	}
	return some
}

// heat returns a map of a value per expert: one row per expert, one column per recorded step. Where
// there are many experts, a row is the mean of several. shown says what the map leaves out.
func (r Run) heat(of func(record.Load) []float64) (h HeatMap, shown string, ok bool) {
	values := map[[2]int][]float64{} // by layer and step
	var steps, layers []int
	count := 0
	for _, l := range r.Log.Loads {
		if list := of(l); len(list) > 0 {
			values[[2]int{l.Layer, l.Step}], count = list, max(count, len(list))
			steps, layers = append(steps, l.Step), append(layers, l.Layer)
		}
	}
	if count == 0 {
		return h, "", false
	}
	slices.Sort(steps)
	slices.Sort(layers)
	steps, layers = thin(slices.Compact(steps), heatColumns), slices.Compact(layers)
	group := (count + layerRows - 1) / layerRows
	rows := (count + group - 1) / group
	if most := max(1, heatRows/rows); len(layers) > most {
		shown += fmt.Sprintf(" Of %d layers, %d are shown.", len(layers), len(thin(layers, most)))
		layers = thin(layers, most)
	}
	if group > 1 {
		shown += fmt.Sprintf(" A row is the mean of %d experts.", group)
	}
	for _, step := range steps {
		h.Steps = append(h.Steps, float64(step))
	}
	for _, layer := range layers {
		h.Groups = append(h.Groups, fmt.Sprintf("layer %d", layer))
		for row := range rows {
			name := fmt.Sprintf("layer %d, expert %d", layer, row*group)
			if group > 1 {
				name += fmt.Sprintf(" to %d", min((row+1)*group, count)-1)
			}
			h.Rows = append(h.Rows, name)
			line := make(Values, len(steps))
			for i, step := range steps {
				line[i] = math.Round(1e4*mean(values[[2]int{layer, step}], row*group, (row+1)*group)) / 1e4
			}
			h.Values = append(h.Values, line)
		}
	}
	return h, shown, true
}

// mean averages some values. It is NaN if there are none.
func mean(values []float64, from, to int) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values[min(from, len(values)):min(to, len(values))] {
		sum, n = sum+v, n+1
	}
	return sum / n
}

// loads is the map of each expert's share of tokens to the mean of its layer.
func (r Run) loads() (Chart, bool) {
	h, shown, ok := r.heat(func(l record.Load) []float64 {
		var all int64
		for _, n := range l.Tokens {
			all += n
		}
		values := make([]float64, len(l.Tokens))
		for i, n := range l.Tokens {
			values[i] = float64(n) * float64(len(values)) / float64(max(all, 1))
		}
		return values
	})
	h.Most, h.Log = 4, true
	return Chart{
		ID: "loads", Title: "Tokens of each expert", Kind: Heat, X: step, Cells: &h,
		Caption: "One row per expert, one column per recorded step; white is the mean of the layer, " +
			"blue a quarter of it or less, orange four times the mean or more. " +
			"Rows that stay orange are overloaded experts; rows that stay blue are experts that hardly learn." + shown,
	}, ok
}

// biases is the map of the selection biases.
func (r Run) biases() (Chart, bool) {
	most := 0.0
	h, shown, ok := r.heat(func(l record.Load) []float64 {
		values := make([]float64, len(l.Bias))
		for i, b := range l.Bias {
			values[i] = float64(b)
			most = max(most, math.Abs(values[i]))
		}
		return values
	})
	h.Most = most
	return Chart{
		ID: "bias", Title: "Selection bias of each expert", Kind: Heat, X: step, Cells: &h,
		Caption: fmt.Sprintf("Blue is −%.3g and orange +%.3g. The bias is added to an expert’s score when experts are selected. "+
			"It rises for experts with too few tokens. Biases that keep growing mean that the load is not balanced.", most, most) + shown,
	}, ok && most > 0
}
