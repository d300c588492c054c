package cli

import (
	"fmt"
	"io"
)

// Finite returns a number for JSON, and nil for an infinity or a NaN, which JSON does not have.
func Finite(x float64) any {
	if x-x != 0 {
		return nil
	}
	return x
}

// Table prints rows under a title, with right-aligned cells.
type Table struct{ out io.Writer }

// NewTable prints the heads of a table and returns it.
func NewTable(out io.Writer, title string, columns ...string) Table {
	fmt.Fprintln(out)
	t := Table{out}
	t.Row(title, columns...)
	return t
}

// Row prints a row.
func (t Table) Row(name string, cells ...string) {
	line := fmt.Sprintf("%-24s", name)
	for _, c := range cells {
		if c == "0" || c == "0 B" || c == "0.0%" {
			c = "-"
		}
		line += fmt.Sprintf(" %11s", c)
	}
	fmt.Fprintln(t.out, line)
}

// Percent formats a share of a whole.
func Percent(part, whole float64) string {
	return fmt.Sprintf("%.1f%%", 100*part/max(whole, 1))
}

// Decimal is a prefix of a unit.
type Decimal struct {
	Name string
	By   float64
}

// UnitOf returns the prefix with which a number has at most three digits before the point.
func UnitOf(v float64) Decimal {
	d := Decimal{"", 1}
	for _, next := range []Decimal{{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}} {
		if v >= next.By {
			d = next
		}
	}
	return d
}

// Of formats a number in the unit.
func (d Decimal) Of(v float64) string { return fmt.Sprintf("%.4g", v/d.By) }
