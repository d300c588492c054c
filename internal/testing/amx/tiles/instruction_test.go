package tiles

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Bytes are those of LLVM 14's assembler.
func TestDecode(t *testing.T) {
	for code, want := range map[string]string{
		"c4e278490540000000":   "LDTILECFG 64(IP)",
		"c4c2784945f8":         "LDTILECFG -8(R13)",
		"c4e278490424":         "LDTILECFG (SP)",
		"c4a27b4b7c3dc0":       "TILELOADD -64(BP)(R15*1), TMM7",
		"c4c2794b548500":       "TILELOADDT1 (R13)(AX*4), TMM2",
		"c4e27b4b0ccd45230100": "TILELOADD 74565(CX*8), TMM1",
		"c4e27b4b1c20":         "TILELOADD (AX), TMM3",
		"c4827a4b6c047f":       "TILESTORED TMM5, 127(R12)(R8*1)",
		"c4e27b49f0":           "TILEZERO TMM6",
		"c4e27849c0":           "TILERELEASE",
		"c4e2425cee":           "TDPBF16PS TMM7, TMM6, TMM5",
		"c4e27b5ed1":           "TDPBSSD TMM0, TMM1, TMM2",
		"c4e2794900":           "", // STTILECFG (AX)
		"c4e2785ed1":           "", // TDPBUUD
		"c4e27b5e10":           "", // a product with a memory operand
		"c4627b49f0":           "", // TILEZERO of tile 14
		"c4e27b4b18":           "", // TILELOADD without an index
		"c4e27f49f0":           "", // L = 1
		"c4e2fb49f0":           "", // W = 1
		"c4e2784905400000":     "", // LDTILECFG 64(IP), cut off
		"c5f458d0":             "", // VADDPS
		"c4e27b49":             "", // cut off
		"c4e27b4b":             "",
		"c4e27b4b1c":           "",
		"c4e27b4b0ccd452301":   "",
		"c4e2425cee9090":       "TDPBF16PS TMM7, TMM6, TMM5", // and more
	} {
		bytes, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		in, ok := Decode(bytes)
		got := ""
		if ok {
			got = in.String()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", code, got, want)
		}
		if size := len(strings.TrimSuffix(hex.EncodeToString(bytes), "9090")) / 2; ok && in.Size != size {
			t.Errorf("%s has %d bytes, want %d", code, in.Size, size)
		}
	}
}

var emitted = regexp.MustCompile(`^\t((?:LONG|WORD|BYTE) .*) // ((?:LDTILECFG|TILE|TDP).*)$`)

// Each instruction of the generated kernels means what its comment says. Those with offsets of Go
// fields are left out, because their bytes are not in the source.
func TestDecodeKernels(t *testing.T) {
	files, err := filepath.Glob("../../../../tensor/internal/gemm/*_amx_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	decoded := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(source)) {
			parts := emitted.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if parts == nil || strings.Contains(parts[1], "$tile") {
				continue
			}
			decoded++
			code := assembled(t, parts[1])
			if in, ok := Decode(code); !ok || in.String() != parts[2] || in.Size != len(code) {
				t.Errorf("%s: %x is %v of %d bytes, want %s", filepath.Base(file), code, in, in.Size, parts[2])
			}
		}
	}
	if decoded < 100 {
		t.Errorf("%d instructions in %d files: too few", decoded, len(files))
	}
}

// assembled returns the bytes of directives.
func assembled(t *testing.T, directives string) (code []byte) {
	t.Helper()
	for directive := range strings.SplitSeq(directives, "; ") {
		name, number, _ := strings.Cut(directive, " $")
		value, err := strconv.ParseUint(number, 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		all := binary.LittleEndian.AppendUint32(nil, uint32(value))
		code = append(code, all[:map[string]int{"LONG": 4, "WORD": 2, "BYTE": 1}[name]]...)
	}
	return code
}
