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

// Degrees is a flag.Value: numbers of pipeline ranks, or all.
type Degrees struct {
	all  bool
	List []int
}

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
	if *d = (Degrees{all: text == allOfThem}); d.all {
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
		for _, pp := range d.List {
			if ranks%pp != 0 {
				return nil, fmt.Errorf("pp %d does not divide %d ranks", pp, ranks)
			}
		}
		return d.List, nil
	}
	for pp := 1; pp <= ranks; pp++ {
		if ranks%pp == 0 {
			list = append(list, pp)
		}
	}
	return list, nil
}

// Layouts returns the legal layouts of a number of ranks with these degrees.
func (d *Degrees) Layouts(ranks, experts int) (all []mesh.Layout, err error) {
	list, err := d.of(ranks)
	for _, pp := range list {
		all = append(all, mesh.Pipelines(ranks, pp, experts)...)
	}
	return all, err
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
