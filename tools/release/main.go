// Program release builds the archives of a release: static binaries for several platforms, an
// SBOM for each, and their checksums. The same commit and the same Go version give the same
// bytes, on any machine and in any folder.
//
//	cd tools && go run ./release -root .. -out ../out/release
//
// Files: main.go (the steps), build.go (binaries), archive.go (tar.gz), sbom.go (CycloneDX).
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// platforms are the platforms of a release.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

// release is one release.
type release struct {
	root    string    // of the repository
	out     string    // the folder of the archives
	goTool  string    // the go command
	version string    // such as v1.2.3
	time    time.Time // of the commit
}

func main() {
	root := flag.String("root", "..", "root of the repository")
	out := flag.String("out", "../out/release", "folder that gets a folder for the version")
	version := flag.String("version", "", "version of the release (default: git describe)")
	list := flag.String("platforms", platforms, "platforms to build, GOOS/GOARCH, separated by commas")
	goTool := flag.String("go", "go", "the go command")
	dirty := flag.Bool("allow-dirty", false, "build although files differ from the commit")
	flag.Parse()
	r, err := newRelease(*root, *out, *goTool, *version)
	if err == nil && !*dirty {
		err = r.checkClean()
	}
	if err == nil {
		err = r.run(strings.Split(*list, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// newRelease reads the version and the time of the commit from git.
func newRelease(root, out, goTool, version string) (*release, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	r := &release{root: root, goTool: goTool, version: version}
	if version == "" {
		if r.version, err = r.git("describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, err
		}
	}
	if strings.ContainsAny(r.version, "/\\ ") || strings.HasPrefix(r.version, ".") {
		return nil, fmt.Errorf("the version %q cannot be the name of a folder", r.version)
	}
	seconds, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	r.out = filepath.Join(out, r.version)
	return r, nil
}

// git runs git in the repository and returns its output.
func (r *release) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w; a release needs a checkout with git", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// checkClean fails if files differ from the commit: nobody could build the same release again.
func (r *release) checkClean() error {
	changes, err := r.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if changes == "" {
		return nil
	}
	first, _, more := strings.Cut(changes, "\n")
	if more {
		first += fmt.Sprintf(" and %d more", strings.Count(changes, "\n"))
	}
	return fmt.Errorf("files in %s differ from the commit (%s); commit them, or give -allow-dirty for a trial", r.root,
		first)
}

// run builds everything, and prints a line for each platform.
func (r *release) run(platforms []string) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "leased-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	begin := time.Now()
	fmt.Printf("building %s in %s; the first build of a platform takes minutes\n", r.version, r.out)
	completions, err := r.completions(work)
	if err != nil {
		return err
	}
	for i, platform := range platforms {
		if err := r.archive(work, platform, completions); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Printf("%s built (%d of %d), %v since the start\n", platform, i+1, len(platforms),
			time.Since(begin).Round(time.Second))
	}
	return r.checksums()
}

// archive builds the binary, the SBOM and the archive for one platform.
func (r *release) archive(work, platform string, completions []file) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return errors.New("a platform is GOOS/GOARCH")
	}
	binary := filepath.Join(work, goos+"-"+goarch, "leased")
	if err := r.build(binary, goos, goarch); err != nil {
		return err
	}
	if err := checkBinary(binary, goos, goarch); err != nil {
		return err
	}
	name := fmt.Sprintf("leased_%s_%s_%s", r.version, goos, goarch)
	sbom, err := r.sbom(binary, platform)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, name+".cdx.json"), sbom, 0o644); err != nil {
		return err
	}
	files, err := r.files(binary)
	if err != nil {
		return err
	}
	return r.pack(filepath.Join(r.out, name+".tar.gz"), name, append(files, completions...))
}

// checksums writes SHA256SUMS in the format of sha256sum, and prints the sizes.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), entry.Name()))
		fmt.Printf("%9d  %s\n", len(data), entry.Name())
	}
	fmt.Println("in", r.out)
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
