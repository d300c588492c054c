package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
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
		{"v0.0.0-20261127162938-0123456789ab", stamp("false"), "0123456789ab", true},
		{"v0.0.0-20261127162938-0123456789ab+dirty", stamp("true"), "0123456789ab, modified", false},
		{"(devel)", nil, "(devel)", false}, // go run, and work trees
		{"", nil, "(devel)", false},        // tests
	} {
		got := describeBuild(&debug.BuildInfo{Main: debug.Module{Version: tt.module}, Settings: tt.settings})
		if got != tt.want || NamesSources(got) != tt.names {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}

// An archive that git makes has its commit in a file, and a checkout has none.
func TestArchiveNamesItsCommit(t *testing.T) {
	if got := describeArchive(archived); got != "" {
		t.Errorf("the checkout is of the archive %q", got)
	}
	folder := repository(t)
	commit := git(t, folder, "rev-parse", "HEAD")
	git(t, folder, "archive", "--output", filepath.Join(folder, "a.tar"), "HEAD")
	text, err := exec.Command("tar", "--extract", "--to-stdout", "--file", filepath.Join(folder, "a.tar"), "commit.txt").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := describeArchive(string(text)); got != commit[:12] {
		t.Errorf("the archive of %s is of %q", commit, got)
	}
}

// A program whose build does not know its commit asks git for that of its sources.
func TestDescribeCheckout(t *testing.T) {
	folder := repository(t)
	commit := git(t, folder, "rev-parse", "HEAD")[:12]
	if got := describeCheckout(folder); got != commit+", of the checkout" || NamesSources(got) {
		t.Errorf("%q of %s", got, commit)
	}
	git(t, folder, "tag", "v9")
	if err := os.WriteFile(filepath.Join(folder, "commit.txt"), []byte("more"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := describeCheckout(folder); got != commit+", modified, of the checkout" {
		t.Errorf("%q of %s with a change", got, commit)
	}
	for _, none := range []string{"launcher/system", filepath.Join(folder, "gone")} {
		if got := describeCheckout(none); got != "" {
			t.Errorf("%s is a checkout of %q", none, got)
		}
	}
}

// repository returns a repository with commit.txt of this package and its attribute.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	all, err := os.ReadFile("../../.gitattributes")
	if err != nil {
		t.Fatal(err)
	}
	const own = "launcher/system/"
	for name, text := range map[string]string{".gitattributes": strings.ReplaceAll(string(all), own, ""), "commit.txt": archived} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git(t, folder, "init", "--quiet")
	git(t, folder, "add", ".")
	git(t, folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "one")
	return folder
}

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", folder}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
