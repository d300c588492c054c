package convergence

// The charts of a comparison. A run without a log adds nothing.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/page"
)

// charts draws one comparison.
type charts struct{ Result }

var step = page.Axis{Name: "step"}

// curves returns the curve of each arm that has the series.
func (c charts) curves(of func(Arm) []page.Series) (list []page.Curve) {
	for i, a := range c.Arms {
		if curve, ok := over(of(a)); ok {
			curve.Name, curve.Color, curve.Dash = a.Name, i, i/page.Colors
			if i == 0 {
				curve.Width = 3.2 // visible below lines that coincide with it
			}
			list = append(list, curve)
		}
	}
	return list
}

// seeds returns one series per run of an arm.
func seeds(of func(*record.Log) page.Series) func(Arm) []page.Series {
	return func(a Arm) (list []page.Series) {
		for _, run := range a.Runs {
			if run.Log != nil {
				list = append(list, of(run.Log))
			}
		}
		return list
	}
}

// paired returns the relative difference of an arm to the baseline, in percent, for each seed that
// both were trained with. The baseline has none.
func (c charts) paired(of func(*record.Log) page.Series) func(Arm) []page.Series {
	base := c.Arms[0]
	return func(a Arm) (list []page.Series) {
		for _, run := range a.Runs {
			i := slices.IndexFunc(base.Runs, func(b Run) bool { return b.Seed == run.Seed })
			if a.Verdict != Baseline && i >= 0 && run.Log != nil && base.Runs[i].Log != nil {
				list = append(list, scaled(relative(of(run.Log), of(base.Runs[i].Log)), 100))
			}
		}
		return list
	}
}

// with returns those charts that have curves.
func with(list ...page.Chart) []page.Chart {
	return slices.DeleteFunc(list, func(c page.Chart) bool { return len(c.Curves) == 0 })
}

func (c charts) overTraining() []page.Chart {
	window := max(c.Setup.Tail, 1)
	loss := func(log *record.Log) page.Series { return page.Steps(log, "loss") }
	margin := report.Percentage(c.Margin, 2)
	heldOut := page.Chart{
		ID: "held-out", Title: "Validation loss", X: step, Y: page.Axis{Name: "nats/token"}, Curves: c.curves(seeds(page.HeldOut)),
		Caption: "Loss on text that no step trains on. The arms should fall together.",
	}
	for i := range heldOut.Curves {
		heldOut.Curves[i].Dots = true
	}
	return with(
		page.Chart{
			ID:     "loss",
			Title:  "Training loss",
			Wide:   true,
			X:      step,
			Y:      page.Axis{Name: "nats/token"},
			Smooth: true,
			Curves: c.curves(seeds(loss)),
			Caption: "All arms should fall together, and none should leave the others late. Lines are means over seeds; " +
				"bands go from the lowest seed to the highest. A line ends where a seed's loss is not finite.",
		},
		c.difference(
			"difference",
			fmt.Sprintf("Training loss against %s, seed by seed", c.Arms[0].Name),
			c.paired(func(log *record.Log) page.Series { return trailing(loss(log), window) }),
			fmt.Sprintf(
				"The line should stay in the green zone, the margin of ±%s, without a trend away from zero. "+
					"It shows differences of means over the last %s, "+
					"so its right end is what the test judges. Bands go from the lowest seed to the highest.",
				margin,
				report.Plural(window, "step"),
			),
		),
		heldOut,
		c.difference(
			"held-out-difference",
			"Validation loss against "+c.Arms[0].Name,
			c.paired(page.HeldOut),
			"Differences, seed by seed, should end in the green zone of the margin.",
		),
		page.Chart{ID: "grad-norm", Title: "Gradient norm before clipping", X: step, Y: page.Axis{Log: true}, Smooth: true,
			Curves:  c.curves(seeds(func(log *record.Log) page.Series { return page.Steps(log, "grad_norm") })),
			Caption: "A norm that rises above the baseline's, or spikes in only one arm, announces an instability before the loss shows it."},
	)
}

// difference shows differences around zero, with the margin. Two things do not set its scale: the
// first part of a run, where losses fall steeply and differences are large, and runs that diverge.
func (c charts) difference(id, title string, of func(Arm) []page.Series, caption string) page.Chart {
	curves := c.curves(of)
	percent := 100 * c.Margin
	reach := 1.25 * percent
	for _, curve := range curves {
		last := curve.X[len(curve.X)-1]
		for i, step := range curve.X {
			v := math.Abs(curve.Y[i])
			if curve.Low != nil {
				v = max(math.Abs(curve.Low[i]), math.Abs(curve.High[i]))
			}
			if step >= last/5 && finite(v) {
				reach = max(reach, min(1.08*v, 8*percent))
			}
		}
	}
	if reach == 0 {
		reach = 1
	}
	return page.Chart{
		ID: id, Title: title, Caption: caption, Curves: curves,
		X: step, Y: page.Axis{Name: "%", Range: &page.Range{-reach, reach}}, Zone: &page.Range{-percent, percent},
	}
}

