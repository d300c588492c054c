package overview

// The results of tasks over the steps of a run.

import (
	"gonum.org/v1/plot"

	"spmoe/launcher/report/figure"
)

// shownTasks is the maximum number of tasks in the figure, one per color.
const shownTasks = 6

// tasks draws the accuracy of each task: acc_norm where there is one, acc otherwise.
func (r Run) tasks() (figure.Figure, bool) {
	n := len(r.Log.Evals)
	if n == 0 || len(r.Log.Evals[n-1].Tasks) == 0 {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "accuracy")
	var styles []figure.SeriesStyle
	var curves []figure.Curve
	var hover figure.Hover
	for i, task := range r.Log.Evals[n-1].Tasks[:min(shownTasks, len(r.Log.Evals[n-1].Tasks))] {
		curve, metric := r.accuracy(task.Task)
		style := styleOf(task.Task+" "+metric, figure.Palette[1+i])
		if style.Dots = curve.Sparse(); !style.Dots {
			r.line(panel, curve, style)
		}
		panel.Add(figure.Dots{X: curve.Steps, Y: curve.Mean, Color: style.Shade.Color(), Radius: 2.2})
		styles, curves = append(styles, style), append(curves, curve)
		hover = append(hover, figure.NamedCurve{Name: style.Name, X: curve.Steps, Y: curve.Mean})
	}
	y := spanning(0.05, curves...)
	figure.Extent{Min: max(0, min(y.Min, y.Max-0.05)), Max: min(1, max(y.Max, y.Min+0.05))}.Apply(&panel.Y)
	panel.Add(hover)
	r.steps(panel)
	return figure.Figure{
		Name: "tasks", Title: "Tasks", Legend: styles, Panels: [][]*plot.Plot{{panel}}, Height: 260,
		Caption: "Share of the questions that the model answers rightly, by the log-likelihood of the answers. A choice among four at random is right once in four times.",
	}, true
}

// accuracy returns a task's accuracy at each evaluation, and the name of the metric.
func (r Run) accuracy(task string) (figure.Curve, string) {
	var s figure.Series
	metric := "acc"
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
	return figure.Over([]figure.Series{s}), metric
}
