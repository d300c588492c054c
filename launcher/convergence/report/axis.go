package report

// Axes: their ranges and few, round tick marks.

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// extent is the range of what was added to it.
type extent struct{ min, max float64 }

func newExtent() extent { return extent{math.Inf(1), math.Inf(-1)} }

// add widens the range by finite values.
func (e *extent) add(values ...float64) {
	for _, v := range values {
		if finite(v) {
			e.min, e.max = min(e.min, v), max(e.max, v)
		}
	}
}

func (e extent) empty() bool { return e.min > e.max }

// padded adds a part of the range at both ends, or something where there is no range.
func (e extent) padded(part float64) extent {
	pad := part * (e.max - e.min)
	if pad == 0 {
		pad = max(math.Abs(e.max)*part, 1e-9)
	}
	return extent{e.min - pad, e.max + pad}
}

// apply makes it the range of an axis.
func (e extent) apply(axis *plot.Axis) { axis.Min, axis.Max = e.min, e.max }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// linear returns at most about n round tick marks, labelled by a function of the value and of the decimals that tell it from the next.
func linear(n int, label func(v float64, decimals int) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		step, decimals := roundStep((high - low) / float64(n))
		first := math.Ceil(low/step - 1e-9)
		for i := range n + 1 { // more there cannot be
			if v := (first + float64(i)) * step; v <= high+1e-9*step {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(v, decimals)})
			}
		}
		return ticks
	})
}

// roundStep returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below raw, and its decimals.
func roundStep(raw float64) (step float64, decimals int) {
	exponent := int(math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if step = m * math.Pow10(exponent); step >= raw*(1-1e-9) {
			switch m {
			case 2.5:
				exponent--
			case 10:
				exponent++
			}
			break
		}
	}
	return step, max(0, -exponent)
}

// logarithmic marks powers of ten, and twice and five times those where there are few.
func logarithmic(low, high float64) (ticks []plot.Tick) {
	mantissas := []float64{1, 2, 5}
	if high/low > 1e3 {
		mantissas = mantissas[:1]
	}
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range mantissas {
			if v := m * math.Pow(10, e); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	return ticks
}

// plain writes a number with so many decimals and a true minus sign.
func plain(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return strings.Replace(text, "-", "−", 1)
}

// signed is plain with a plus sign.
func signed(v float64, decimals int) string {
	text := plain(v, decimals)
	if v > 0 && strings.Trim(text, "0.") != "" {
		text = "+" + text
	}
	return text
}
