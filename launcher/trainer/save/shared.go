package save

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"spmoe/collective"
	"spmoe/launcher/system"
)

// checkShared returns an error unless all hosts write to the same run folder. Every host writes a
// mark there and looks for that of the first host. It is collective.
func checkShared(c *collective.Comm, dir string) (failed error) {
	hosts, here := c.Hosts(), c.Host()
	if len(hosts) == 1 {
		return nil
	}
	mark := func(host int) string { return fmt.Sprintf(".host-%d", host) }
	leads := hosts[here][0] == c.Rank()
	if leads {
		var file *os.File
		if file, failed = system.OpenOwn(dir, mark(here), os.O_WRONLY|os.O_CREATE); failed == nil {
			failed = file.Close()
		}
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	apart := make([]int64, len(hosts))
	if leads && failed == nil { // a network file system shows the files of others after a local change
		if _, err := os.Lstat(filepath.Join(dir, mark(0))); err != nil {
			apart[here] = 1
		}
	}
	if err := collective.AllReduce(c, apart, collective.Max); err != nil {
		return err
	}
	if leads && failed == nil {
		failed = os.Remove(filepath.Join(dir, mark(here)))
	}
	if h := slices.Index(apart, 1); h >= 0 && failed == nil {
		return fmt.Errorf("%s of %s is not the folder of %s: give --out on a file system that all hosts share",
			dir, c.Placement().Describe(hosts[h][0]), c.Placement().Describe(0))
	}
	return failed
}
