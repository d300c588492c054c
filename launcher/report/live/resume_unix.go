//go:build unix

package live

import (
	"os"
	"os/signal"
	"syscall"
)

// continuations returns a channel that receives when this process continues after it was stopped,
// for example by fg after Ctrl-Z.
func continuations() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}
