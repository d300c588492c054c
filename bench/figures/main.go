// Figures checks that the measurements quoted in README.md and in docs stand in their result files,
// and that the code which they measure has not changed by more than these files allow:
//
//	go run ./bench/figures check
//	go run ./bench/figures list      # also every figure, with what it was compared with
//
// A figure is marked in one of three ways:
//
//   - Its table row, list item or paragraph names a file in bench/results, usually as a link.
//   - A comment <!-- figures: bench/results/FILE --> stands in it, or on the line above its table,
//     list, paragraph or code block.
//   - <!-- figures: given --> there says that the figures are no measurements of this project: they
//     are published, assumed, or a setting.
//
// The comparison is textual: it does not know which number of a file is meant. Changes of figures
// with three digits are mostly noticed. A figure of one or two digits must stand on a line of the
// file that shares a word with the text, or a longer figure: half of their changes are noticed.
//
// A figure may be rounded: 46 % is found in a file with 45.6%. Names such as BF16, top-8, 32x2048
// and code are no figures. An unmarked figure with a unit that only a measurement has, such as
// tokens/s, is an error.
package main

import (
	"fmt"
	"os"
)

const usage = "usage: go run ./bench/figures check|list, in the root of the repository"

func main() {
	if len(os.Args) != 2 || os.Args[1] != "check" && os.Args[1] != "list" {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	report, err := check(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(2)
	}
	if os.Args[1] == "list" {
		report.list(os.Stdout)
	}
	report.print(os.Stdout)
	if len(report.faults) > 0 {
		os.Exit(1)
	}
}
