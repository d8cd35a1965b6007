package main

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// build builds leased for a platform. The result does not depend on the folder, the user or
// the settings of the Go command.
func (r *release) build(path, goos, goarch string) error {
	c := exec.Command(r.goTool, "build", "-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags",
		"-s -w -X main.version="+r.version, "-o", path, "./cmd/leased")
	c.Dir = r.root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// checkBinary checks that a binary is what the release says: of this platform, built from a
// commit, and static.
func checkBinary(path, goos, goarch string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	settings := settings(info)
	for key, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true", "GOOS": goos, "GOARCH": goarch} {
		if settings[key] != want {
			return fmt.Errorf("the binary has %s=%s, want %s", key, settings[key], want)
		}
	}
	if settings["vcs.revision"] == "" {
		return errors.New("the binary does not know its commit; build in a checkout with git")
	}
	if goos != "linux" {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	dynamic := func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }
	if slices.ContainsFunc(f.Progs, dynamic) {
		return errors.New("the binary is not static: it needs a dynamic linker")
	}
	return nil
}

// completions returns the completions of the shells, which a binary of this machine
// writes.
func (r *release) completions(work string) ([]file, error) {
	binary := filepath.Join(work, "host", "leased")
	if err := r.build(binary, runtime.GOOS, runtime.GOARCH); err != nil {
		return nil, err
	}
	var files []file
	for _, shell := range []struct{ name, file string }{{"bash", "leased.bash"}, {"zsh", "_leased"},
		{"fish", "leased.fish"}} {
		c := exec.Command(binary, "completion", shell.name)
		c.Env = []string{} // no settings of leased
		text, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("leased completion %s: %w", shell.name, err)
		}
		files = append(files, file{name: "completions/" + shell.file, mode: 0o644, data: text})
	}
	return files, nil
}
