package testserver

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

// Credentials of the S3 server that StartVersityGW starts.
const (
	S3User     = "user"
	S3Password = "password"
)

// StartVersityGW builds versitygw, an S3-compatible server, from the module in
// folder, and starts it. The first build takes minutes; later ones use the build
// cache. Addr is its HTTP address.
func StartVersityGW(folderOfModule string) (s *Server, err error) {
	sp, err := newSpec("s3")
	if err != nil {
		return nil, err
	}
	defer removeUnless(&s, sp.dir)
	sp.program, sp.answers = filepath.Join(sp.dir, "versitygw"), serves("/health")
	build := exec.Command("go", "build", "-C", folderOfModule, "-o", sp.program,
		"github.com/versity/versitygw/cmd/versitygw")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the S3 server: %w; its output:\n%s", err, output)
	}
	data := filepath.Join(sp.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	// It stores metadata in extended attributes, which the file system must
	// support. Its alternative, separate files, can return old metadata with new
	// data.
	sp.args = []string{"--access", S3User, "--secret", S3Password, "--port", sp.addr, "--quiet", "--health", "/health",
		"posix", data}
	return launch(sp)
}

// serves returns a function that requests a page of an HTTP server.
func serves(path string) func(addr string) error { return gets(http.DefaultClient, "http", path) }

func gets(client *http.Client, scheme, path string) func(addr string) error {
	return func(addr string) error {
		response, err := client.Get(scheme + "://" + addr + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s", path, response.Status)
		}
		return nil
	}
}
