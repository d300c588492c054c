//go:build unix

package system

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// TerminalWidth returns the columns of the terminal that w writes to; 0 if w is not a terminal.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