func (c charts) routing() []page.Chart {
	one := 1.0
	agreement := "The share of a validation token's experts that are the same as with " + c.Arms[0].Name + ": the mean over layers, " +
		"with a band from the lowest layer to the highest. A slow fall is rounding that training amplifies, a sudden one a broken router."
	return with(
		page.Chart{
			ID:     "imbalance",
			Title:  "Load of the experts",
			X:      step,
			Y:      page.Axis{Name: "most loaded expert / mean", Min: &one},
			Smooth: true,
			Curves: c.curves(seeds(func(log *record.Log) page.Series { return page.Steps(log, "imbalance") })),
			Caption: "The tokens of the most loaded expert over the mean, averaged over layers; 1 is perfect balance. " +
				"Quantized arms should be balanced as fast and as well as the baseline.",
		},
		page.Chart{
			ID:      "router-agreement",
			Title:   "Router agreement with " + c.Arms[0].Name,
			X:       step,
			Y:       page.Axis{Name: "% of choices"},
			Caption: agreement,
			Curves:  c.curves(byLayer),
		},
	)
}

// byLayer returns the share of choices that agree with the baseline, in percent, as one series per
// layer.
func byLayer(a Arm) (list []page.Series) {
	at := map[int]int{}
	for _, agreed := range a.Agreement {
		i, ok := at[agreed.Layer]
		if !ok {
			i, at[agreed.Layer] = len(list), len(list)
			list = append(list, page.Series{})
		}
		list[i].Add(agreed.Step, 100*agreed.Share)
	}
	return list
}

// operands are the operands of a linear layer that a recipe quantizes.
var operands = []struct{ kind, name string }{{record.Input, "inputs"}, {record.Weight, "weights"}, {record.Gradient, "gradients"}}

// quantization shows the effect of quantization on the operands of linear layers, with one chart
// per kind of operand.
func (c charts) quantization() (list []page.Chart) {
	of := func(count func(record.Quantized) int64) func([]record.Quantized) float64 {
		return func(list []record.Quantized) float64 { return shareOf(list, count) }
	}
	for _, m := range []struct {
		id, title, unit, caption string
		measure                  func([]record.Quantized) float64
		rare                     bool // leave out charts of zeros
	}{
		{"sqnr", "Signal to quantization noise", "median SQNR (dB)", "Higher is better and flat is healthy: a falling curve means " +
			"that the tensors drift out of the format's range. Values are medians over layers and linears.", MedianSQNR, false},
		{"flushed", "Values flushed to zero", "%", "They should be few and not become more.", of(flushed), false},
		{"saturated", "Values saturated", "%", "Values beyond the largest magnitude of their block's scale.", of(saturated), true},
	} {
		for _, o := range operands {
			curves := c.curves(seeds(quantized(o.kind, m.measure)))
			if m.rare &&
				!slices.ContainsFunc(curves, func(c page.Curve) bool { return slices.ContainsFunc(c.Y, func(v float64) bool { return v > 0 }) }) {
				continue
			}
			list = append(
				list,
				page.Chart{
					ID:      m.id + "-" + o.kind,
					Title:   m.title + ": " + o.name,
					X:       step,
					Y:       page.Axis{Name: m.unit},
					Curves:  curves,
					Caption: m.caption,
				},
			)
		}
	}
	return with(list...)
}

// quantized measures one kind of operand in each recorded step of a run.
func quantized(kind string, measure func([]record.Quantized) float64) func(*record.Log) page.Series {
	return func(log *record.Log) (s page.Series) {
		var steps []int
		at := map[int][]record.Quantized{}
		for _, q := range log.Quantized {
			if q.Tensor != kind {
				continue
			}
			if at[q.Step] == nil {
				steps = append(steps, q.Step)
			}
			at[q.Step] = append(at[q.Step], q)
		}
		slices.Sort(steps)
		for _, step := range steps {
			s.Add(step, measure(at[step]))
		}
		return s
	}
}

func flushed(q record.Quantized) int64   { return q.Flushed }
func saturated(q record.Quantized) int64 { return q.Saturated }

// shareOf returns a count over all elements, in percent. It is NaN if there are no elements.
func shareOf(list []record.Quantized, count func(record.Quantized) int64) float64 {
	var part, all int64
	for _, q := range list {
		part, all = part+count(q), all+q.Elements
	}
	if all == 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(all)
}

