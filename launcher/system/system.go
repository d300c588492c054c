// Package system says what the machine has: memory, and how much of it this process uses.
package system

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory describes main memory in bytes. Zero means unknown.
type Memory struct {
	Total     int64
	Available int64 // to a new program, without swapping
}

// ReadMemory returns the machine's memory, or the limit of the container it runs in where that is smaller.
func ReadMemory() Memory {
	m := meminfo()
	if limit := readInt("/sys/fs/cgroup/memory.max"); limit > 0 && (m.Total == 0 || limit < m.Total) {
		m.Total = limit
		m.Available = min(m.Available, limit-readInt("/sys/fs/cgroup/memory.current"))
	}
	return m
}

func meminfo() (m Memory) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return m
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			m.Total = kib << 10
		case "MemAvailable:":
			m.Available = kib << 10
		}
	}
	return m
}

// Resident returns the bytes of main memory that this process uses; 0 if that is unknown.
func Resident() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func readInt(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}

// Bytes writes n in binary units: 1.50 GiB.
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
