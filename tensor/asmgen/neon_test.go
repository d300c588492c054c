package asmgen

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// needLLVM is the environment variable that makes the tests fail where llvm-mc is missing.
const needLLVM = "SPMOE_NEED_LLVM"

// llvmMC returns the path of llvm-mc. It skips the test if there is none.
func llvmMC(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"llvm-mc", "llvm-mc-19", "llvm-mc-14"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(needLLVM) != "" {
		t.Fatalf("llvm-mc is missing, and %s is set: install llvm", needLLVM)
	}
	t.Skip("no word is compared: llvm-mc is missing; install llvm")
	return ""
}

// checkWords compares lines such as "WORD $0x4e21d400 // fadd v0.4s, v0.4s, v1.4s" with what
// llvm-mc assembles from their comments.
func checkWords(t *testing.T, lines []string) {
	t.Helper()
	var words []string
	var source strings.Builder
	for _, line := range lines {
		word, text, _ := strings.Cut(strings.TrimPrefix(line, "WORD $0x"), " // ")
		words = append(words, word)
		source.WriteString(text + "\n")
	}
	cmd := exec.Command(llvmMC(t), "-triple=aarch64", "-mattr=+bf16", "-show-encoding")
	cmd.Stdin = strings.NewReader(source.String())
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("llvm-mc: %v\n%s", err, problems.String())
	}
	codes := regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllStringSubmatch(string(out), -1)
	if len(codes) != len(words) {
		t.Fatalf("llvm-mc printed %d words for %d instructions", len(codes), len(words))
	}
	for i, c := range codes {
		if want := c[4] + c[3] + c[2] + c[1]; words[i] != want {
			t.Errorf("%s: llvm-mc has %s", lines[i], want)
		}
	}
}

// Each instruction of the table is encoded to llvm-mc's word, with each register as each operand
// and with each lane.
func TestEncodeNeon(t *testing.T) {
	var lines []string
	for mnemonic, forms := range neonOps {
		for _, form := range forms {
			kinds := strings.Fields(form.operands)
			for id := range 32 {
				for at := range kinds {
					lines = append(lines, neonLines(t, mnemonic, kinds, at, id)...)
				}
			}
		}
	}
	slices.Sort(lines)
	checkWords(t, slices.Compact(lines))
}

// neonLines returns an instruction per lane. Its operand at has register id, the others have V1, V2
// and V3.
func neonLines(t *testing.T, mnemonic string, kinds []string, at, id int) (lines []string) {
	for lane := range 4 {
		var ops []Operand
		for i, kind := range kinds {
			v := NeonReg(i + 1)
			if i == at {
				v = NeonReg(id)
			}
			var op Operand = v.as(lanes(kind))
			if kind == "S" {
				op = v.S(lane)
			}
			if n, err := strconv.Atoi(kind); err == nil {
				op = Imm(n)
			}
			ops = append([]Operand{op}, ops...)
		}
		line, ok := encodeNeon(mnemonic, ops)
		if !ok {
			t.Fatalf("%s %v is not encoded", mnemonic, ops)
		}
		lines = append(lines, line)
	}
	return lines
}

// The committed assembly has the words of llvm-mc.
func TestCommittedWords(t *testing.T) {
	var lines []string
	word := regexp.MustCompile(`(?m)^\tWORD .*$`)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_arm64.s") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, line := range word.FindAllString(string(text), -1) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) > 0 {
		checkWords(t, lines)
	}
}
