package figure

// Numbers as people read them. What is not finite, or not there, is a dash.

import (
	"math"
	"strconv"
)

// Missing stands for a number that there is not.
const Missing = "–"

// Loss writes a loss in nats a token.
func Loss(v float64) string {
	if !Finite(v) {
		return Missing
	}
	return Plain(v, 4)
}

// Percentage writes a part as a percentage with at most so many decimals.
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
