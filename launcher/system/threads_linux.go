package system

// The limit on the threads of a user. Go's runtime ends with the stacks of all goroutines when it
// cannot start a thread, so a job that needs too many is refused before.

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CheckThreads returns an error if this process, and those that it will start, may not have the
// threads that they need. Source of who is limited: fork(2), EAGAIN.
func CheckThreads(need int) error {
	var l unix.Rlimit
	if os.Getuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Cur > 1<<31 {
		return nil
	}
	return checkThreads(os.DirFS("/"), os.Getuid(), os.Getpid(), int(l.Cur), need)
}

// checkThreads is CheckThreads for a process of a user with that limit, with proc(5) below root.
func checkThreads(root fs.FS, user, self, limit, need int) error {
	others := 0
	all, _ := fs.ReadDir(root, "proc")
	for _, process := range all {
		if pid, err := strconv.Atoi(process.Name()); err != nil || pid == self {
			continue
		}
		if status := table(root, "proc/"+process.Name()+"/status"); status["Uid:"] == int64(user) {
			others += int(status["Threads:"])
		}
	}
	if others+need <= limit {
		return nil
	}
	return fmt.Errorf("this user may have %d threads, and %d are in use by other processes, but this job needs about %d: raise the limit (ulimit -u %d or more), or give fewer ranks or --ranks goroutine",
		limit, others, need, others+2*need)
}
