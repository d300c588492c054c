package system

import (
	"cmp"
	"runtime/debug"
	"strings"
	"sync"
)

// release is the version of a release, which .ci/release sets when it links.
var release string

const (
	// modifiedMark ends the version of a build whose sources are not those of its revision.
	modifiedMark = ", modified"
	// noVersion is the version of a build that knows none, as of go run and of work trees.
	noVersion      = "(devel)"
	unknownVersion = "unknown"

	revisionLength = 12 // in digits
)

// Version returns the release or the revision that this program was built from, if known.
var Version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(release, describeBuild(info))
	}
	return cmp.Or(release, unknownVersion)
})

// describeBuild returns the version in a program's build information: a tag, or the revision of a
// build in its repository. Go names a revision without a tag by a version that contains it.
func describeBuild(info *debug.BuildInfo) string {
	version, modified := cmp.Or(strings.TrimSuffix(info.Main.Version, "+dirty"), noVersion), ""
	for _, s := range info.Settings {
		revision := s.Value[:min(len(s.Value), revisionLength)]
		switch {
		case s.Key == "vcs.revision" && (version == noVersion || strings.Contains(version, revision)):
			version = revision
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = modifiedMark
		}
	}
	return version + modified
}

// NamesSources reports whether a version says which sources were built: a release or a revision
// without changes.
func NamesSources(version string) bool {
	return version != unknownVersion && version != noVersion && !strings.HasSuffix(version, modifiedMark)
}
