//go:build unix

package system

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// TerminalSize returns the columns and rows of the terminal that w writes to; 0 if w is not a
// terminal.
func TerminalSize(w io.Writer) (columns, rows int) {
	file, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// Continued returns a channel that receives when this process continues after it was stopped, for
// example by fg after Ctrl-Z.
func Continued() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}
