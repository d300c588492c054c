package referee

import (
	"fmt"
	"math"
	"os"
	"testing"
)

func TestZZ(t *testing.T) {
	r, err := Judge(os.Getenv("ZZ"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Verdict)
	for _, l := range r.Modules {
		for _, c := range l.Comparisons {
			if c.What == "choice" {
				continue
			}
			d := math.Abs(c.Factor - 1)
			if d > 1e-4 || d > 4*c.FactorFloor {
				fmt.Printf("%.2e floor %.2e ratio %5.1f  F/sqrt(n*64) %.1e %s %s\n", d, c.FactorFloor, d/c.FactorFloor, c.Floor/math.Sqrt(float64(c.Rows)*64), c.What, c.Name)
			}
		}
	}
}
