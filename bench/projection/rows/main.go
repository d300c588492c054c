// Rows prints what the formula of bench/projection says about runs: for each line of its input, a
// row in JSON, a line in JSON with the throughput and the shares of its terms. effects.py reads it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"spmoe/bench/projection"
)

func main() {
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(1)
	}
}

func answer(from io.Reader, to io.Writer) error {
	in, out := json.NewDecoder(from), bufio.NewWriter(to)
	in.DisallowUnknownFields()
	for {
		var q projection.Question
		if err := in.Decode(&q); err == io.EOF {
			return out.Flush()
		} else if err != nil {
			return err
		}
		a, err := q.Answer()
		if err != nil {
			return fmt.Errorf("row %q: %w", q.ID, err)
		}
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", text)
	}
}
