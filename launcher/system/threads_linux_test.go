package system

import (
	"strings"
	"testing"
	"testing/fstest"
)

// The threads of other users and those of this process do not count.
func TestCheckThreads(t *testing.T) {
	root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1 kB\n")}}
	for pid, status := range map[string]string{
		"1": "Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t500\n", "7": "Uid:\t1000\t0\t0\t0\nThreads:\t20\n",
		"8": "Uid:\t1000\t1000\t1000\t1000\nThreads:\t3\n", "9": "Uid:\t1000\t1000\t1000\t1000\nThreads:\t90\n",
	} {
		root["proc/"+pid+"/status"] = &fstest.MapFile{Data: []byte(status)}
	}
	if err := checkThreads(root, 1000, 9, 30, 7); err != nil {
		t.Error(err)
	}
	if err := checkThreads(root, 1000, 9, 30, 8); err == nil || !strings.Contains(err.Error(), "may have 30 threads, and 23 are in use by other processes, but this job needs about 8: raise the limit (ulimit -u 39") {
		t.Error(err)
	}
}
