package collective_test

import (
	"fmt"

	"spmoe/collective"
)

// Four ranks add up their numbers.
func ExampleAllReduce() {
	sums := make([]float32, 4)
	err := collective.NewWorld(4).Run(func(c *collective.Comm) error {
		buf := []float32{float32(c.Rank())}
		if err := collective.AllReduce(c, buf, collective.Sum); err != nil {
			return err
		}
		sums[c.Rank()] = buf[0]
		return nil
	})
	fmt.Println(sums, err)
	// Output: [6 6 6 6] <nil>
}
