package cpu

// Tables of kernels by tier, and the choices made from them.

import (
	"cmp"
	"slices"
)

// A Table is a family of kernels. It has a row for Generic, and one for each tier in which the
// family has something new.
type Table[K any] map[Tier]K

// Row returns the tier whose row t uses. This is t if it has a row, and otherwise the most
// preferred tier with a row that t includes.
func (table Table[K]) Row(t Tier) Tier {
	if _, ok := table[t]; ok {
		return t
	}
	row := Generic
	for _, other := range table.Tiers() {
		if t.Includes(other) {
			row = other
		}
	}
	return row
}

// Kernels returns the kernels that a tier uses.
func (table Table[K]) Kernels(t Tier) K { return table[table.Row(t)] }

// Tiers lists the tiers that have a row, in order of preference.
func (table Table[K]) Tiers() []Tier {
	return slices.DeleteFunc(All(), func(t Tier) bool {
		_, ok := table[t]
		return !ok
	})
}

// A Family is the name of a table and the function that maps each tier to the row it uses.
type Family struct {
	Name string
	Row  func(Tier) Tier
}

// families grows only while one goroutine initializes the packages.
var families []Family

// Choose returns the kernels of the tier in use and registers the table for Families. A package
// calls it once, to initialize a variable.
func Choose[K any](family string, table Table[K]) K {
	families = append(families, Family{family, table.Row})
	return table.Kernels(Best())
}

// Families lists the families of kernels in this program, sorted by name.
func Families() []Family {
	byName := func(a, b Family) int { return cmp.Compare(a.Name, b.Name) }
	return slices.SortedFunc(slices.Values(families), byName)
}
