package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// row is a model and the size of its steps, which both sides train.
type row struct {
	name, flavor string
	batch, seq   int
	model        []string // flags of the launcher that change the flavor
}

// rows are the models to compare. Steps have 4,096 tokens, or two of the longest sequences: one per
// rank.
var rows = []row{
	{name: "small", flavor: "small", batch: 8, seq: 512},
	{name: "vocab-100277", flavor: "small", batch: 8, seq: 512, model: []string{"--model.vocab=100277"}},
	{name: "seq-8192", flavor: "small", batch: 2, seq: 8192, model: []string{"--model.max-positions=8192"}},
	{name: "seq-32768", flavor: "small", batch: 2, seq: 32768, model: []string{"--model.max-positions=32768"}},
	{name: "16B-slice", flavor: "16B-slice", batch: 8, seq: 512},
	{name: "671B-slice", flavor: "671B-slice", batch: 8, seq: 512},
}

// rowNames lists the names of all rows.
func rowNames() string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return strings.Join(names, ",")
}

// selectRows returns the rows with these names, in this order; "all" is every row.
func selectRows(list string) (selected []row, err error) {
	if list == "all" {
		return rows, nil
	}
	for _, name := range strings.Split(list, ",") {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--rows: there is no row %q; the rows are %s", name, rowNames())
		}
		selected = append(selected, rows[i])
	}
	return selected, nil
}

// parseRow returns the row that flags of bench train describe: --flavor, --seq, --batch and any
// --model flag.
func parseRow(args []string) (row, error) {
	r := row{name: strings.Join(args, " "), flavor: "small", batch: 8, seq: 512}
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		if !given && len(args) == 0 {
			return r, fmt.Errorf("%s needs a value", name)
		}
		if !given {
			value, args = args[0], args[1:]
		}
		if err := r.set("--"+strings.TrimLeft(name, "-"), value); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *row) set(name, value string) (err error) {
	switch {
	case name == "--flavor":
		r.flavor = value
	case name == "--seq":
		r.seq, err = strconv.Atoi(value)
	case name == "--batch":
		r.batch, err = strconv.Atoi(value)
	case strings.HasPrefix(name, "--model."):
		r.model = append(r.model, name+"="+value)
	default:
		err = fmt.Errorf("%s does not change the shape of a model: give --flavor, --seq, --batch or --model flags", name)
	}
	return err
}

// sizes are the launcher's flags for the size of a step and the model's changes.
func (r row) sizes() []string {
	return append([]string{"--seq", strconv.Itoa(r.seq), "--batch", strconv.Itoa(r.batch)}, r.model...)
}

func (r row) inspect() []string {
	return append([]string{"inspect", r.flavor, "--json"}, r.sizes()...)
}

func (r row) benchTrain(ranks, threads int, precision string) []string {
	head := []string{"-np", strconv.Itoa(ranks), "--threads", strconv.Itoa(threads), "bench", "train", "--quick", "--flavor", r.flavor, "--precision", precision, "--json", "-"}
	return append(head, r.sizes()...)
}
