package report

// Formats numbers for pages. A number that is missing or not finite is a dash.

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Missing stands for a missing number.
const Missing = "–"

// Finite reports whether v is neither NaN nor infinite.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Loss formats a loss in nats/token.
func Loss(v float64) string {
	if !Finite(v) {
		return Missing
	}
	return Fixed(v, 4)
}

// Fixed formats a number with the given decimals and a true minus sign. Very long numbers get an
// exponent.
func Fixed(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	if len(text) > 24 {
		text = strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strings.ReplaceAll(text, "-", "−")
}

// Percentage formats a fraction as a percentage with at most the given decimals.
func Percentage(part float64, decimals int) string {
	if !Finite(part) {
		return Missing
	}
	text := Fixed(100*part, decimals)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + "%"
}

// Median returns the middle of some values, the upper one of two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
