package system

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// release is the version of a release, which .ci/release sets when it links.
var release string

// archived is the commit of an archive that git made. In a checkout it is a placeholder.
//
//go:embed commit.txt
var archived string

const (
	// modifiedMark ends the version of a build whose sources are not those of its revision.
	modifiedMark = ", modified"
	// checkoutMark ends a revision that the build does not know: that of the folder of its sources
	// when the program ran. Go writes none into programs of go run and of work trees.
	checkoutMark = ", of the checkout"

	revisionLength = 12 // in digits
	unknownVersion = "unknown"
	noVersion      = "(devel)"
)

// Version returns the release or the revision that this program was built from, if known.
var Version = sync.OnceValue(func() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	version := describeBuild(info)
	if _, file, _, ok := runtime.Caller(0); ok && version == noVersion {
		version = cmp.Or(describeArchive(archived), describeCheckout(filepath.Dir(file)), version)
	}
	return version
})

// describeBuild returns the version in a program's build information: that of the module, or the
// revision of a build in its repository.
func describeBuild(info *debug.BuildInfo) string {
	revision, modified := cmp.Or(info.Main.Version, noVersion), ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), revisionLength)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = modifiedMark
		}
	}
	return revision + modified
}

// describeArchive returns the commit in an archive of the sources; empty: this is a checkout.
func describeArchive(text string) string {
	if strings.HasPrefix(text, "$") {
		return ""
	}
	return text[:min(len(text), revisionLength)]
}

// describeCheckout returns the revision of the work tree of a folder; empty if git knows none.
func describeCheckout(folder string) string {
	if !filepath.IsAbs(folder) { // -trimpath
		return ""
	}
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const dirty = "-dirty"
	git := exec.CommandContext(ctx, "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder,
		"describe", "--always", fmt.Sprintf("--abbrev=%d", revisionLength), "--exclude=*", "--dirty="+dirty)
	text, err := git.Output()
	if err != nil {
		return ""
	}
	revision, modified := strings.CutSuffix(strings.TrimSpace(string(text)), dirty)
	if modified {
		revision += modifiedMark
	}
	return revision + checkoutMark
}

// NamesSources reports whether a version says which sources were built: a release or a revision
// without changes.
func NamesSources(version string) bool {
	return version != unknownVersion && version != noVersion &&
		!strings.HasSuffix(version, modifiedMark) && !strings.HasSuffix(version, checkoutMark)
}
