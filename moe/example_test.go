package moe_test

import (
	"fmt"

	"spmoe/moe"
)

// What DeepSeek-V3 has.
func ExampleConfig_Count() {
	c, err := moe.FlavorByName("671B")
	if err != nil {
		panic(err)
	}
	n := c.Count()
	fmt.Printf("%.1f billion parameters, %.2f billion active a token\n", float64(n.Total)/1e9, float64(n.Active)/1e9)
	// Output: 671.0 billion parameters, 37.55 billion active a token
}
