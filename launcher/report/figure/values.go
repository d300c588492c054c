package figure

// Formatting of numbers for people. Missing and non-finite numbers are dashes.

import (
	"math"
	"strconv"
)

// Missing stands for a missing number.
const Missing = "–"

// Loss formats a loss in nats/token.
func Loss(v float64) string {
	if !Finite(v) {
		return Missing
	}
	return Plain(v, 4)
}

// Percentage formats a fraction as a percentage with at most the given decimals.
func Percentage(part float64, decimals int) string {
	if !Finite(part) {
		return Missing
	}
	scale := math.Pow10(decimals)
	return plainShort(math.Round(100*part*scale)/scale) + "%"
}

func plainShort(v float64) string {
	if v == 0 {
		return "0"
	}
	return Plain(v, decimalsOf(v))
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
