package main

// Lists of pipeline degrees and schedules, for commands that cover several layouts.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
)

// degrees is a flag.Value: numbers of pipeline ranks, or all.
type degrees struct {
	all  bool
	list []int
}

func (d *degrees) String() string {
	if d.all {
		return allOfThem
	}
	var words []string
	for _, n := range d.list {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

const allOfThem = "all"

// Set implements [flag.Value].
func (d *degrees) Set(text string) error {
	if *d = (degrees{all: text == allOfThem}); d.all {
		return nil
	}
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("give numbers of ranks such as 1,2,4, or all")
		}
		d.list = append(d.list, n)
	}
	return nil
}

// of returns the degrees of a number of ranks.
func (d *degrees) of(ranks int) (list []int, err error) {
	if !d.all {
		for _, pp := range d.list {
			if ranks%pp != 0 {
				return nil, fmt.Errorf("pp %d does not divide %d ranks", pp, ranks)
			}
		}
		return d.list, nil
	}
	for pp := 1; pp <= ranks; pp++ {
		if ranks%pp == 0 {
			list = append(list, pp)
		}
	}
	return list, nil
}

// layouts returns the legal layouts of a number of ranks with these degrees.
func (d *degrees) layouts(ranks, experts int) (all []mesh.Layout, err error) {
	list, err := d.of(ranks)
	for _, pp := range list {
		all = append(all, mesh.Pipelines(ranks, pp, experts)...)
	}
	return all, err
}

// schedules is a flag.Value: names of schedules, or all.
type schedules []string

func (s *schedules) String() string { return strings.Join(*s, ",") }

// Set implements [flag.Value].
func (s *schedules) Set(text string) error {
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
