package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const revisionName = "0123456789abcdef0123456789abcdef01234567"

// addRepository makes a dataset in a cache of repositories as huggingface_hub does: files are links
// to blobs.
func addRepository(t *testing.T, hub, name string, files ...string) {
	t.Helper()
	root := filepath.Join(hub, "datasets--"+strings.ReplaceAll(name, "/", "--"))
	write(t, filepath.Join(root, "refs", "main"), revisionName)
	for i, file := range files {
		blob := filepath.Join(root, "blobs", strings.ReplaceAll(file, "/", "+"))
		write(t, blob, strings.Repeat("x", 10+i))
		at := filepath.Join(root, "snapshots", revisionName, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(blob, at); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// cache makes a cache with some datasets and selects it.
func cache(t *testing.T) (home string) {
	home = t.TempDir()
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", home)
	hub := filepath.Join(home, "hub")
	addRepository(t, hub, "roneneldan/TinyStories", "README.md", "data/train-00000-of-00002-1a.parquet", "data/train-00001-of-00002-2b.parquet",
		"data/validation-00000-of-00001.parquet", "TinyStories-train.txt")
	addRepository(t, hub, "allenai/c4", "en/c4-train.00000-of-01024.json.gz", "en/c4-validation.00000-of-00008.json.gz", "realnewslike/c4-train.00000-of-00512.json.gz")
	addRepository(t, hub, "wikitext", "wikitext-2-raw-v1/train-00000-of-00001.parquet", "wikitext-2-raw-v1/test-00000-of-00001.parquet", "wikitext-103-v1/train-00000-of-00002.parquet")
	addRepository(t, hub, "org/chat", "data/test_sft-00000-of-00001.parquet", "data/train_gen-00000-of-00001.parquet", "data/train_sft-00000-of-00001.parquet", "dataset_infos.json")
	addRepository(t, hub, "org/flat", "a.jsonl", "b.jsonl", "state.json")
	addRepository(t, hub, "org/folders", "train/part-00000-of-00001.jsonl", "dev/x.jsonl")
	addRepository(t, hub, "org/web", "sample/10BT/000_00000.parquet", "sample/100BT/000_00000.parquet", "data/CC-1/000_00000.parquet")
	addRepository(t, hub, "org/one", "fr/x.jsonl")
	addRepository(t, hub, "org/tables", "a.txt")
	addRepository(t, hub, "org/none", "README.md")
	return home
}

func TestFind(t *testing.T) {
	cache(t)
	for name, want := range map[string]string{
		"roneneldan/TinyStories":            "roneneldan/TinyStories/data/train-00000-of-00002-1a.parquet roneneldan/TinyStories/data/train-00001-of-00002-2b.parquet",
		"roneneldan/TinyStories/train":      "roneneldan/TinyStories/data/train-00000-of-00002-1a.parquet roneneldan/TinyStories/data/train-00001-of-00002-2b.parquet",
		"roneneldan/TinyStories/validation": "roneneldan/TinyStories/data/validation-00000-of-00001.parquet",
		"roneneldan/TinyStories/dev":        "roneneldan/TinyStories/data/validation-00000-of-00001.parquet",
		"allenai/c4:en":                     "allenai/c4/en/c4-train.00000-of-01024.json.gz",
		"allenai/c4:en/validation":          "allenai/c4/en/c4-validation.00000-of-00008.json.gz",
		"allenai/c4:realnewslike":           "allenai/c4/realnewslike/c4-train.00000-of-00512.json.gz",
		"wikitext:wikitext-2-raw-v1/test":   "wikitext/wikitext-2-raw-v1/test-00000-of-00001.parquet",
		"org/chat/train_sft":                "org/chat/data/train_sft-00000-of-00001.parquet",
		"org/flat":                          "org/flat/a.jsonl org/flat/b.jsonl",
		"org/flat/train":                    "org/flat/a.jsonl org/flat/b.jsonl",
		"org/folders":                       "org/folders/train/part-00000-of-00001.jsonl",
		"org/folders/validation":            "org/folders/dev/x.jsonl",
		"org/web:sample/10BT":               "org/web/sample/10BT/000_00000.parquet",
		"org/web:sample-100BT":              "org/web/sample/100BT/000_00000.parquet",
		"org/web:CC-1":                      "org/web/data/CC-1/000_00000.parquet",
		"org/one":                           "org/one/fr/x.jsonl",
		"org/tables":                        "org/tables/a.txt",
	} {
		files, err := Find(name)
		var got []string
		for _, f := range files {
			got = append(got, f.Name)
			if _, err := os.Stat(f.Path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestFindErrors(t *testing.T) {
	home := cache(t)
	addRepository(t, filepath.Join(home, "hub"), "org/gone")
	write(t, filepath.Join(home, "hub", "datasets--org--two", "snapshots", "a", "x.jsonl"), "x")
	write(t, filepath.Join(home, "hub", "datasets--org--two", "snapshots", "b", "x.jsonl"), "x")
	for name, want := range map[string][]string{
		"org/missing":        {"is not in the cache", home, "HF_HOME", "hf download --repo-type dataset org/missing"},
		"":                   {"expected hf:NAME[:CONFIG][/SPLIT]"},
		"a/b/c/d":            {"expected hf:NAME"},
		"../x":               {"expected hf:NAME"},
		"a/b:":               {"expected hf:NAME"},
		"allenai/c4":         {"several configurations: give one of en, realnewslike", "hf:NAME[:CONFIG]"},
		"allenai/c4:fr":      {`no configuration "fr"`, "give one of en, realnewslike"},
		"allenai/c4:en/test": {`no split "test"`, "train, validation"},
		"org/chat/train":     {`no split "train"`, "test_sft, train_gen, train_sft"},
		"org/flat:x":         {`no configuration "x"`, "leave it out"},
		"org/flat/test":      {`no split "test" and no other: leave it out`},
		"org/none":           {"no Parquet, JSON, Arrow or text file"},
		"org/gone":           {"0 snapshots"},
		"org/two":            {"2 snapshots"},
	} {
		_, err := Find(name)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", name, err, part)
			}
		}
	}
}

// The library's variables select the cache.
func TestCacheFolder(t *testing.T) {
	for want, set := range map[string]map[string]string{
		"/h/hub":                    {"HF_HOME": "/h"},
		"/c":                        {"HF_HOME": "/h", "HF_HUB_CACHE": "/c"},
		"/old":                      {"HUGGINGFACE_HUB_CACHE": "/old"},
		"/x/huggingface/hub":        {"XDG_CACHE_HOME": "/x"},
		"/u/.cache/huggingface/hub": {"HOME": "/u"},
	} {
		for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HOME"} {
			t.Setenv(name, set[name])
		}
		if got := cacheFolder(); got != want {
			t.Errorf("%v: %v, want %v", set, got, want)
		}
	}
}
