package system

import (
	"runtime/debug"
	"strings"
)

// release is the version of a release, which .ci/release sets when it links.
var release string

// modifiedMark ends the version of a build whose sources are not those of its revision.
const modifiedMark = ", modified"

// Version returns the release or the revision that this program was built from, if known.
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = modifiedMark
		}
	}
	return revision + modified
}

// NamesSources reports whether a version says which sources were built: a release or a revision
// without changes.
func NamesSources(version string) bool {
	return version != "unknown" && version != "(devel)" && !strings.HasSuffix(version, modifiedMark)
}
