package cpu

import "testing"

func TestArmCore(t *testing.T) {
	for _, c := range []struct{ info, want string }{
		{"processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n", "Arm Neoverse V2"},
		{"CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n", "Arm Neoverse N1"},
		{"CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n", "arm64, implementer 0xc0, part 0xac3"},
		{"CPU implementer\t: 0x41\nCPU part\t: 0xfff\n", "arm64, implementer 0x41, part 0xfff"},
		{"vendor_id\t: GenuineIntel\nmodel name\t: Xeon\n", ""},
		{"", ""},
	} {
		if got := armCore(c.info); got != c.want {
			t.Errorf("%q: %q, want %q", c.info, got, c.want)
		}
	}
}
