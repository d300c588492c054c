package exchange

import (
	"time"

	"spmoe/collective"
)

// Waits returns how long each rank (first index) has waited for each other rank on c so far. Every
// rank calls it.
func Waits(c *collective.Comm) ([][]time.Duration, error) {
	n := c.Size()
	own, all := make([]int64, n), make([]int64, n*n)
	for r, wait := range c.Waits() {
		own[r] = int64(wait)
	}
	if err := collective.AllGather(c, all, own); err != nil {
		return nil, err
	}
	matrix := make([][]time.Duration, n)
	for r := range matrix {
		matrix[r] = make([]time.Duration, n)
		for s := range n {
			matrix[r][s] = time.Duration(all[r*n+s])
		}
	}
	return matrix, nil
}
