package tensor

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The system knows that tensors and arenas want large pages.
func TestLargePages(t *testing.T) {
	if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil || strings.Contains(string(mode), "[never]") {
		t.Skip("this system has no large pages to give")
	}
	const bytes = 16 << 20
	if !showsLargePages(t, bytes) {
		t.Skip("this system does not show which mappings want large pages; qemu-user does not")
	}
	var a Arena
	for name, x := range map[string]Tensor{"tensor": New(UINT8, bytes), "arena": a.New(UINT8, bytes)} {
		middle := &x.U8()[bytes/2]
		if flags := mappingFlags(t, fmt.Sprintf("%p", middle)); !strings.Contains(flags+" ", " hg ") {
			t.Errorf("%s: flags of the mapping are %q, want hg among them", name, flags)
		}
	}
}

// showsLargePages reports whether the flags of a mapping show that large pages were requested for
// it.
func showsLargePages(t *testing.T, bytes int) bool {
	t.Helper()
	m, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(m)
	if err := syscall.Madvise(m, syscall.MADV_HUGEPAGE); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(mappingFlags(t, fmt.Sprintf("%p", &m[bytes/2]))+" ", " hg ")
}

// mappingFlags returns the flags of the mapping that holds an address.
func mappingFlags(t *testing.T, address string) string {
	t.Helper()
	var at uint64
	if _, err := fmt.Sscanf(address, "0x%x", &at); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var low, high uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &low, &high); n == 2 {
			inside = low <= at && at < high
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			return flags
		}
	}
	t.Skip("this system does not tell the flags of mappings")
	return ""
}
