// Package need ends tests that need something which this machine does not have.
package need

import (
	"os"
	"testing"
)

// Hosts reports whether the environment says that tests of several hosts must run:
// SPMOE_NEED_HOSTS=1.
func Hosts() bool { return os.Getenv("SPMOE_NEED_HOSTS") == "1" }

// Missing ends a test of several hosts that lacks something. The test is skipped or, if all must
// run, fails.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Hosts() {
		t.Fatalf(format+" (and SPMOE_NEED_HOSTS=1)", args...)
	}
	t.Skipf(format, args...)
}