// weakest is the table of the layers with the lowest SQNR: of each linear and operand, in the last
// recorded step of each arm.
func (r Result) weakest() page.Block {
	table := page.Table{Head: page.Cells("linear", "operand")}
	lowest := map[[2]string]map[int]record.Quantized{} // by linear and operand, then by arm
	for i, a := range r.Arms {
		all, last := a.Quantized(""), 0
		for _, q := range all {
			last = max(last, q.Step)
		}
		if last == 0 {
			continue
		}
		table.Head = append(table.Head, r.named(i))
		for _, q := range all {
			key := [2]string{q.Linear, q.Tensor}
			if lowest[key] == nil {
				lowest[key] = map[int]record.Quantized{}
			}
			if worst, ok := lowest[key][i]; q.Step == last && finite(q.SQNR()) && (!ok || q.SQNR() < worst.SQNR()) {
				lowest[key][i] = q
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(lowest), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(linearOrder(a[0]), linearOrder(b[0])), strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	}) {
		row := page.Cells(key[0], key[1])
		for _, head := range table.Head[2:] {
			cell := page.Cell{Text: report.Missing}
			if q, ok := lowest[key][*head.Color]; ok {
				cell = page.Cell{Text: report.Fixed(q.SQNR(), 1), Small: fmt.Sprintf("layer %d", q.Layer)}
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	if len(table.Rows) == 0 {
		return page.Block{}
	}
	return page.Block{Note: "SQNR in dB of the layer with the lowest one, the weakest link, in the last recorded step.", Table: &table}
}

// linearOrder returns a sort key that orders linears roughly as a block runs them.
func linearOrder(linear string) int {
	module, name, _ := strings.Cut(linear, ".")
	modules := []string{"self_attn", "mlp", "shared_experts", "experts"}
	names := []string{
		"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_proj", "kv_b_proj", "o_proj", "gate_up_proj", "gate_proj",
		"up_proj", "down_proj",
	}
	at := func(list []string, s string) int {
		if i := slices.Index(list, s); i >= 0 {
			return i
		}
		return len(list)
	}
	return at(modules, module)*(len(names)+1) + at(names, name)
}

// relative returns (s-base)/base at the steps that both series have.
func relative(s, base page.Series) (out page.Series) {
	at := make(map[int]float64, len(base.Steps))
	for i, step := range base.Steps {
		at[step] = base.Values[i]
	}
	for i, step := range s.Steps {
		if b, ok := at[step]; ok {
			out.Add(step, s.Values[i]/b-1)
		}
	}
	return out
}

// scaled multiplies all values.
func scaled(s page.Series, by float64) page.Series {
	out := page.Series{Steps: s.Steps, Values: slices.Clone(s.Values)}
	for i := range out.Values {
		out.Values[i] *= by
	}
	return out
}

// over returns the curve of the means of several runs, with the range from the least to the
// greatest value. If a value is not finite, the mean is NaN, because a mean of the other runs would
// favor them. It reports whether there is anything to draw. Of a long curve, a point is the mean of
// some steps.
func over(runs []page.Series) (c page.Curve, ok bool) {
	type sum struct{ total, count, low, high float64 }
	at := map[int]*sum{}
	var steps []int
	for _, run := range runs {
		for i, step := range run.Steps {
			s := at[step]
			if s == nil {
				s = &sum{low: math.Inf(1), high: math.Inf(-1)}
				at[step], steps = s, append(steps, step)
			}
			v := run.Values[i]
			if s.total, s.count = s.total+v, s.count+1; finite(v) {
				s.low, s.high, ok = min(s.low, v), max(s.high, v), true
			}
		}
	}
	slices.Sort(steps)
	size := (len(steps) + 1000 - 1) / 1000
	for part := range slices.Chunk(steps, max(size, 1)) {
		mean := sum{low: math.Inf(1), high: math.Inf(-1)}
		for _, step := range part {
			s := at[step]
			mean.total += s.total / s.count / float64(len(part))
			mean.low, mean.high = min(mean.low, s.low), max(mean.high, s.high)
		}
		c.X, c.Y = append(c.X, float64(part[len(part)-1])), append(c.Y, mean.total)
		c.Low, c.High = append(c.Low, mean.low), append(c.High, mean.high)
	}
	if len(runs) < 2 && size < 2 {
		c.Low, c.High = nil, nil
	}
	return c, ok
}

// trailing returns the means of n consecutive values each, from the first n values to the last n.
// They are NaN where the last of the values is.
func trailing(s page.Series, n int) (out page.Series) {
	n = max(1, min(n, len(s.Values)))
	for i := n - 1; i < len(s.Values); i++ {
		sum, count := 0.0, 0.0
		for _, v := range s.Values[i+1-n : i+1] {
			if finite(v) {
				sum, count = sum+v, count+1
			}
		}
		if !finite(s.Values[i]) {
			sum = math.NaN()
		}
		out.Add(s.Steps[i], sum/count)
	}
	return out
}

// signed is report.Fixed with a plus sign for positive numbers.
func signed(v float64, decimals int) string {
	text := report.Fixed(v, decimals)
	if v > 0 && strings.Trim(text, "0.") != "" {
		text = "+" + text
	}
	return text
}
