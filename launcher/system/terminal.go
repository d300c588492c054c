package system

import "io"

// TerminalWidth returns the columns of the terminal that w writes to; 0 if w is not a terminal.
func TerminalWidth(w io.Writer) int {
	columns, _ := TerminalSize(w)
	return columns
}
