//go:build !unix

package system

import (
	"io"
	"os"
)

// TerminalSize returns the columns and rows of the terminal that w writes to. On this system it
// always returns 0: unknown.
func TerminalSize(w io.Writer) (columns, rows int) { return 0, 0 }

// Continued returns a channel that never receives: processes are not stopped on this system.
func Continued() (c chan os.Signal, stop func()) { return nil, func() {} }
