package report

// Figures of the experts: the balance of their load, and the agreement of arms in choosing them.

import (
	"fmt"

	"gonum.org/v1/plot"

	"spmoe/launcher/report/figure"
)

func (p painter) imbalance() (figure.Figure, bool) {
	list := p.smoothed("imbalance")
	if len(list) == 0 {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "most loaded expert / mean")
	y := figure.NewExtent()
	for _, d := range list {
		y.Add(d.Low...)
		y.Add(d.High...)
	}
	y.Add(1)
	y = y.Padded(0.05)
	y.Min = 1
	y.Apply(&panel.Y)
	p.plot(panel, list, false)
	return figure.Figure{
		Name: "imbalance", Title: "Load of the experts", Legend: p.legend(list), Panels: [][]*plot.Plot{{panel}}, Height: 260,
		Caption: "The tokens of the most loaded expert over the mean, averaged over layers; 1 is perfect balance. Quantized arms should be balanced as fast and as well as the baseline.",
	}, true
}

func (p painter) agreement() (figure.Figure, bool) {
	list := p.curves(agreement)
	if len(list) == 0 {
		return figure.Figure{}, false
	}
	panel := figure.NewPanel("", "step", "shared choices of experts (%)")
	y := figure.NewExtent()
	for _, d := range list {
		y.Add(d.Low...)
		y.Add(d.High...)
	}
	y = y.Padded(0.06)
	y.Max = min(y.Max, 100)
	y.Min = max(y.Min, 0)
	if y.Max-y.Min < 5 {
		y.Min = max(0, y.Max-5)
	}
	y.Apply(&panel.Y)
	p.plot(panel, list, true)
	caption := "The share of a validation token's experts that are the same as with " + p.styles[0].Name + ": the mean over layers, with a band from the lowest layer to the highest. A slow fall is rounding that training amplifies, a sudden one a broken router."
	if chance := p.chance(); chance > 0 {
		caption += fmt.Sprintf(" Chance would be %s.", figure.Percentage(chance, 1))
	}
	return figure.Figure{
		Name: "router-agreement", Title: "Router agreement with " + p.styles[0].Name, Caption: caption,
		Legend: p.legend(list), Panels: [][]*plot.Plot{{panel}}, Height: 270,
	}, true
}

// chance is the share of choices that two unrelated routers agree on, or 0 if the logs lack it.
func (p painter) chance() float64 {
	for _, arm := range p.Arms {
		for _, run := range arm.Runs {
			if log := run.Log; log != nil && len(log.Choices) > 0 && len(log.Loads) > 0 && len(log.Loads[0].Tokens) > 0 {
				return float64(log.Choices[0].TopK) / float64(len(log.Loads[0].Tokens))
			}
		}
	}
	return 0
}
