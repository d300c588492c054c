package gemm

// The order of summation of direct products, in plain Go. Across and transposed products have the
// order of panels.

import "testing"

// sixteenChains adds row i of a times column j of b, in BF16, to c. Chain l takes the pairs (k,
// k+1) with k%32 = 2l, the second of a pair first. Of every four chains the sum is (0+2)+(1+3).
// Then the first two and the last two of these sums are added, and then those two.
func sixteenChains(a, b View, i, j int, c float32) float32 {
	var chains [16]float32
	for k := 0; k < a.Cols; k += 2 {
		n := min(2, a.Cols-k)
		l := k / 2 % 16
		chains[l] = chain(a.slice(2, i, k, 1, n), b.slice(2, k, j, n, 1), 0, 0, chains[l])
	}
	var fours [4]float32
	for q := range fours {
		l := chains[4*q : 4*q+4]
		fours[q] = (l[0] + l[2]) + (l[1] + l[3])
	}
	return c + ((fours[0] + fours[1]) + (fours[2] + fours[3]))
}

// checkOrder compares sums of a·b, in BF16, with the order of panels.
func checkOrder(t *testing.T, sums matrix[float32], a, b View, tiles bool) {
	t.Helper()
	order := panelOrder(tiles)
	for i, sum := range sums.elements(t) {
		if want := order(a, b, i/b.Cols, i%b.Cols, 0); sum != want {
			t.Fatalf("element %d, %d is %g, want %g", i/b.Cols, i%b.Cols, sum, want)
		}
	}
}
