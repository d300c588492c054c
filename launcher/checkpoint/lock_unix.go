//go:build unix

package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"spmoe/launcher/system"
)

// A process that has a checkpoint open holds a shared lock on its manifest, which ends with the
// process at the latest.

// lockShared marks an open manifest as in use until it is closed. On file systems without locks
// this fails silently, and checkpoints are not protected from Prune.
func lockShared(manifest *os.File) { unix.Flock(int(manifest.Fd()), unix.LOCK_SH|unix.LOCK_NB) }

// inUse reports whether a Reader has the manifest at path open.
func inUse(path string) bool {
	f, _, err := system.OpenRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
