package main

import (
	"fmt"
	"io"

	"spmoe/datasets"
)

// printBuiltinText prints a line if a command without --data reads the text inside the program.
func printBuiltinText(out io.Writer, data []string) {
	if len(data) > 0 {
		return
	}
	if text, inside := datasets.DescribeBuiltin(); inside {
		fmt.Fprintf(out, "text: %s\n", text)
	}
}
