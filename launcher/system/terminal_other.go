//go:build !unix

package system

import "io"

// TerminalWidth returns the columns of the terminal that w writes to: always 0, unknown, here.
func TerminalWidth(w io.Writer) int { return 0 }
