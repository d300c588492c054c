//go:build !unix

package system

import "io"

// TerminalWidth returns the columns of the terminal that w writes to. On this system it always
// returns 0: unknown.
func TerminalWidth(w io.Writer) int { return 0 }
