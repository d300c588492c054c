package main

import (
	"fmt"
	"io"

	"spmoe/datasets"
)

// printBuiltinText says which text a command without --data reads.
func printBuiltinText(out io.Writer, data []string) {
	if len(data) == 0 {
		fmt.Fprintf(out, "text: %s\n", datasets.DescribeBuiltin())
	}
}
