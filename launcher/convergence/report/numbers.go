package report

// Numbers as people read them. What is not finite, or not there, is a dash.

import (
	"fmt"
	"math"
	"strconv"

	"spmoe/launcher/convergence"
)

const missing = "–"

func loss(v float64) string {
	if !finite(v) {
		return missing
	}
	return plain(v, 4)
}

// percentage writes a part as a percentage with at most so many decimals.
func percentage(part float64, decimals int) string {
	if !finite(part) {
		return missing
	}
	scale := math.Pow10(decimals)
	return plainShort(math.Round(100*part*scale)/scale) + "%"
}

func plainShort(v float64) string {
	if v == 0 {
		return "0"
	}
	return plain(v, decimalsOf(v))
}

func decimalsOf(v float64) int {
	text := strconv.FormatFloat(math.Abs(v), 'f', -1, 64)
	for i, r := range text {
		if r == '.' {
			return len(text) - i - 1
		}
	}
	return 0
}

// change writes a relative difference: +0.031%.
func change(part float64) string {
	if !finite(part) {
		return missing
	}
	return signed(100*part, changeDecimals(part)) + "%"
}

// changeDecimals keeps large differences short.
func changeDecimals(part float64) int {
	switch {
	case math.Abs(part) >= 0.1:
		return 1
	case math.Abs(part) >= 0.01:
		return 2
	}
	return 3
}

// interval writes a confidence interval of one: [−0.012, +0.074].
func interval(ci [2]float64) string {
	decimals := changeDecimals(max(math.Abs(ci[0]), math.Abs(ci[1])))
	return fmt.Sprintf("[%s, %s]", signed(100*ci[0], decimals), signed(100*ci[1], decimals))
}

// pValue writes the p of a difference's test.
func pValue(d *convergence.Difference) string {
	switch {
	case !tested(d):
		return missing
	case d.P < 0.0001:
		return "<0.0001"
	}
	return strconv.FormatFloat(d.P, 'f', 4, 64)
}

// tested says that there were seeds enough for intervals and a test.
func tested(d *convergence.Difference) bool { return d != nil && d.Seeds > 1 }

// decibels writes an SQNR, which is infinite where nothing was lost.
func decibels(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "exact"
	case !finite(v):
		return missing
	}
	return plain(v, 1)
}

// rare writes a small part that was counted, given in percent.
func rare(percent float64) string {
	switch {
	case !finite(percent):
		return missing
	case percent == 0:
		return "0"
	case percent < 0.0001:
		return "<0.0001%"
	}
	return strconv.FormatFloat(percent, 'g', 2, 64) + "%"
}
