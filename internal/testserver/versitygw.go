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
func StartVersityGW(folderOfModule string) (*Server, error) {
	return start("s3", nil, func(s *Server) error {
		program, data := filepath.Join(s.Dir, "versitygw"), filepath.Join(s.Dir, "data")
		build := exec.Command("go", "build", "-C", folderOfModule, "-o", program,
			"github.com/versity/versitygw/cmd/versitygw")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the S3 server: %w; its output:\n%s", err, output)
		}
		s.answers = serves("/health")
		// It stores metadata in extended attributes, which the file system must
		// support. Its alternative, separate files, can return old metadata with new
		// data.
		s.Args = []string{program, "--access", S3User, "--secret", S3Password, "--port", s.Addr, "--quiet", "--health",
			"/health", "posix", data}
		return os.Mkdir(data, 0o700)
	})
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
