package vec

// Reductions of a row to one value. Sums run in lanes: element i goes to lane i mod the number of
// lanes. The upper half of the lanes is added to the lower half until one lane is left. The sums of
// chunks are added in order. So the order of additions depends only on the length.

// Dot returns the sum of x[i]·y[i], in 64 lanes.
func Dot(x, y []float32) float32 { return dotRows(x, y) }

// DotBF16 is Dot of bfloat16 rows, in float32.
func DotBF16(x, y []uint16) float32 { return dotRows16(x, y) }

// SquaresBF16 returns the sum of the squares of bfloat16 numbers in float32. Each multiplication
// and addition is fused and rounds once. There are 64 lanes. Of every 64 elements, the first 32 go
// to the first 32 lanes, even elements before odd ones. The next 32 go to the other lanes in the
// same way.
func SquaresBF16(x []uint16) float32 { return squaresRows16(x) }

// SumSquares returns the sum of x[i]², in 32 lanes of float64.
func SumSquares(x []float32) float64 { return sumSquaresRows(x) }

// Max returns the largest element, or -Inf if there is none. NaNs are ignored, and a zero is +0.
func Max(x []float32) float32 {
	m := active.max(x[:min(chunk, len(x))])
	for len(x) > chunk {
		x = x[chunk:]
		m = max(m, Max(x[:min(chunk, len(x))]))
	}
	return m + 0
}
