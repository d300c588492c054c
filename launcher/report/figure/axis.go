package figure

// Axes: their ranges and few, round tick marks.

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// Extent is the range of the values that were added to it.
type Extent struct{ Min, Max float64 }

// NewExtent returns an empty range.
func NewExtent() Extent { return Extent{math.Inf(1), math.Inf(-1)} }

// Add widens the range by finite values.
func (e *Extent) Add(values ...float64) {
	for _, v := range values {
		if Finite(v) {
			e.Min, e.Max = min(e.Min, v), max(e.Max, v)
		}
	}
}

// Empty reports whether no finite value was added.
func (e Extent) Empty() bool { return e.Min > e.Max }

// Padded extends the range by a fraction of its length at both ends. A range of length zero gets
// some length.
func (e Extent) Padded(part float64) Extent {
	pad := part * (e.Max - e.Min)
	if pad == 0 {
		pad = max(math.Abs(e.Max)*part, 1e-9)
	}
	return Extent{e.Min - pad, e.Max + pad}
}

// Apply sets the range of an axis.
func (e Extent) Apply(axis *plot.Axis) { axis.Min, axis.Max = e.Min, e.Max }

// Finite reports whether v is neither NaN nor infinite.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Linear returns at most about n round tick marks. label formats a value with the number of
// decimals that distinguish it from the next tick.
func Linear(n int, label func(v float64, decimals int) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		step, decimals := roundStep((high - low) / float64(n))
		first := math.Ceil(low/step - 1e-9)
		// there are at most n+1 ticks
		for i := range n + 1 {
			if v := (first + float64(i)) * step; v <= high+1e-9*step {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(v, decimals)})
			}
		}
		return ticks
	})
}

// Whole is Linear without the tick marks that are no whole numbers: there is no step 2.5.
func Whole(n int) plot.Ticker {
	all := Linear(n, func(v float64, _ int) string { return Plain(v, 0) })
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		return slices.DeleteFunc(all.Ticks(low, high), func(t plot.Tick) bool { return math.Abs(t.Value-math.Round(t.Value)) > 1e-9 })
	})
}

// roundStep returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least raw, and
// the number of its decimals.
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

// Logarithmic returns ticks at powers of ten, and at two and five times those if there are few. A
// short range has the ticks of a linear axis.
func Logarithmic(low, high float64) (ticks []plot.Tick) {
	if high/low < 8 {
		return Linear(5, Plain).Ticks(low, high)
	}
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

// Plain formats a number with the given decimals and a true minus sign. Very long numbers get an
// exponent.
func Plain(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	if len(text) > 24 {
		text = strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strings.ReplaceAll(text, "-", "−")
}

// Signed is Plain with a plus sign for positive numbers.
func Signed(v float64, decimals int) string {
	text := Plain(v, decimals)
	if v > 0 && strings.Trim(text, "0.") != "" {
		text = "+" + text
	}
	return text
}
