package cpu

import (
	"fmt"
	"os"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Model is the CPU's brand name. Linux on arm64 has none: there it is the name of the core, or its
// implementer and part as numbers. It is "unknown" if neither can be read.
func Model() string {
	if cpuid.CPU.BrandName != "" {
		return cpuid.CPU.BrandName
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if name := armCore(string(info)); err == nil && name != "" {
		return name
	}
	return "unknown"
}

// armParts are the cores of implementer 0x41, Arm, by their part number in MIDR_EL1.
var armParts = map[string]string{
	"0xd08": "Cortex-A72", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse N1", "0xd40": "Neoverse V1",
	"0xd49": "Neoverse N2", "0xd4f": "Neoverse V2", "0xd84": "Neoverse V3", "0xd8e": "Neoverse N3",
}

// armCore names the first core in a Linux arm64 /proc/cpuinfo, or returns "".
func armCore(info string) string {
	implementer, part := field(info, "CPU implementer"), field(info, "CPU part")
	switch {
	case implementer == "" || part == "":
		return ""
	case implementer == "0x41" && armParts[part] != "":
		return "Arm " + armParts[part]
	}
	return fmt.Sprintf("arm64, implementer %s, part %s", implementer, part)
}

// field returns the first value of a name in "name : value" lines.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
