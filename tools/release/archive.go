package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// link matches a link to another file of the repository.
var link = regexp.MustCompile(`\]\(((?:[a-z]+/|CONTRIBUTING)[^)]*)\)`)

// files returns the binary and the files that belong to it.
func (r *release) files(binary string) (files []file, err error) {
	for _, path := range []string{binary, "LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "deploy/leased.yaml",
		"deploy/leased.service"} {
		f := file{name: filepath.Base(path), mode: 0o755}
		if path != binary {
			path, f.mode = filepath.Join(r.root, path), 0o644
		}
		if f.data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if f.name == "README.md" { // the archive has no other documents
			f.data = link.ReplaceAll(f.data, []byte("](https://github.com/leased-project/leased/blob/"+r.version+"/$1)"))
		}
		files = append(files, f)
	}
	return files, nil
}

// pack writes files to an archive, below a folder. Order, times and owners are fixed.
func (r *release) pack(path, folder string, files []file) error {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var packed bytes.Buffer
	zipper, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipper)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)),
			ModTime: r.time, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := zipper.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}
