// Package system describes the machine's resources and reads and writes files: memory and its use
// by this process, whole files, terminals.
package system

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
)

// Memory describes main memory in bytes. Zero means unknown.
type Memory struct {
	Total     int64
	Available int64 // for a new program, without swapping
}

// ReadMemory returns the memory that this process may use: the machine's, or what the control
// groups of a container or a batch system leave of it.
func ReadMemory() Memory {
	return memory(os.DirFS("/"))
}

// memory reads the files of proc(5) and of control groups below root.
func memory(root fs.FS) Memory {
	info := table(root, "proc/meminfo")
	machine := kilobytes(info["MemTotal:"])
	m := Memory{Total: machine, Available: kilobytes(info["MemAvailable:"])}
	for _, g := range groupLimits(root) {
		if machine > 0 && g.limit >= machine {
			continue // in effect there is none, as with the largest number of version 1
		}
		if free := max(g.limit-g.used, 0); m.Total == 0 {
			m = Memory{g.limit, free}
		} else {
			m = Memory{min(m.Total, g.limit), min(m.Available, free)}
		}
	}
	return m
}

// Resident returns the bytes of main memory that this process uses; 0 if unknown.
func Resident() int64 { return resident(os.DirFS("/")) * int64(os.Getpagesize()) }

// resident returns the second number of statm: pages in memory.
func resident(root fs.FS) int64 {
	data, _ := fs.ReadFile(root, "proc/self/statm")
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	return number(fields[1])
}

// MostResident returns the maximum bytes of main memory that this process has used since it began,
// or since [ForgetMostResident]; 0 if unknown.
func MostResident() int64 { return kilobytes(table(os.DirFS("/"), "proc/self/status")["VmHWM:"]) }

// ForgetMostResident resets [MostResident] if the system can, as Linux does.
func ForgetMostResident() { os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// table reads lines of a name and a number. A file that cannot be read counts as empty.
func table(root fs.FS, path string) map[string]int64 {
	data, _ := fs.ReadFile(root, path)
	values := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			values[fields[0]] = number(fields[1])
		}
	}
	return values
}

// single returns the number in a file; 0 if it is not a number, such as the word max.
func single(root fs.FS, path string) int64 {
	data, _ := fs.ReadFile(root, path)
	return number(strings.TrimSpace(string(data)))
}

// number parses a non-negative number; 0 if text is not one.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func kilobytes(n int64) int64 { return min(n, math.MaxInt64>>10) << 10 }

// Bytes formats n in binary units, to four digits: 1.5 GiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.4g %ciB", v, units[i])
}
