package system

import (
	"runtime/debug"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	stamp := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: modified}}
	}
	for _, tt := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
		names    bool
	}{
		{"v1.2.3", nil, "v1.2.3", true}, // go install of a version
		{"v1.2.3", stamp("false"), "v1.2.3", true},
		{"v1.2.3+dirty", stamp("true"), "v1.2.3, modified", false},
		{"v0.0.0-20261127162938-0123456789ab", stamp("false"), "0123456789ab", true},
		{"v0.0.0-20261127162938-0123456789ab+dirty", stamp("true"), "0123456789ab, modified", false},
		{"(devel)", stamp("false"), "0123456789ab", true},
		{"(devel)", nil, "(devel)", false}, // go run, and work trees
		{"", nil, "(devel)", false},        // tests
	} {
		got := describeBuild(&debug.BuildInfo{Main: debug.Module{Version: tt.module}, Settings: tt.settings})
		if got != tt.want || NamesSources(got) != tt.names {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}
