package testserver

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	dir, err := folder(nil, "s3")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the S3 server: %w", err)
	}
	defer removeUnless(&s, dir)
	program := filepath.Join(dir, "versitygw")
	build := exec.Command("go", "build", "-C", folderOfModule, "-o", program, "github.com/versity/versitygw/cmd/versitygw")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the S3 server: %w; its output:\n%s", err, output)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	addr, _, err := freeAddr()
	if err != nil {
		return nil, err
	}
	// It stores metadata in extended attributes, which the file system must
	// support. Its alternative, separate files, can return old metadata with new
	// data.
	args := []string{"--access", S3User, "--secret", S3Password, "--port", addr, "--quiet", "--health", "/health",
		"posix", data}
	return launch(spec{program: program, args: args, halt: syscall.SIGTERM, answers: healthy}, dir, addr)
}

// healthy requests the health page of a server.
func healthy(addr string) error {
	response, err := http.Get("http://" + addr + "/health")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health check answered %s", response.Status)
	}
	return nil
}
