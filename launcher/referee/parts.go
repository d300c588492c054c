package referee

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A gradient is a sum of parts: of micro-batches, of the tokens of each rank. Its coefficients on
// them, by least squares, show which part was lost, doubled or not averaged.

// Part is a share of a gradient: the local reference gradient of some tokens.
type Part struct {
	Name   string // "micro-batch 2", "dp rank 1"
	Axis   string // "micro-batches", "dp"
	Values []float64
}

// solve returns the coefficients a that minimize ‖y - Σ a·parts‖, and that distance by ‖y‖. Parts
// that do not differ leave nothing to solve for: ok is false.
func solve(y []float64, parts [][]float64) (a []float64, rest float64, ok bool) {
	n := len(parts)
	matrix := make([][]float64, n)
	for i := range matrix {
		matrix[i] = make([]float64, n+1)
		for k := range parts {
			matrix[i][k] = dot(parts[i], parts[k])
		}
		matrix[i][n] = dot(parts[i], y)
	}
	for i := range matrix {
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(matrix[r][i]) > math.Abs(matrix[pivot][i]) {
				pivot = r
			}
		}
		matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
		if !(math.Abs(matrix[i][i]) > 1e-9*dot(parts[i], parts[i])) {
			return nil, 0, false
		}
		for r := range matrix {
			if r == i {
				continue
			}
			f := matrix[r][i] / matrix[i][i]
			for k := i; k <= n; k++ {
				matrix[r][k] -= f * matrix[i][k]
			}
		}
	}
	a = make([]float64, n)
	left := slices.Clone(y)
	for i := range a {
		a[i] = matrix[i][n] / matrix[i][i]
		for k, p := range parts[i] {
			left[k] -= a[i] * p
		}
	}
	return a, normOf(left, nil) / max(normOf(y, nil), math.SmallestNonzeroFloat64), true
}

func dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// describeParts says in words what coefficients of parts mean. tolerance is how far a coefficient
// may be from a round one.
func describeParts(parts []Part, a []float64, tolerance float64) string {
	near := func(x, y float64) bool { return math.Abs(x-y) <= max(0.02, tolerance) }
	var kept, lost, odd []string
	for i, p := range parts {
		switch {
		case near(a[i], 0):
			lost = append(lost, p.Name)
		case near(a[i], 1):
			kept = append(kept, p.Name)
		default:
			odd = append(odd, fmt.Sprintf("%s × %s", p.Name, factorText(a[i])))
		}
	}
	switch {
	case len(odd) == 0 && len(lost) == 0:
		return ""
	case len(odd) == 0:
		return fmt.Sprintf("it is the gradient of %s alone: the sum over %s was not done", strings.Join(kept, " and "), parts[0].Axis)
	}
	text := "it is " + strings.Join(odd, " + ")
	if len(kept) > 0 {
		text += " + " + strings.Join(kept, " + ")
	}
	if len(lost) > 0 {
		text += ", without " + strings.Join(lost, " and ")
	}
	return text
}

// factorText writes a factor as people would: 2, 1/8, 0.731.
func factorText(x float64) string {
	for n := 2; n <= 1024; n++ {
		if (n <= 16 || n%8 == 0) && math.Abs(x*float64(n)-1) < 0.001 {
			return fmt.Sprintf("1/%d", n)
		}
	}
	for digits := 1; digits < 4; digits++ {
		if text := strconv.FormatFloat(x, 'g', digits, 64); digits > 0 {
			if y, _ := strconv.ParseFloat(text, 64); math.Abs(y/x-1) < 0.001 || y == x {
				return strconv.FormatFloat(y, 'f', -1, 64)
			}
		}
	}
	return fmt.Sprintf("%.4g", x)
}
