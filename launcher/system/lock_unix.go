//go:build unix

package system

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockExclusive locks a file until it is closed, and reports whether another process holds it. err
// says why it cannot be locked at all.
func lockExclusive(file *os.File) (held bool, err error) {
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return false, err
		}
	}
}

// LockShared locks a file until it is closed, together with other holders of shared locks. On file
// systems without locks this fails silently.
func LockShared(file *os.File) { unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) }

// Locked reports whether the regular file at path is locked.
func Locked(path string) bool {
	file, _, err := OpenRegular(path)
	if err != nil {
		return false
	}
	defer file.Close() // ends the lock
	held, _ := lockExclusive(file)
	return held
}

// identityOf returns a text that only this file of the machine has, as long as it is open.
func identityOf(file os.FileInfo) string {
	stat := file.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
