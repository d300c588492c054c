//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The programs that the tests trace are this test binary, which runs one of these instead of tests.
var programs = map[string]func(){
	"products": func() { machineCode(configure, product, release, ret, config)() },
	"exit":     func() { os.Exit(3) },
	"threads": func() {
		done := make(chan int)
		for range 4 {
			go func() {
				machineCode(configure, product, release, ret, config)()
				done <- 1
			}()
		}
		for range 4 {
			<-done
		}
	},
	"exception": func() { machineCode(product, ret)() },
	"illegal":   func() { machineCode("\x0f\x0b")() }, // UD2
	"signal":    func() { unix.Kill(unix.Getpid(), unix.SIGTERM) },
}

const (
	configure = "\xc4\xe2\x78\x49\x05\x0b\x00\x00\x00" // LDTILECFG 11(IP): after the next three
	product   = "\xc4\xe2\x6a\x5c\xc1"                 // TDPBF16PS TMM2, TMM1, TMM0
	release   = "\xc4\xe2\x78\x49\xc0"                 // TILERELEASE
	ret       = "\xc3"
)

// config configures three tiles of 16 rows of 64 bytes.
var config = "\x01" + strings.Repeat("\x00", 15) + strings.Repeat("\x40\x00", 3) + strings.Repeat("\x00", 26) +
	"\x10\x10\x10" + strings.Repeat("\x00", 13)

// machineCode returns a function with this code.
func machineCode(code ...string) func() {
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	copy(memory, strings.Join(code, ""))
	entry := unsafe.Pointer(&struct{ code *byte }{&memory[0]})
	return *(*func())(unsafe.Pointer(&entry))
}

func TestMain(m *testing.M) {
	if program := programs[os.Getenv("AMX_TEST_PROGRAM")]; program != nil {
		program()
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "-amx" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
	}
	os.Exit(m.Run())
}

// Programs run to their end with AMX instructions, in any thread. Exceptions are explained. Other
// signals and the exit status are those of the program.
func TestPrograms(t *testing.T) {
	if err := needed(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		program string
		status  int
		stderr  string
	}{
		{"products", 0, "amx: 3 AMX instructions (1 products)"},
		{"threads", 0, "amx: 12 AMX instructions (4 products)"},
		{"exit", 3, "amx: 0 AMX instructions"},
		{"exception", 2, "TDPBF16PS TMM2, TMM1, TMM0 at 0x"},
		{"exception", 2, "no tiles are configured"},
		{"exception", 2, "SIGILL: illegal instruction"}, // by Go's runtime
		{"illegal", 2, "SIGILL: illegal instruction"},
		{"signal", 128 + int(unix.SIGTERM), "amx: 0 AMX instructions"},
	} {
		t.Run(c.program, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			amx := exec.Command(self, "-amx", "-stats", "env", "AMX_TEST_PROGRAM="+c.program, self)
			amx.Stderr = &stderr
			amx.Run()
			if got := amx.ProcessState.ExitCode(); got != c.status || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("status %d, want %d; %q is not in:\n%s", got, c.status, c.stderr, stderr.String())
			}
		})
	}
}
