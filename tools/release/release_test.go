package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestRelease builds the release of this platform twice, from two checkouts in different
// folders. Both have the same bytes.
func TestRelease(t *testing.T) {
	var sums [2]string
	var out string
	source := "../.."
	for i := range sums {
		checkout := filepath.Join(t.TempDir(), fmt.Sprint("checkout", i))
		if text, err := exec.Command("git", "clone", "--quiet", source, checkout).CombinedOutput(); err != nil {
			t.Fatalf("git clone: %v\n%s", err, text)
		}
		source = checkout // the second build has the same commit, even if the repository moves on
		out = filepath.Join(checkout, "out")
		r, err := newRelease(checkout, out, "go", "v0.0.1-test")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.checkClean(); err != nil {
			t.Fatal(err)
		}
		if err := r.run([]string{runtime.GOOS + "/" + runtime.GOARCH}); err != nil {
			t.Fatal(err)
		}
		out = r.out
		sums[i] = string(read(t, filepath.Join(out, "SHA256SUMS")))
	}
	if sums[0] != sums[1] {
		t.Fatalf("two builds of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
	name := fmt.Sprintf("leased_v0.0.1-test_%s_%s", runtime.GOOS, runtime.GOARCH)
	for _, file := range []string{name + ".tar.gz", name + ".cdx.json"} {
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, filepath.Join(out, file))), file); !strings.Contains(sums[0],
			want) {
			t.Errorf("SHA256SUMS lacks %s", want)
		}
	}
	files := unpack(t, filepath.Join(out, name+".tar.gz"))
	for _, want := range []string{"leased", "LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "leased.yaml",
		"leased.service",
		"completions/leased.bash", "completions/_leased", "completions/leased.fish"} {
		if len(files[name+"/"+want]) == 0 {
			t.Errorf("the archive lacks %s", want)
		}
	}
	links := regexp.MustCompile(`\]\([^):]*(/|\.md)[^):]*\)`)
	for _, missing := range links.FindAllString(string(files[name+"/README.md"]), -1) {
		t.Errorf("README.md of the archive links to a document that it does not have: %s", missing)
	}
	checkProgram(t, files[name+"/leased"])
	quickStart(t, filepath.Join(out, name+".tar.gz"))
	checkSBOM(t, read(t, filepath.Join(out, name+".cdx.json")), files[name+"/leased"])
}

// A release is not built from files that differ from the commit.
func TestDirtyTreeIsRefused(t *testing.T) {
	root := t.TempDir()
	r := &release{root: root}
	if _, err := r.git("init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	if err := r.checkClean(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.checkClean(); err == nil || !strings.Contains(err.Error(), "?? one and 1 more") {
		t.Fatalf("a dirty tree: %v", err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpack returns the files of an archive.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// checkProgram runs the binary of the archive: it knows its version and its commit.
func checkProgram(t *testing.T, binary []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leased")
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(path, "version", "--output=json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version, Commit, CommitTime string
		Modified                    bool
		Formats                     map[string]int
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v0.0.1-test" || len(got.Commit) != 40 || got.CommitTime == "" || got.Modified ||
		got.Formats["log-entry"] != 1 {
		t.Errorf("leased version: %s", text)
	}
}

// quickStart installs the archive into an empty folder and runs the quick start.
func quickStart(t *testing.T, archive string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("../../scripts/try-archive", archive)
	command.Env = append(os.Environ(), "LISTEN="+free.Addr().String())
	_ = free.Close()
	text, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "the quick start works from "+filepath.Base(archive)) {
		t.Errorf("scripts/try-archive: %v\n%s", err, text)
	}
}

// checkSBOM checks that the SBOM names the binary and its modules, each once and with a
// licence.
func checkSBOM(t *testing.T, text, binary []byte) {
	t.Helper()
	var got cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&got); err != nil {
		t.Fatal(err)
	}
	self := got.Metadata.Component
	if got.BOMFormat != "CycloneDX" || got.SpecVersion != cdx.SpecVersion1_5 ||
		(*self.Hashes)[0].Value != fmt.Sprintf("%x", sha256.Sum256(binary)) {
		t.Errorf("the SBOM does not describe the binary: %+v", got.Metadata)
	}
	var refs []string
	for _, c := range *got.Components {
		refs = append(refs, c.BOMRef)
		if c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version || c.Version == "" || len(*c.Licenses) != 1 ||
			(*c.Licenses)[0].Expression == "" {
			t.Errorf("component %+v", c)
		}
	}
	for _, want := range []string{"std", "github.com/hashicorp/raft", "google.golang.org/grpc",
		"github.com/redis/go-redis/v9"} {
		if !slices.Contains(refs, want) {
			t.Errorf("the SBOM lacks %s", want)
		}
	}
	slices.Sort(refs)
	if len(refs) < 20 || len(slices.Compact(slices.Clone(refs))) != len(refs) ||
		!slices.Equal(*(*got.Dependencies)[0].Dependencies, refs) {
		t.Errorf("%d components: %v", len(refs), refs)
	}
}

func TestParseNotice(t *testing.T) {
	got := parseNotice("leased\nThe program leased contains code, v2, x\n\nexample.org/a v1.2.3, MIT, Copyright A, " +
		"B\nexample.org/b v1.0.0+x, MIT AND Apache-2.0\n")
	if len(got) != 2 || got["example.org/a"] != "MIT" || got["example.org/b"] != "MIT AND Apache-2.0" {
		t.Errorf("%v", got)
	}
}
