package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// files returns the binary and the files that belong to it.
func (r *release) files(binary string) ([]file, error) {
	var files []file
	for _, f := range []struct {
		name, path string
		mode       int64
	}{
		{"leased", binary, 0o755},
		{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
		{"NOTICE", filepath.Join(r.root, "NOTICE"), 0o644},
		{"README.md", filepath.Join(r.root, "README.md"), 0o644},
		{"CHANGELOG.md", filepath.Join(r.root, "CHANGELOG.md"), 0o644},
		{"leased.yaml", filepath.Join(r.root, "deploy", "leased.yaml"), 0o644},
		{"leased.service", filepath.Join(r.root, "deploy", "leased.service"), 0o644},
	} {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: f.name, mode: f.mode, data: data})
	}
	return files, nil
}

// pack writes files to an archive, below a folder. Order, times and owners are fixed.
func (r *release) pack(path, folder string, files []file) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var packed bytes.Buffer
	zipper, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipper)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: r.time, Format: tar.FormatUSTAR}
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
