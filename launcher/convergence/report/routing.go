package report

// Figures of the experts: how evenly they are loaded, and whether arms choose the same ones.

import (
	"fmt"

	"gonum.org/v1/plot"
)

func (p painter) imbalance() (figure, bool) {
	list := p.smoothed(imbalances)
	if len(list) == 0 {
		return figure{}, false
	}
	panel := newPanel("", "step", "most loaded expert / mean")
	y := newExtent()
	for _, d := range list {
		y.add(d.low...)
		y.add(d.high...)
	}
	y.add(1)
	y = y.padded(0.05)
	y.min = 1
	y.apply(&panel.Y)
	p.plot(panel, list, false)
	return figure{
		name: "imbalance", title: "Load of the experts", legend: p.legend(list), panels: [][]*plot.Plot{{panel}}, height: 260,
		caption: "1 is perfect balance: quantised arms should be balanced as fast and as well as the baseline (the most loaded expert's tokens over the mean, averaged over layers).",
	}, true
}

func (p painter) agreement() (figure, bool) {
	list := p.curves(agreement)
	if len(list) == 0 {
		return figure{}, false
	}
	panel := newPanel("", "step", "shared choices of experts (%)")
	y := newExtent()
	for _, d := range list {
		y.add(d.low...)
		y.add(d.high...)
	}
	y = y.padded(0.06)
	y.max = min(y.max, 100)
	y.min = max(y.min, 0)
	if y.max-y.min < 5 {
		y.min = max(0, y.max-5)
	}
	y.apply(&panel.Y)
	p.plot(panel, list, true)
	caption := "How many of a held-out token's experts are the same as with " + p.looks[0].name + ", mean over layers with a band from the lowest layer to the highest: a slow fall is rounding that training amplifies, a sudden one a broken router."
	if chance := p.chance(); chance > 0 {
		caption += fmt.Sprintf(" Chance would be %s.", percentage(chance, 1))
	}
	return figure{
		name: "router-agreement", title: "Router agreement with " + p.looks[0].name, caption: caption,
		legend: p.legend(list), panels: [][]*plot.Plot{{panel}}, height: 270,
	}, true
}

// chance is the part of choices that two unrelated routers share; 0 if the logs do not tell.
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
