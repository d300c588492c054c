package report

// Formats numbers for people. A number that is not finite or not known is a dash.

import (
	"fmt"
	"math"
	"strconv"

	"spmoe/launcher/convergence"
	"spmoe/launcher/report/figure"
)

// change formats a relative difference: +0.031%.
func change(part float64) string {
	if !figure.Finite(part) {
		return figure.Missing
	}
	return figure.Signed(100*part, changeDecimals(part)) + "%"
}

// changeDecimals returns fewer decimals for large differences.
func changeDecimals(part float64) int {
	switch {
	case math.Abs(part) >= 0.1:
		return 1
	case math.Abs(part) >= 0.01:
		return 2
	}
	return 3
}

// interval formats the confidence interval of a difference: [−0.012, +0.074].
func interval(ci [2]float64) string {
	decimals := changeDecimals(max(math.Abs(ci[0]), math.Abs(ci[1])))
	return fmt.Sprintf("[%s, %s]", figure.Signed(100*ci[0], decimals), figure.Signed(100*ci[1], decimals))
}

// pValue formats the p of a difference's test.
func pValue(d *convergence.Difference) string {
	switch {
	case !tested(d):
		return figure.Missing
	case d.P < 0.0001:
		return "<0.0001"
	}
	return strconv.FormatFloat(d.P, 'f', 4, 64)
}

// tested reports whether there were enough seeds for intervals and a test.
func tested(d *convergence.Difference) bool { return d != nil && d.Seeds > 1 }

// decibels formats an SQNR. It is infinite if nothing was lost.
func decibels(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "exact"
	case !figure.Finite(v):
		return figure.Missing
	}
	return figure.Plain(v, 1)
}

// rare formats a small share of counted values, given in percent.
func rare(percent float64) string {
	switch {
	case !figure.Finite(percent):
		return figure.Missing
	case percent == 0:
		return "0"
	case percent < 0.0001:
		return "<0.0001%"
	}
	return strconv.FormatFloat(percent, 'g', 2, 64) + "%"
}
