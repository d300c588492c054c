// Command fit evaluates the formula of package projection for fit.py. Its first line of output has
// the fitted rows and their kinds. Then it reads lines of values, one for each constant of the
// table, and answers each with the logarithms of the rows' tokens/s per GPU.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"spmoe/bench/projection"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

func serve() error {
	fits, err := projection.NewFits()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(map[string]any{"rows": fits.Rows, "kinds": fits.Kinds()}); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var values []float64
		if err := json.Unmarshal(in.Bytes(), &values); err != nil {
			return err
		}
		if want := len(projection.Table()); len(values) != want {
			return fmt.Errorf("%d values: the table has %d constants", len(values), want)
		}
		if err := encoder.Encode(fits.Predict(values)); err != nil {
			return err
		}
		if in.Err() == nil && out.Flush() != nil {
			return fmt.Errorf("the reader is gone")
		}
	}
	return in.Err()
}
