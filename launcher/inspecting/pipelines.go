package inspecting

// Lists of pipeline degrees and schedules, for commands that cover several layouts.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
)

// Degrees is a flag.Value: numbers of ranks along an axis, or all.
type Degrees struct {
	Axis mesh.Axis
	all  bool
	List []int
}

// One returns the list of one rank along an axis.
func One(axis mesh.Axis) Degrees { return Degrees{Axis: axis, List: []int{1}} }

// One reports whether the list has one rank only.
func (d *Degrees) One() bool { return !d.all && slices.Equal(d.List, []int{1}) }

// String implements flag.Value.
func (d *Degrees) String() string {
	if d.all {
		return allOfThem
	}
	var words []string
	for _, n := range d.List {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

const allOfThem = "all"

// Set implements [flag.Value].
func (d *Degrees) Set(text string) error {
	if *d = (Degrees{Axis: d.Axis, all: text == allOfThem}); d.all {
		return nil
	}
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("give numbers of ranks such as 1,2,4, or all")
		}
		d.List = append(d.List, n)
	}
	return nil
}

// of returns the degrees of a number of ranks.
func (d *Degrees) of(ranks int) (list []int, err error) {
	if !d.all {
		for _, n := range d.List {
			if !d.legal(n, ranks) {
				return nil, fmt.Errorf("%s %d does not divide %d ranks%s", d.Axis, n, ranks, d.rule())
			}
		}
		return d.List, nil
	}
	for n := 1; n <= ranks; n++ {
		if d.legal(n, ranks) {
			list = append(list, n)
		}
	}
	return list, nil
}

// legal reports whether some ranks have layouts with the degree n.
func (d *Degrees) legal(n, ranks int) bool {
	return ranks%n == 0 && (d.Axis == mesh.PP || n&(n-1) == 0)
}

// rule says what else a degree must be.
func (d *Degrees) rule() string {
	if d.Axis != mesh.PP {
		return ", or is no power of two"
	}
	return ""
}

// Layouts returns the legal layouts of a number of ranks with these degrees.
func Layouts(ranks, experts int, pp, cp, tp *Degrees) (all []mesh.Layout, err error) {
	var lists [3][]int
	for i, d := range [...]*Degrees{pp, cp, tp} {
		if lists[i], err = d.of(ranks); err != nil {
			return nil, err
		}
	}
	for _, pp := range lists[0] {
		for _, cp := range lists[1] {
			for _, tp := range lists[2] {
				all = append(all, mesh.Sharing(ranks, pp, cp, tp, experts)...)
			}
		}
	}
	return all, nil
}

// Schedules is a flag.Value: names of schedules, or all.
type Schedules []string

// String implements flag.Value.
func (s *Schedules) String() string { return strings.Join(*s, ",") }

// Set implements [flag.Value].
func (s *Schedules) Set(text string) error {
	if text == allOfThem {
		*s = pipeline.Names()
		return nil
	}
	*s = nil
	for _, name := range strings.Split(text, ",") {
		i := slices.IndexFunc(pipeline.Names(), func(known string) bool { return strings.EqualFold(known, name) })
		if i < 0 {
			return fmt.Errorf("%.40q is not a schedule: give some of %s, or all", name, strings.Join(pipeline.Names(), ","))
		}
		*s = append(*s, pipeline.Names()[i])
	}
	return nil
}
