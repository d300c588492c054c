//go:build unix

package system

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockExclusive locks a file until it is closed, and reports whether another process holds it.
func lockExclusive(file *os.File) (held bool) {
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
