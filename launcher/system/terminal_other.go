//go:build !unix

package system

import "io"

// TerminalSize returns the columns and rows of the terminal that w writes to. On this system it
// always returns 0: unknown.
func TerminalSize(w io.Writer) (columns, rows int) { return 0, 0 }
